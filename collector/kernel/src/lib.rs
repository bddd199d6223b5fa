//! From a task and a schedule to code through TVM, and the runner of what came out.

pub mod apply;
pub mod breeder;
pub mod builder;
pub mod code;
pub mod lower;
mod measuring;
pub mod network;
mod perf_map;
pub mod runner;
mod sampling;
pub mod together;
#[allow(unsafe_code)]
pub mod tvm;
