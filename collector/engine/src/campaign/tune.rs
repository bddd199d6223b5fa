//! Settings of a search for fast schedules.

#[cfg(feature = "clap")]
use crate::flags::choice_parser;
use job::space::{Filter, VERSION};
use models::Choice;
use search::TunerName;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use targets::Kind;

/// Settings of a search for schedules, which replaces a sweep over samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tune {
    /// The tuner that proposes schedules.
    pub tuner: TunerName,
    /// Number of trials of each model, over all tasks, thread counts and cache states.
    pub trials: usize,
    /// Largest number of trials per task and number of threads; None sets no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trials_per_task: Option<usize>,
    /// Number of trials without improvement after which the search of a task stops; 0 disables this limit.
    pub patience: usize,
    /// Restriction of the schedule axes to given values.
    #[serde(skip_serializing_if = "Filter::is_empty")]
    pub only: Filter,
    /// Whether the fastest schedules are afterwards timed in the network, compared with the default schedules.
    pub in_place: bool,
    /// Version of the searched schedule spaces; this program supports one version.
    pub spaces: u32,
}

/// The table `[tune]` of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default, deny_unknown_fields)]
pub struct TuneSettings {
    /// Tuner that proposes schedules [default: draft]
    #[cfg_attr(feature = "clap", arg(long, value_parser = choice_parser::<TunerName>(), value_name = "TUNER"))]
    pub tuner: Option<TunerName>,
    /// Number of trials per model, over all tasks and thread counts [default: 3000]
    ///
    /// Trials go to the tasks with the largest expected gain; several models share the sum. Trials of the same search
    /// that are in the store count; records of other campaigns are reused without using up trials.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub trials: Option<usize>,
    /// Maximum number of trials per task and thread count
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub trials_per_task: Option<usize>,
    /// Stop a task after N trials without improvement; 0 for never [default: 100]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub patience: Option<usize>,
    // The flag is a list of texts, one for each axis.
    /// Restriction of schedule axes to given settings.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub only: Option<Filter>,
    /// Whether the fastest schedules are then timed in the network, in comparison with the default.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub in_place: Option<bool>,
    /// Version of the searched schedule spaces; this program supports one version.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub spaces: Option<u32>,
}

impl TuneSettings {
    /// Returns these settings, given by flags, with missing settings taken from the configuration file.
    pub fn with_fallback(self, file: TuneSettings) -> TuneSettings {
        TuneSettings {
            tuner: self.tuner.or(file.tuner),
            trials: self.trials.or(file.trials),
            trials_per_task: self.trials_per_task.or(file.trials_per_task),
            patience: self.patience.or(file.patience),
            only: self.only.or(file.only),
            in_place: self.in_place.or(file.in_place),
            spaces: self.spaces.or(file.spaces),
        }
    }

    /// Returns a search in which defaults replace missing settings.
    pub fn resolve(self) -> Tune {
        let default = Tune::default();
        Tune {
            tuner: self.tuner.unwrap_or(default.tuner),
            trials: self.trials.unwrap_or(default.trials),
            trials_per_task: self.trials_per_task,
            patience: self.patience.unwrap_or(default.patience),
            only: self.only.unwrap_or_default(),
            in_place: self.in_place.unwrap_or(default.in_place),
            spaces: self.spaces.unwrap_or(default.spaces),
        }
    }
}

impl Default for Tune {
    fn default() -> Tune {
        Tune {
            tuner: TunerName::Draft,
            trials: 3000,
            trials_per_task: None,
            patience: 100,
            only: Filter::default(),
            in_place: true,
            spaces: VERSION,
        }
    }
}

const TRIALS: RangeInclusive<usize> = 1..=1_000_000;
const TRIALS_ALLOWED: &str = "allowed are 1 to 1000000";

/// A setting that is not supported: its name, its value, and the allowed values.
pub type Refusal = (&'static str, String, String);

impl Tune {
    /// Returns a setting that the target does not support, if any. `is_for_sizes`: several sizes share a build.
    pub fn unsupported_setting(&self, target: Kind, is_for_sizes: bool) -> Option<Refusal> {
        let per_task = self.trials_per_task.unwrap_or(self.trials);
        let counts = [
            ("trials", self.trials, TRIALS, TRIALS_ALLOWED),
            ("trials_per_task", per_task, TRIALS, TRIALS_ALLOWED),
            ("patience", self.patience, 0..=*TRIALS.end(), "allowed are 0 to 1000000"),
        ];
        let wrong = counts.into_iter().find(|(_, count, allowed, _)| !allowed.contains(count));
        if let Some((field, count, _, allowed)) = wrong {
            return Some((field, count.to_string(), allowed.to_owned()));
        }
        if self.spaces != VERSION {
            return Some((
                "spaces",
                self.spaces.to_string(),
                format!("this program has version {VERSION} of the schedule spaces"),
            ));
        }
        if self.tuner.samples_tvm_space() && !self.only.is_empty() {
            let axes: Vec<&str> = self.only.0.keys().map(String::as_str).collect();
            let why = "TVM's own space has no such axes: remove the setting, or choose another tuner";
            return Some(("only", axes.join(", "), why.to_owned()));
        }
        let sizes = "a search needs static sizes: remove the executor `vm`";
        let why = self.tuner.why_unsupported(target).or_else(|| is_for_sizes.then(|| sizes.to_owned()))?;
        Some(("tuner", self.tuner.name().to_owned(), why))
    }
}
