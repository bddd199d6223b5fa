//! The loop: models → tasks → attempts → records.
//!
//! Every attempt ends in a record, whatever happened to it. Builds run on all builders at once; runs happen one at a
//! time and never beside a build, because a build on the other core was measured to disturb them (see
//! ARCHITECTURE.md). So the two alternate in batches. Nothing here prints or opens files: records go to a sink, news
//! to a listener.

pub mod attempt;
pub mod collect;
pub mod config;
pub mod workers;

pub use attempt::{Attempt, PlannedTask, attempts, planned_tasks};
pub use collect::{Artifacts, BuildNow, Campaign, Event, Outcomes, collect};
pub use config::{Config, ConfigError, ModelRequest, RawConfig};
pub use workers::{WorkerLimits, Workers};
