//! GPU code as data: kernels, launches, limits of architectures and static properties.

mod code;
mod count;
mod launches;
mod occupancy;

pub use code::{Argument, Cubin, DeviceCode, Kernel, Launch, Launches, LimitExceeded, is_too_new};
pub use count::{Count, CountError};
pub use launches::{HostWork, parse_launches};
pub use occupancy::{Limiter, Occupancy, kernel_occupancy};
pub use schedules::{FRAGMENT, OperandSide, Product};
pub use targets::{Architecture, STATIC_SHARED_BYTES, WARP_THREADS};
