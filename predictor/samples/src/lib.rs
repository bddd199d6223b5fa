//! What is learned from: files become samples with groups, bounds and features.
//!
//! Data flows one way: `records` reads datasets of our own and `table` those of others through a mapping; both fill the
//! `samples`, whose numbers the one table of `features` names. Nothing here knows of learners, so that those are changed
//! without reading files anew.

mod error;
pub mod features;
pub mod placed;
pub mod provenance;
pub mod records;
mod samples;
pub mod schedules;
pub mod stand_in;
pub mod statistics;
pub mod table;
pub mod text;

pub use error::{Error, Result};
pub use samples::{FilterHints, Network, RawSample, Sample, Samples, SamplesBuilder, Timing, shape_hash};
