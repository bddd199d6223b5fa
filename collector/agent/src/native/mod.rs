//! **Fence**: memory that kernels work on, libraries that are loaded, the functions that these call, and the threads that
//! they start, a board's registers, and options of sockets. Everything unsafe of the agent is here.

mod devmem;
mod exports;
mod kernel;
mod memory;
mod pool;
mod socket;
mod workspace;

pub use devmem::Devmem;
pub use kernel::{Arguments, Kernel, Library};
pub use memory::Memory;
pub use pool::{has_cpus, pool_threads, use_cpus};
pub use socket::detect_dead_peer;

/// Why something native was not done.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NativeError(pub String);

impl NativeError {
    fn new(error: impl std::fmt::Display) -> NativeError {
        NativeError(error.to_string())
    }
}
