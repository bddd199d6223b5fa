//! Other runtimes beside our own code: whole models, the same file, the same inputs, timed as our own code is.
//!
//! Their libraries are of pinned wheels, opened at run time and never needed. `onnxruntime` and `openvino` are the fences
//! around their C interfaces and `ports` and `given` those around the memory both compute in and around what they give; `runner` does jobs with either. They may do
//! all they can: every rewrite of graphs, threads that poll, one on each CPU of the job.

mod error;
#[allow(unsafe_code)]
mod given;
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
pub use runtime::{Described, Runtime};

/// The file in a job's folder that is run.
pub const MODEL: &str = "model.onnx";
