//! Whole models: in which order their calls run, where every tensor lies, and the folder that holds all of it.
//!
//! Everything here is plain data made before a model runs. `program` turns a graph that was cut into calls, and how each
//! task's code wants its operands stored, into a list of calls on places; `memory` finds the places; `folder` writes and
//! reads what a runner needs. Whoever runs a program does nothing but the calls.

#![forbid(unsafe_code)]

pub mod folder;
pub mod memory;
pub mod program;

pub use folder::{Content, FolderError};
pub use program::{Argument, Call, Place, Port, Program, ProgramError, Writing, program, staged};
