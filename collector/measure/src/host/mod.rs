//! The host of a measurement. Times are comparable only within one [`Facts::host_class`]. All data comes from procfs
//! and sysfs without privileges; unreadable facts are absent, never guessed.

pub mod cache_shares;
pub mod command;
#[cfg(test)]
mod example;
pub mod exclusive;
mod facts;
pub mod file_size;
mod files;
mod floor;
mod load;
pub mod memory;
mod noise;
pub mod parent;
mod peaks;
mod streams;
mod topology;

pub use exclusive::{Exclusive, ExclusiveError};
pub use facts::{CacheLevel, Facts, cpu_flags};
pub use floor::{FLOOR_ROUNDS, FloorVisits, floor_visits};
pub use load::{Load, LoadReading};
pub use noise::Noise;
pub use peaks::{StreamRate, Streaming, StreamingError, stream_rates};
pub use topology::{OF_THIS_PROCESS, Topology, allowed_cpus};
