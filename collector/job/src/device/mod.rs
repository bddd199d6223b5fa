//! Code for GPUs as data: kernels, their launches, the limits of architectures and what is known before anything runs.

mod code;
mod count;
mod launches;
mod occupancy;

pub use code::{Argument, Cubin, DeviceCode, Kernel, Launch, Launches, LimitExceeded, is_too_new};
pub use count::{Count, CountError};
pub use launches::{HostWork, launches};
pub use occupancy::{Limiter, Occupancy, occupancy};
pub use schedules::{FRAGMENT, Product, Side};
pub use targets::{Architecture, STATIC_SHARED_BYTES, WARP_THREADS};
