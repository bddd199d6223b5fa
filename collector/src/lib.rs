//! Collects operator times: compiles tasks, runs them in processes that may fail, and measures what happened.

pub mod counters;
pub mod host;
pub mod measure;
pub mod worker;
