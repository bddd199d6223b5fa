//! Recordings of devices and programs: TPU captures, event streams of traces, and SQL queries on traces.

mod compressed;
pub mod events;
pub mod times;
pub mod tpu;
pub mod trace;
pub mod writer;
