//! Execution of whole models in other runtimes: the same file and inputs, measured like this project's own code. The
//! libraries come from pinned wheels, are loaded at run time and are optional. Unsafe code is in `onnxruntime` and
//! `openvino` (calls), `ports` (memory) and `handles`. All optimisations of the libraries may be used.

mod error;
#[allow(unsafe_code)]
mod handles;
mod library;
#[allow(unsafe_code)]
pub mod onnxruntime;
#[allow(unsafe_code)]
pub mod openvino;
#[allow(unsafe_code)]
mod ports;
mod runner;
mod runtime;

pub use error::RuntimeError;
pub use runner::Runner;
pub use runtime::{Runtime, RuntimeDescription};

pub const MODEL: &str = "model.onnx";
