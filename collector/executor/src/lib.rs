//! Whole-model programs: `program` lowers a partitioned graph, with the operand layouts of each task's code, to a list
//! of calls on placed tensors, `memory` plans the placement, `folder` defines the on-disk format, and `sealed` protects
//! the documents that describe folders.

#![forbid(unsafe_code)]

pub mod folder;
pub mod memory;
pub mod program;
pub mod sealed;

pub use folder::{Content, FolderError};
pub use program::{
    Call, CallArgument, Place, Program, ProgramError, ProgramPort, Writing, lower_sequential, lower_staged,
};
