//! Board agent: serves TVM RPC sessions to TVM's clients and this project's, without TVM or Python.
//!
//! The front process listens, registers with a tracker and greets clients. Each session runs in its own process, which
//! may crash or hang: the front process reports that and continues. `native` contains all unsafe code.

mod admission;
pub mod emulation;
pub mod fabric;
mod folder;
pub mod front;
#[allow(unsafe_code)]
mod native;
mod registration;
pub mod session;
