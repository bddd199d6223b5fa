//! Prepares inputs of the planners: converts networks, devices or operators, with times of records or of a predictor.
//!
//! `coruns` reads slowdowns of concurrent operators, `times` finds the time of each operator on each number of cores,
//! `network` plans a whole model, `cotuning` chooses schedules, and `placing` assigns operators to devices.

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
pub use network::{NetworkPlan, plan};
pub use times::{Host, RecordChoice, Time, Times};
