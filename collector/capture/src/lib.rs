//! What devices and programs recorded of their own runs: captures of TPUs, traces as streams of events, and traces that are
//! asked in SQL.

pub mod events;
pub mod times;
pub mod tpu;
pub mod trace;
pub mod writer;
