//! Answers how fast an operator, a schedule or a model will be, and says how sure it is.
//!
//! What is learned from lies in the crate `samples`, how that is learned in `learn`; here is what is done with both:
//! `evaluate` says under which protocol a learner is worth anything, `bundle` keeps a predictor in a file, `queries`, `answers`
//! and `serve` ask it, `origin` says whether it learned from code that is still made, the others look into it. Splits are by group,
//! never by row. This crate does not print; its command line is `predictor/cli`. May use `datasets` and `models`, and of `job` the revisions of code; never TVM.

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
pub mod this_host;

pub use error::{Error, Result};
