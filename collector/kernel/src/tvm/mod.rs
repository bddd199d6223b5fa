//! The fence around TVM: the only folder that names `tvm_ffi` and touches native memory. Outside, there are no raw
//! pointers, handles or dtype codes. A runner loads only TVM's runtime library, a builder also its compiler library,
//! and the orchestrator neither.

mod aligned_stack;
mod async_copy;
pub mod call;
pub mod compile;
pub mod device;
mod device_function;
pub mod dots;
pub mod evolution;
pub mod expression;
pub mod features;
mod functions;
mod guard;
pub mod kernel;
pub mod launch;
pub mod library;
pub mod memory;
mod memory_file;
pub mod meta_schedule;
pub mod names;
pub mod network;
pub mod object;
mod opencl;
pub mod pool;
pub mod reducers;
pub mod schedule;
mod stack;
pub mod stack_offset;
pub mod staged;
mod team;
pub mod tensor_core;
mod tf32;
pub mod thread_counts;
pub mod trace;
pub mod workspace;

pub use call::{TvmError, Value};
pub use library::{LibraryError, Versions};
