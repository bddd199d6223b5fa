//! Folders of artifacts: tasks compiled on one machine and measured on another.
//!
//! A folder of artifacts holds `plan.json` and the machine code of each schedule: one object file, or one file per architecture of a
//! GPU, or OpenCL C for a Mali GPU, whose driver makes the machine code. The folder appears whole or not at all, and holds everything
//! that a runner needs, so that the measuring machine does without the compiler. An object file is machine code that is executed: run
//! only trusted folders.

mod plan;
mod read;
mod write;

pub use plan::Plan;
pub use read::Artifacts;
pub use write::{BuildCounts, build_artifacts};
