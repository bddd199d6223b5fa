//! From a model name to records: lowering, schedules, workers, measuring, campaigns and the command line.

pub mod campaign;
pub mod cli;
pub mod code;
#[allow(unsafe_code)]
pub mod counters;
pub mod cuda;
pub mod host;
pub mod job;
pub mod lower;
pub mod measure;
pub mod report;
pub mod space;
pub mod target;
pub mod tpu;
pub mod trace;
#[allow(unsafe_code)]
pub mod tvm;
pub mod worker;
