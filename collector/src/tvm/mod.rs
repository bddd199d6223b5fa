//! The fence around TVM: the only folder that names the binding and touches native memory.

pub mod memory;
pub mod object;
