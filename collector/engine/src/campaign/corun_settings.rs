//! Settings of co-runs: which operators run concurrently, on which cores, and how they are measured.

use super::config::distinct;
use measure::Together;
use measure::synthetic::Synthetic;
use models::Parallel;
use serde::{Deserialize, Serialize};

/// The table `[corun]` of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CoRun {
    /// Numbers of concurrent members: 2 for pairs, 3 for triples.
    pub sizes: Vec<usize>,
    /// Largest number of operators; they are sampled at random from all operators of the models.
    pub operators: usize,
    /// Largest number of combinations of each size, sampled at random.
    pub combinations: usize,
    /// Number of measurements of each combination; a pass measures every combination once, which spreads disturbances.
    pub passes: usize,
    /// Number of threads of each member.
    pub threads: usize,
    /// Synthetic partners: `arithmetic`, `bandwidth`, `cache=4MiB`.
    pub partners: Vec<String>,
    /// Assignment of cores: `stream` gives each member its own cores, `full` gives each all cores.
    pub parallel: Vec<Parallel>,
    /// Share of the last-level cache reserved for each member, on machines that can partition it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_share: Option<f64>,
    /// Measurement plan: how each combination is timed.
    pub measure: Together,
}

impl Default for CoRun {
    fn default() -> CoRun {
        CoRun {
            sizes: vec![2],
            operators: 24,
            combinations: 400,
            passes: 3,
            threads: 1,
            partners: vec!["arithmetic".to_owned(), "bandwidth".to_owned(), "cache=4MiB".to_owned()],
            parallel: vec![Parallel::Stream],
            cache_share: None,
            measure: Together::default(),
        }
    }
}

impl CoRun {
    const MAX_SIZE: usize = 8;
    const MAX_OPERATORS: usize = 128;
    const MAX_COMBINATIONS: usize = 100_000;
    const MAX_PASSES: usize = 100;

    /// Validates the settings. An error contains the setting's name, its value, and the allowed values.
    pub fn check(&self, cores: usize) -> Result<(), (&'static str, String, String)> {
        let refuse = |field: &'static str, found: String, allowed: String| Err((field, found, allowed));
        if let Some(size) = self.sizes.iter().find(|size| !(2..=Self::MAX_SIZE).contains(*size)) {
            return refuse("corun.sizes", size.to_string(), format!("allowed are 2 to {}", Self::MAX_SIZE));
        }
        if self.sizes.is_empty() && self.partners.is_empty() {
            return refuse("corun.sizes", "empty".to_owned(), "give 2 for pairs, or `partners`".to_owned());
        }
        if !(1..=Self::MAX_OPERATORS).contains(&self.operators) {
            let allowed = format!("allowed are 1 to {}", Self::MAX_OPERATORS);
            return refuse("corun.operators", self.operators.to_string(), allowed);
        }
        if !(1..=Self::MAX_COMBINATIONS).contains(&self.combinations) {
            let allowed = format!("allowed are 1 to {}", Self::MAX_COMBINATIONS);
            return refuse("corun.combinations", self.combinations.to_string(), allowed);
        }
        if !(1..=Self::MAX_PASSES).contains(&self.passes) {
            let allowed = format!("allowed are 1 to {}", Self::MAX_PASSES);
            return refuse("corun.passes", self.passes.to_string(), allowed);
        }
        if !(1..=cores).contains(&self.threads) {
            return refuse(
                "corun.threads",
                self.threads.to_string(),
                format!("allowed are 1 to {cores} on {}", measure::host::OF_THIS_PROCESS),
            );
        }
        if let Some(text) = self.partners.iter().find(|text| Synthetic::parse_workload(text).is_none()) {
            let allowed =
                "allowed are `arithmetic`, `bandwidth` and `cache=4MiB` with any size up to 1024MiB".to_owned();
            return refuse("corun.partners", format!("`{text}`"), allowed);
        }
        let is_refused = |parallel: &Parallel| *parallel == Parallel::Sequential;
        if self.parallel.is_empty() || self.parallel.iter().any(is_refused) {
            let allowed = "allowed are `stream` and `full`; `sequential` runs nothing concurrently".to_owned();
            return refuse("corun.parallel", "an empty list or `sequential`".to_owned(), allowed);
        }
        let least = if self.partners.is_empty() { self.sizes.iter().min().copied().unwrap_or(2) } else { 2 };
        if self.parallel == [Parallel::Stream] && least * self.threads > cores {
            let allowed = format!(
                "{least} members need {} cores of their own, but only {cores} are available; give fewer, or \
                 `parallel = [\"full\"]`",
                least * self.threads
            );
            return refuse("corun.threads", self.threads.to_string(), allowed);
        }
        if let Some(share) = self.cache_share.filter(|share| !(*share > 0.0 && *share <= 0.5)) {
            let allowed = "it must be above 0 and at most 0.5, because each member gets a share".to_owned();
            return refuse("corun.cache_share", share.to_string(), allowed);
        }
        self.measure.check_settings().map_err(|(field, found, allowed)| {
            (
                match field {
                    "rounds" => "corun.measure.rounds",
                    "phase_ns" => "corun.measure.phase_ns",
                    "samples_min" => "corun.measure.samples_min",
                    "sample_ns" => "corun.measure.sample_ns",
                    "time_limit_ns" => "corun.measure.time_limit_ns",
                    _ => "corun.measure.samples_kept_max",
                },
                found,
                allowed.to_owned(),
            )
        })
    }

    /// Keeps the first of equal elements in every list, because each combination is planned once.
    pub fn without_duplicates(self) -> CoRun {
        CoRun {
            sizes: distinct(self.sizes),
            partners: distinct(self.partners),
            parallel: distinct(self.parallel),
            ..self
        }
    }

    /// Returns the synthetic partners that these settings name.
    pub fn synthetic_partners(&self) -> Vec<Synthetic> {
        self.partners.iter().filter_map(|text| Synthetic::parse_workload(text)).collect()
    }
}
