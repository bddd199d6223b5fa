//! Functions of our own in generated CUDA C: what TVM has no words for is a call of one, which comes with its text.

use super::call::{TvmError, Value, call};
use super::names;

type Result<T> = std::result::Result<T, TvmError>;

/// The call of a function of our own. Generated code has its text once, in front of all kernels.
pub(in crate::tvm) fn called(name: &str, source: &str, arguments: Vec<Value>) -> Result<Value> {
    let all = [vec![text(name)?], arguments, vec![text(source)?]].concat();
    intrinsic("tirx.cuda.func_call", all)
}

/// The call of one of TVM's operators, for what it does.
pub(in crate::tvm) fn intrinsic(operator: &str, arguments: Vec<Value>) -> Result<Value> {
    let nothing = call!(names::PRIM_TYPE, "void")?;
    let operator = call!(names::GET_OPERATOR, operator)?;
    call!(names::CALL_OPERATOR, nothing, operator, arguments, Value::none(), Vec::new(), Value::none())
}

pub(in crate::tvm) fn text(text: &str) -> Result<Value> {
    call!(names::STRING_IMMEDIATE, text, Value::none())
}
