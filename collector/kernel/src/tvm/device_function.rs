//! Helper functions in generated CUDA C, for operations that TVM cannot express; their source is added to the kernels.

use super::call::{TvmError, Value, call};
use super::expression::call_operator;
use super::names;

type Result<T> = std::result::Result<T, TvmError>;

/// Builds a call of a helper function, whose source is emitted once before all kernels.
pub(in crate::tvm) fn call_own(name: &str, source: &str, arguments: Vec<Value>) -> Result<Value> {
    let all = [vec![string_immediate(name)?], arguments, vec![string_immediate(source)?]].concat();
    call_intrinsic("tirx.cuda.func_call", all)
}

pub(in crate::tvm) fn call_intrinsic(operator: &str, arguments: Vec<Value>) -> Result<Value> {
    call_operator(operator, call!(names::PRIM_TYPE, "void")?, arguments)
}

pub(in crate::tvm) fn string_immediate(text: &str) -> Result<Value> {
    call!(names::STRING_IMMEDIATE, text, Value::none())
}
