//! CUDA without a toolkit: code is compiled on any machine, and measured on one with a GPU.
//!
//! `nvrtc`, `driver`, `cupti` and `profiler` (with its `parameters`) are the fences around NVIDIA's
//! libraries, each opened at run time, like NVML. Everything else is plain data about device code.
//! A machine without a GPU can compile code, check it against the limits of its architecture and
//! pack it; only launches need the driver.

mod compile;
mod cubin;
#[allow(unsafe_code)]
pub mod cupti;
#[allow(unsafe_code)]
pub mod driver;
mod header;
mod log;
pub mod nvml;
#[allow(unsafe_code)]
pub mod nvrtc;
#[allow(unsafe_code)]
mod parameters;
#[allow(unsafe_code)]
pub mod profiler;
pub mod runner;

pub use compile::{CompileError, compile_source};
pub use cubin::{CubinError, Image};
pub use header::{UnknownTag, write_header};
pub use runner::{Gpu, Runner};
