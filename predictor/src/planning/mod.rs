//! Questions to the planners in words: a neural network, devices or a few operators in, with times of records or of a predictor.
//!
//! `coruns` says what operators lost beside each other, `times` finds what each operator takes on each number of cores, and
//! `known_times` combines both with a predictor. `network` plans a whole model and writes the plan of stages that an executor runs,
//! `interference` says how far off that is for held-out operators, `cotuning` chooses schedules of operators that run together, `placing` puts operators on devices, `tables` reads times that somebody
//! else has.

pub mod coruns;
pub mod cotuning;
pub mod demand;
pub mod interference;
mod known_times;
pub mod network;
pub mod placing;
pub mod tables;
pub mod times;
mod versions;

pub use known_times::KnownTimes;
pub use network::{Planned, plan};
pub use times::{Host, RecordChoice, Time, Times};
