//! Questions to the planners in words: a neural network, devices or a few operators in, with times of records or of a predictor.
//!
//! `coruns` says what operators lost beside each other, `times` finds what each operator takes on each number of cores, `network` plans a whole model and writes the plan of stages that
//! an executor runs, `tables` reads times that somebody else has.

pub mod coruns;
pub mod demand;
pub mod network;
pub mod tables;
pub mod times;
mod versions;

pub use network::{Planned, plan};
pub use times::{Host, RecordChoice, Time, Times};
