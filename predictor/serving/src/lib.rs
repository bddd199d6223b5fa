//! Time, power and memory of language models on GPUs.
//!
//! `kernel` describes the kernels that serving frameworks run, `device` the GPUs by their data sheets, and `times` is
//! the interface between both. Nothing here prints.

#![forbid(unsafe_code)]

pub mod adaptation;
pub mod architecture;
pub mod calibration;
pub mod collectives;
mod corrected;
pub mod device;
mod error;
pub mod evaluate;
pub mod features;
pub mod group;
pub mod held_out;
pub mod kernel;
pub mod learned;
pub mod mapping;
pub mod measured_servers;
pub mod measurements;
pub mod memory;
mod model_config;
mod outside;
pub mod overhead;
mod packed;
pub mod pass_time;
pub mod plan;
mod routing;
pub mod scheme;
pub mod server;
pub mod server_evaluation;
pub mod store;
pub mod text;
pub mod times;
pub mod train;
pub mod transfer;
pub mod warnings;

pub use device::GpuFacts;
pub use error::{Error, Result};
pub use kernel::{Decode, Experts, Gemm, Kernel, Prefill};
pub use learned::Learned;
pub use mapping::Mapping;
pub use measurements::Measurements;
pub use packed::describe_unpack_error;
pub use scheme::{Dtype, Scheme};
pub use times::{Estimate, KernelTimes, Roofline, Source};
