//! The board agent: serves sessions of TVM's RPC, without TVM or Python, to TVM's clients and ours.
//!
//! The front process listens, registers with a tracker and greets clients (`admission`); every session runs in a process of its
//! own, which may crash or hang: the front sees it end, says so to the client and is there for the next one. What a session can
//! do is in `session`: kernel libraries on this machine's CPU, and measuring them as the local runner does. `fabric` is the core
//! on a board's fabric, or one that is not there. `native` is the fence around what is loaded and mapped.

mod admission;
pub mod emulation;
pub mod fabric;
mod folder;
pub mod front;
#[allow(unsafe_code)]
mod native;
mod registration;
pub mod session;
