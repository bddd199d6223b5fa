//! Compiles a task with a schedule to code by means of TVM, and runs the code.

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
