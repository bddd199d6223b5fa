//! tests

pub mod conformance;
pub mod onnx;
pub mod through_tvm;
