//! CUDA without a toolkit: compile anywhere, measure where a GPU is.
//!
//! `nvrtc`, `driver`, `cupti` and `profiler` (with its `parameters`) are the fences around NVIDIA's libraries, each opened at
//! run time as NVML is; everything else here is plain data about device code. A machine without a GPU can compile for one, check the result against the limits of
//! its architecture and pack it; only the launch needs the driver.

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

pub use compile::{CompileError, compile};
pub use cubin::{CubinError, Image};
pub use header::{UnknownTag, header};
pub use runner::{Gpu, Runner};
