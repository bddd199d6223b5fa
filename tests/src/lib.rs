//! tests

pub mod conformance;
pub mod onnx;
