//! Learns from a dataset how fast an operator, a schedule or a model will be, and says how sure it is.
//!
//! Data flows one way: a file becomes `samples` (through `datasets` or a mapping of a foreign table), samples become a
//! matrix of `features`, learners fit it, and `evaluate` says under which protocol that is worth anything. Splits are by
//! group, never by row. May use `datasets` and `models`, never TVM. `xgboost.rs` is the crate's one fence.

pub mod adaptation;
pub mod bundle;
pub mod cli;
pub mod correlate;
pub mod error;
pub mod evaluate;
pub mod exchange;
pub mod explain;
pub mod features;
pub mod knee;
pub mod learn;
pub mod pages;
pub mod probe;
pub mod queries;
pub mod records;
pub mod samples;
pub mod serve;
pub mod split;
mod statistics;
pub mod table;
pub mod train;
mod xgboost;

pub use error::{Error, Result};
