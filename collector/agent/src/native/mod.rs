//! All unsafe code of the agent: tensor memory, loaded libraries and calls of their functions, threads of parallel
//! kernels, registers of a board, and socket options.

mod devmem;
mod exports;
mod kernel;
mod memory;
mod pool;
mod socket;
mod workspace;

pub use devmem::Devmem;
pub use kernel::{Arguments, Library, LibraryKernel};
pub use memory::Memory;
pub use pool::{has_cpus, pool_threads, use_cpus};
pub use socket::detect_dead_peer;

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NativeError(pub String);

impl NativeError {
    fn new(error: impl std::fmt::Display) -> NativeError {
        NativeError(error.to_string())
    }
}
