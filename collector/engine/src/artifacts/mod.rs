//! Folders of artifacts: tasks that are compiled on one machine and measured on another.
//!
//! A folder holds `plan.json` and the code of each schedule: one object file, one file per GPU architecture, or OpenCL
//! C that the driver of a Mali GPU compiles. The folder appears atomically and is complete, so the measuring machine
//! needs no compiler. An object file is machine code that is executed: run only trusted folders.

#[cfg(test)]
#[path = "../../../../tests/memory.rs"]
mod memory;
mod plan;
mod read;
mod write;

pub use plan::Plan;
pub use read::Artifacts;
pub use write::{BuildCounts, build_artifacts};
