//! What devices recorded of their own runs: captures of TPUs, and the traces that are asked in SQL.

pub mod tpu;
pub mod trace;
