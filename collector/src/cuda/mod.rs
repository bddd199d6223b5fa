//! CUDA without a toolkit: compile anywhere, measure where a GPU is.
//!
//! `nvrtc`, `driver`, `cupti` and `profiler` (with its `parameters`) are the fences around NVIDIA's libraries, each opened at
//! run time as NVML is; everything else here is plain data about device code. A machine without a GPU can compile for one, check the result against the limits of
//! its architecture and pack it; only the launch needs the driver.

mod architecture;
mod code;
mod compile;
mod count;
mod cubin;
#[allow(unsafe_code)]
pub mod cupti;
#[allow(unsafe_code)]
pub mod driver;
mod header;
mod launches;
mod log;
pub mod nvml;
#[allow(unsafe_code)]
pub mod nvrtc;
mod occupancy;
#[allow(unsafe_code)]
mod parameters;
mod product;
#[allow(unsafe_code)]
pub mod profiler;

pub use architecture::{
    Architecture, BLOCK_REGISTERS, BLOCK_THREADS, Multiprocessor, STATIC_SHARED_BYTES, UnknownArchitecture,
    WARP_THREADS,
};
pub use code::{Argument, Cubin, DeviceCode, Kernel, Launch, LimitExceeded, is_too_new};
pub use compile::{CompileError, compile};
pub use count::{Count, CountError};
pub use cubin::{CubinError, Image};
pub use header::{UnknownTag, header};
pub use launches::{HostWork, Launches, launches};
pub use occupancy::{Limiter, Occupancy, occupancy};
pub use product::{FRAGMENT, Product, Side};
