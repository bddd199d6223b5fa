//! Where the time of a model goes: what was seen of its operators, whoever saw it.
//!
//! `data` is the one shape of a profile: our own runs are measured into it, traces made elsewhere are read into it, and every
//! table, file and comparison is made of it.

#![forbid(unsafe_code)]

pub mod data;

pub use data::Profile;
