//! ONNX Runtime as a partner for whole models: the same model, the same inputs, timed as our own code is.
//!
//! The library is of the wheels for tests, opened at run time and never needed: `session` is the fence around its C
//! interface, `runner` does jobs with it. It may do all it can: every optimisation of graphs, threads that poll, one on
//! each CPU of the job.

mod runner;
#[allow(unsafe_code)]
pub mod session;

pub use runner::Runner;
pub use session::{Runtime, RuntimeError};

/// The file in a job's folder that is run.
pub const MODEL: &str = "model.onnx";

/// What to do where the library cannot be used.
pub const SETUP_HINT: &str = "run `scripts/setup --test`, which installs ONNX Runtime among the wheels for tests";
