//! Lets TVM factor maxima and minima of any numbers. TVM factors only the reductions in its list of reducers, whose
//! maximum and minimum start with the lowest and the highest finite number.

use super::call::{TvmError, Value, call};
use super::expression::{Expression, Reduction};
use super::names;
use models::DType;
use std::sync::OnceLock;
use tvm_ffi::{Any, AnyView, DLDataType, Error, Function};

type Result<T> = std::result::Result<T, TvmError>;

/// Adds the maximum and the minimum of any numbers to TVM's list of reducers, once.
pub fn register_reducers() -> Result<()> {
    static REGISTERED: OnceLock<Result<()>> = OnceLock::new();
    REGISTERED
        .get_or_init(|| {
            let register = |how, start| call!(names::REGISTER_REDUCER, 1i64, combiner(how), identity(start)).map(drop);
            register(Reduction::Supremum, f64::NEG_INFINITY)?;
            register(Reduction::Infimum, f64::INFINITY)
        })
        .clone()
}

/// Returns a function of two lists of one operand each.
fn combiner(how: Reduction) -> Value {
    callback(move |arguments| {
        let [left, right] = [first_of(arguments, 0)?, first_of(arguments, 1)?].map(Expression);
        Ok(vec![how.combine(&left, &right)?.0].into())
    })
}

/// Returns a function from a list with the start of a reduction to that of this reducer in the same type.
fn identity(start: f64) -> Value {
    callback(move |arguments| {
        let kind: DLDataType = first_of(arguments, 0)?.field("ty")?.field("dtype")?.convert_to("element type")?;
        let is_float = [DType::F32, DType::BF16].iter().any(|float| float.dlpack_code().0 == kind.code);
        let kind = Value(Any::from(kind));
        // Integers have no infinity. With zero, the reducer fits only reductions that TVM knows.
        let number = match is_float {
            true => call!(names::FLOAT_IMMEDIATE, kind, start, Value::none()),
            false => call!(names::INT_IMMEDIATE, kind, 0i64, Value::none()),
        };
        Ok(vec![number?].into())
    })
}

fn first_of(arguments: &[AnyView], place: usize) -> Result<Value> {
    let list = arguments.get(place).map_or_else(Value::none, |view| Value(Any::from(*view)));
    list.items()?.into_iter().next().ok_or_else(|| TvmError::new("reducer", "an empty list of operands"))
}

fn callback(answer: impl Fn(&[AnyView]) -> Result<Value> + Send + Sync + 'static) -> Value {
    Value(Any::from(Function::from_packed(move |arguments: &[AnyView]| {
        answer(arguments)
            .map(|answer| answer.0)
            .map_err(|error| Error::new(tvm_ffi::RUNTIME_ERROR, &error.to_string(), ""))
    })))
}
