//! Exponentials, logarithms and their kin as arithmetic on vectors, in place of one library call for each element.
//!
//! TVM's last pass asks each operator how its target writes it. For `f32` on CPUs the answers here are polynomials over a
//! whole vector; every other type keeps TVM's answer. Because that pass is the last, schedules, features and traces know
//! nothing of it. [`with`] chooses for what is compiled inside of it.

mod formulas;
mod lanes;

use super::call::{TvmError, Value, call, call_function};
use super::names;
use job::space::Functions;
use lanes::Lanes;
use std::cell::Cell;
use std::sync::OnceLock;
use tvm_ffi::{Any, AnyView, DLDataType, Error, Function};

type Result<T> = std::result::Result<T, TvmError>;

/// How an operator is written for vectors of this width.
type Formula = fn(&Lanes, &Value) -> Result<Value>;

const FORMULAS: &[(&str, Formula)] = &[
    ("tirx.exp", formulas::exp),
    ("tirx.exp2", formulas::exp2),
    ("tirx.log", formulas::log),
    ("tirx.log1p", formulas::log1p),
    ("tirx.erf", formulas::erf),
    ("tirx.tanh", formulas::tanh),
];

const RULE: &str = "llvm.FLowerIntrinsic";
const RULE_OF_ALL: &str = "default.FLowerIntrinsic";
const IS_OF_VECTORS: &str = "TVectorizable";

thread_local! {
    static CHOSEN: Cell<Functions> = const { Cell::new(Functions::Vector) };
}

/// Compiles with functions of this kind.
pub(super) fn with<T>(functions: Functions, compile: impl FnOnce() -> T) -> T {
    let before = CHOSEN.replace(functions);
    let result = compile();
    CHOSEN.set(before);
    result
}

/// Registers the answers, once per process.
pub(super) fn register() -> Result<()> {
    static REGISTERED: OnceLock<Result<()>> = OnceLock::new();
    REGISTERED.get_or_init(|| FORMULAS.iter().try_for_each(|(operator, formula)| answer(operator, *formula))).clone()
}

/// Of two registrations the one of the higher level counts; TVM's own have 10.
const LEVEL: i64 = 11;

fn answer(operator: &'static str, formula: Formula) -> Result<()> {
    let usual = usual(operator)?;
    let is_of_vectors = call!(names::HAS_ATTRIBUTE, call!(names::GET_OPERATOR, operator)?, IS_OF_VECTORS)?.boolean()?;
    let rule = move |arguments: &[AnyView]| {
        let failed = |error: TvmError| Error::new(tvm_ffi::RUNTIME_ERROR, &error.to_string(), "");
        let asked = arguments.first().map_or_else(Value::none, |view| Value(Any::from(*view)));
        write(&asked, formula, &usual, is_of_vectors).map(|answer| answer.0).map_err(failed)
    };
    call!(names::SET_ATTRIBUTE, operator, RULE, Value(Any::from(Function::from_packed(rule))), LEVEL)?;
    if !is_of_vectors {
        call!(names::SET_ATTRIBUTE, operator, IS_OF_VECTORS, true, LEVEL)?;
    }
    Ok(())
}

/// TVM's own answer for an operator.
fn usual(operator: &'static str) -> Result<Function> {
    let found = call!(names::GET_OPERATOR, operator)?;
    for rule in [RULE, RULE_OF_ALL] {
        let attribute = call!(names::GET_ATTRIBUTE, &found, rule)?;
        if let Ok(function) = attribute.convert("function") {
            return Ok(function);
        }
    }
    Err(TvmError::new(names::GET_ATTRIBUTE.text, format!("TVM cannot write `{operator}`")))
}

fn write(asked: &Value, formula: Formula, usual: &Function, is_of_vectors: bool) -> Result<Value> {
    let kind: DLDataType = asked.field("ty")?.field("dtype")?.convert("element type")?;
    let argument = asked.field("args")?.items()?.into_iter().next();
    let argument = argument.ok_or_else(|| TvmError::new(RULE, "a function has an argument"))?;
    let is_chosen = kind == Lanes(kind.lanes).float_type() && CHOSEN.get() == Functions::Vector;
    if is_chosen && !has_formula(&argument)? {
        return Lanes(kind.lanes).named(&argument, formula);
    }
    if kind.lanes == 1 || is_of_vectors {
        return call_function(usual, RULE, std::slice::from_ref(asked));
    }
    lanes::one_by_one(asked, kind, |one| call_function(usual, RULE, &[one]))
}

/// Whether one of these functions is in an expression. TVM's analysis puts names' values in their places again, so that of
/// two formulas one inside of the other it would see hundreds of the inner one, and of three more than it can.
fn has_formula(expression: &Value) -> Result<bool> {
    let text = call!(names::JSON_GRAPH, expression, Value::none())?.text()?;
    Ok(FORMULAS.iter().any(|(operator, _)| text.contains(&format!("\"{operator}\""))))
}

#[cfg(test)]
mod tests;
