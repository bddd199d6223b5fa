//! Whole-model programs: the order of calls, the memory layout of tensors and the folder format.
//!
//! All data is prepared before a model runs. `program` lowers a partitioned graph, with the operand layouts of each
//! task's code, to a list of calls on placed tensors. `memory` plans the placement, and `folder` defines the on-disk
//! format. A runner only executes the calls.

#![forbid(unsafe_code)]

pub mod folder;
pub mod memory;
pub mod program;

pub use folder::{Content, FolderError};
pub use program::{
    Call, CallArgument, Place, Program, ProgramError, ProgramPort, Writing, lower_sequential, lower_staged,
};
