//! Collects operator times: compiles tasks, runs them in processes that may fail, and measures what happened.

pub mod worker;
