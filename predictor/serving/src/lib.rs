//! Time, power and memory of language models on GPUs.
//!
//! `kernel` describes the kernels that serving frameworks run (matrix products, attention, expert layers), `device` the
//! GPUs by their data sheets, and `times` is the interface between both: a kernel on a device has an estimated time with
//! an interval. Nothing here prints.

#![forbid(unsafe_code)]

pub mod architecture;
pub mod collectives;
pub mod device;
mod error;
pub mod kernel;
pub mod measured_servers;
pub mod memory;
pub mod overhead;
pub mod pass_time;
pub mod plan;
pub mod scheme;
pub mod server;
pub mod server_evaluation;
pub mod text;
pub mod times;

pub use device::GpuFacts;
pub use error::{Error, Result};
pub use kernel::{Decode, Experts, Gemm, Kernel, Prefill};
pub use scheme::{Dtype, Scheme};
pub use times::{Estimate, KernelTimes, Roofline, Source};
