//! Execution of whole models in other runtimes: the same file and inputs, measured like this project's own code.
//!
//! The libraries come from pinned wheels, are loaded at run time and are optional. `onnxruntime` and `openvino` are
//! the fences around their C interfaces; `ports` and `handles` are the fences around shared memory and handles;
//! `runner` processes jobs with either. The runtimes may use all their optimisations: graph rewrites, spinning
//! threads, one thread per CPU of the job.

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
