//! Predicts the times of operators, schedules and models, with intervals.
//!
//! `evaluate` measures errors under held-out protocols, `queries`, `answers` and `serve` predict, and `planning` uses
//! predicted times. Data is split by group, never by row. This crate does not print or depend on TVM.

pub mod answers;
pub mod bundle;
pub mod correlate;
pub mod devices;
mod error;
pub mod evaluate;
pub mod exchange;
pub mod explain;
pub mod in_place;
pub mod kernels;
pub mod knee;
pub mod origin;
pub mod pages;
pub mod planning;
pub mod probe;
pub mod published;
pub mod queries;
mod schedule_list;
pub mod serve;
pub mod servers;
pub mod this_host;

pub use error::{Error, Result};
