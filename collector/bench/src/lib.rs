//! Where code is built and run: the workers of this machine.

pub mod builders;
pub mod workers;

pub use builders::{Build, Builders};
pub use workers::{WorkerLimits, Workers, library_program, worker_program};
