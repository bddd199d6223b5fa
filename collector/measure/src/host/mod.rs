//! The machine a measurement was made on: facts for the record, its noise, its peaks, and what it lacks.
//!
//! Times are comparable only between machines of one [`Facts::host_class`]; the rest of the facts says why two series
//! from one class may still differ. Everything is read from procfs and sysfs, without rights and without other
//! programs; what cannot be read is absent, never guessed.

pub mod cache_shares;
pub mod command;
#[cfg(test)]
mod example;
pub mod exclusive;
mod facts;
mod files;
mod floor;
mod load;
pub mod memory;
mod noise;
mod peaks;
#[allow(unsafe_code)]
mod streams;
mod topology;

pub use exclusive::{Exclusive, ExclusiveError};
pub use facts::{CacheLevel, Facts, cpu_flags};
pub use floor::{FLOOR_ROUNDS, FloorVisits, floor_visits};
pub use load::{Load, LoadReading};
pub use noise::Noise;
pub use peaks::{StreamRate, Streaming, StreamingError, stream_rates};
pub use topology::{Topology, allowed_cpus};
