//! collector
#[allow(unsafe_code)]
pub mod tvm;
