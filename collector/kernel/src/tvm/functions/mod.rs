//! Computes exponentials, logarithms and similar functions by vector arithmetic, instead of one library call per
//! element. For `f32` on CPUs, TVM's last pass calls the rule registered here, which lowers to a call of a function of
//! a whole vector. LLVM gets the definitions with the module and inlines them; TVM would take too long to analyse them.
//! Because that pass is the last, schedules, features and traces are unaffected.

mod body;
mod formulas;

use super::call::{TvmError, Value, call, call_function};
use super::dots::{self, Instruction};
use super::expression::Module;
use super::names;
use body::Number;
use job::space::choices::Functions;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::OnceLock;
use tvm_ffi::{Any, AnyView, DLDataType, Error, Function};

type Result<T> = std::result::Result<T, TvmError>;

type Formula = fn(Number<'_>) -> Number<'_>;

const FORMULAS: &[(&str, Formula)] = &[
    ("tirx.exp", formulas::exp_formula),
    ("tirx.exp2", formulas::exp2_formula),
    ("tirx.log", formulas::log_formula),
    ("tirx.log1p", formulas::log1p_formula),
    ("tirx.erf", formulas::erf_formula),
    ("tirx.tanh", formulas::tanh_formula),
];

/// Rounding operators that LLVM computes on vectors, but that TVM does not declare as vectorisable.
const ROUNDING: &[&str] = &["tirx.nearbyint"];

const RULE: &str = "llvm.FLowerIntrinsic";
const RULE_OF_ALL: &str = "default.FLowerIntrinsic";
const IS_OF_VECTORS: &str = "TVectorizable";
const FLOAT: u8 = 2;

thread_local! {
    static CHOSEN: Cell<Functions> = const { Cell::new(Functions::Vector) };
    /// Vector functions that the module being lowered calls: index of the function, and number of lanes.
    static CALLED: RefCell<BTreeSet<(usize, u16)>> = const { RefCell::new(BTreeSet::new()) };
}

/// Runs `lower` with a variant of the functions, and adds definitions of called functions, byte products included.
pub(super) fn lower_with(
    functions: Functions,
    instruction: Instruction,
    lower: impl FnOnce() -> Result<Module>,
) -> Result<Module> {
    register_rules()?;
    dots::forget_calls();
    let before = CHOSEN.replace(functions);
    CALLED.take();
    let module = lower();
    CHOSEN.set(before);
    let mut definitions: String = CALLED
        .take()
        .into_iter()
        .map(|(place, lanes)| body::define_function(&function_name(place, lanes), lanes, FORMULAS[place].1))
        .collect();
    definitions.push_str(&dots::called_definitions(instruction));
    if definitions.is_empty() { module } else { with_definitions(&module?, &definitions) }
}

fn with_definitions(module: &Module, definitions: &str) -> Result<Module> {
    const IMPORT: &str = "pragma_import_llvm";
    let text = call!(names::STRING_IMMEDIATE, definitions, Value::none())?;
    let nothing = call!(names::INT_IMMEDIATE, models::DType::I32, 0i64, Value::none())?;
    let body = super::expression::main_function(module)?.field("body")?;
    let body = call!(names::ATTRIBUTE, nothing, IMPORT, text, body, Value::none())?;
    super::expression::with_body(module, &body)
}

fn function_name(place: usize, lanes: u16) -> String {
    format!("{}.{lanes}", FORMULAS[place].0.replace("tirx", "opcollect"))
}

fn register_rules() -> Result<()> {
    static REGISTERED: OnceLock<Result<()>> = OnceLock::new();
    REGISTERED
        .get_or_init(|| {
            (0..FORMULAS.len()).try_for_each(register_rule)?;
            ROUNDING
                .iter()
                .try_for_each(|operator| call!(names::SET_ATTRIBUTE, *operator, IS_OF_VECTORS, true, LEVEL).map(drop))
        })
        .clone()
}

/// Priority of the rules registered here. The highest priority wins; TVM's own rules have 10.
const LEVEL: i64 = 11;

fn register_rule(place: usize) -> Result<()> {
    let operator = FORMULAS[place].0;
    let default = default_rule(operator)?;
    let is_of_vectors =
        call!(names::HAS_ATTRIBUTE, call!(names::GET_OPERATOR, operator)?, IS_OF_VECTORS)?.as_boolean()?;
    let rule = move |arguments: &[AnyView]| {
        let failed = |error: TvmError| Error::new(tvm_ffi::RUNTIME_ERROR, &error.to_string(), "");
        let call = arguments.first().map_or_else(Value::none, |view| Value(Any::from(*view)));
        write_call(&call, place, &default, is_of_vectors).map(|answer| answer.0).map_err(failed)
    };
    call!(names::SET_ATTRIBUTE, operator, RULE, Value(Any::from(Function::from_packed(rule))), LEVEL)?;
    if !is_of_vectors {
        call!(names::SET_ATTRIBUTE, operator, IS_OF_VECTORS, true, LEVEL)?;
    }
    Ok(())
}

fn default_rule(operator: &'static str) -> Result<Function> {
    let found = call!(names::GET_OPERATOR, operator)?;
    for rule in [RULE, RULE_OF_ALL] {
        let attribute = call!(names::GET_ATTRIBUTE, &found, rule)?;
        if let Ok(function) = attribute.convert_to("function") {
            return Ok(function);
        }
    }
    Err(TvmError::new(names::GET_ATTRIBUTE.text, format!("TVM has no lowering rule for `{operator}`")))
}

fn write_call(call: &Value, place: usize, default: &Function, is_of_vectors: bool) -> Result<Value> {
    let kind: DLDataType = call.field("ty")?.field("dtype")?.convert_to("element type")?;
    if (kind.code, kind.bits) == (FLOAT, 32) && CHOSEN.get() == Functions::Vector {
        CALLED.with_borrow_mut(|called| called.insert((place, kind.lanes)));
        let name = call!(names::STRING_IMMEDIATE, function_name(place, kind.lanes).as_str(), Value::none())?;
        return call_operator(
            kind,
            &call!(names::GET_OPERATOR, "tirx.call_pure_extern")?,
            vec![name, first_argument(call)?],
        );
    }
    if kind.lanes == 1 || is_of_vectors {
        return call_function(default, RULE, std::slice::from_ref(call));
    }
    call_per_lane(call, kind, |one| call_function(default, RULE, &[one]))
}

fn first_argument(call: &Value) -> Result<Value> {
    let argument = call.field("args")?.items()?.into_iter().next();
    argument.ok_or_else(|| TvmError::new(RULE, "the call has no argument"))
}

fn call_per_lane(call: &Value, dtype: DLDataType, write: impl Fn(Value) -> Result<Value>) -> Result<Value> {
    let (argument, operator) = (first_argument(call)?, call.field("op")?);
    let place = |lane: u16| call!(names::INT_IMMEDIATE, models::DType::I32, i64::from(lane), Value::none());
    let mut elements = Vec::new();
    let mut places = Vec::new();
    for lane in 0..dtype.lanes {
        let element = call!(names::SHUFFLE, vec![argument.clone()], vec![place(lane)?], Value::none())?;
        elements.push(write(call_operator(DLDataType { lanes: 1, ..dtype }, &operator, vec![element])?)?);
        places.push(place(lane)?);
    }
    call!(names::SHUFFLE, elements, places, Value::none())
}

fn call_operator(dtype: DLDataType, operator: &Value, arguments: Vec<Value>) -> Result<Value> {
    let kind = call!(names::PRIM_TYPE, Value(Any::from(dtype)))?;
    call!(names::CALL_OPERATOR, kind, operator, arguments, Value::none(), Vec::new(), Value::none())
}

#[cfg(test)]
mod tests;
