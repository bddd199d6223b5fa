//! Code for GPUs as data: kernels, their launches, the limits of architectures and what is known before anything runs.

mod code;
mod count;
mod launches;
mod occupancy;
mod product;

pub use code::{Argument, Cubin, DeviceCode, Kernel, Launch, Launches, LimitExceeded, is_too_new};
pub use count::{Count, CountError};
pub use launches::{HostWork, launches};
pub use occupancy::{Limiter, Occupancy, occupancy};
pub use product::{FRAGMENT, Product, Side};
pub use targets::{
    Architecture, BLOCK_REGISTERS, BLOCK_THREADS, Multiprocessor, STATIC_SHARED_BYTES, UnknownArchitecture,
    WARP_THREADS,
};
