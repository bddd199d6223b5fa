//! From a task and a schedule to code through TVM, and the runner of what came out.

pub mod apply;
pub mod builder;
pub mod code;
pub mod lower;
mod measuring;
pub mod network;
pub mod runner;
#[allow(unsafe_code)]
pub mod tvm;
