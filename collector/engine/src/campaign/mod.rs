//! Campaigns: from models to tasks, attempts and records. A source proposes attempts, a bench decides when they are
//! built and run, and every attempt ends in a record. Nothing here prints or opens files: records go to a sink, and
//! events to a listener.

pub mod attempt;
pub mod choices;
pub mod collect;
pub mod conditions;
pub mod config;
pub mod corun;
mod corun_settings;
pub mod finals;
pub mod graphs;
pub mod jobs;
pub mod module;
pub mod night;
pub mod planned;
pub mod record;
pub mod recorded_attempt;
pub mod settings;
mod share;
mod sizes;
mod source;
mod tune;
mod tuning;
mod variations;

pub use attempt::{plan_attempts, planned_modules, planned_tasks};
pub use collect::{Campaign, CampaignEvent, Outcomes, collect_attempts};
pub use conditions::CurrentConditions;
pub use config::{Config, ConfigError, ModelRequest};
pub use corun_settings::CoRun;
pub use finals::{CLEAR_DIFFERENCE, Finals, FoundBest, Verdict};
pub use module::PlannedModule;
pub use night::Night;
pub use planned::{Attempt, Bases, Code, PlannedTask};
pub use recorded_attempt::{RecordedAttempt, RepeatError};
pub use settings::{ModelEntry, Settings};
pub use share::Share;
pub use source::{Source, Sweep};
pub use tune::{Tune, TuneSettings};
pub(crate) use tuning::ranking_time;
pub use tuning::{Lessons, Search, SearchInputs, Stop, Trial, Tuning, TuningError};
