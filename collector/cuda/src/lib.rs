//! CUDA without a toolkit: code is compiled and checked on any machine, and measured on one with a GPU. `nvrtc`,
//! `driver`, `cupti`, `profiler` and `nvml` open NVIDIA's libraries at run time.

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
