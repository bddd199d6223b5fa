//! Training data: converts files to samples with groups, roofline bounds and features.
//!
//! `records` reads our own datasets, and `table` reads foreign tables through a mapping. Both fill `samples`;
//! `features` declares all features in one table. This crate does not depend on learners.

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
pub use samples::{
    FilterHints, MOST_POSSIBLE, Network, RawSample, Sample, Samples, SamplesBuilder, Timing, shape_hash,
};
