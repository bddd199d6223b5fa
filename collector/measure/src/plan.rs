//! Measuring plans: all settings and their checks. A plan is stored with the measured times.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{PAGE_BYTES, Placement};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    Sample(Plan),
    Evaluate(Evaluator),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Plan {
    /// Number of visits (measurements at different times and placements), which share the durations below.
    pub visits: u32,
    /// Fixed stack offset, to study the effect of a placement; by default, offsets spread over a page.
    pub stack_offset_bytes: Option<u32>,
    /// Minimum warm-up time after the first run. Runs several times as long need no warm-up, as cold effects are small.
    pub warm_up_time_ns: u64,
    pub warm_up_runs: u32,
    pub batch_precisions: u32,
    pub batch_runs_max: u32,
    /// Precision at which sampling stops: relative half-width of the median's confidence interval.
    pub precision: f64,
    pub confidence: f64,
    /// Minimum number of samples within the time budget.
    pub samples_min: u32,
    /// Minimum number of samples if runs are so slow that the time budget does not allow `samples_min`.
    pub samples_slow_min: u32,
    pub samples_max: u32,
    /// Minimum sampling time, because a few early samples may agree by chance.
    pub sampling_time_min_ns: u64,
    /// Maximum sampling time, once the minimum number of samples is taken.
    pub time_budget_ns: u64,
    /// Time limit of the whole measurement, checked between batches; runs are never interrupted.
    pub time_limit_ns: u64,
    pub cache: Cache,
    /// Maximum number of stored samples, which are evenly spaced; statistics use all samples.
    pub samples_kept_max: u32,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            visits: 3,
            stack_offset_bytes: None,
            warm_up_time_ns: 5_000_000,
            warm_up_runs: 1,
            batch_precisions: 1000,
            batch_runs_max: 1 << 20,
            precision: 0.01,
            confidence: 0.95,
            samples_min: 8,
            samples_slow_min: 2,
            samples_max: 10_000,
            sampling_time_min_ns: 12_000_000,
            time_budget_ns: 80_000_000,
            time_limit_ns: 10_000_000_000,
            cache: Cache::Warm,
            samples_kept_max: 256,
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    #[default]
    Warm,
    /// Every thread of a run overwrites its caches before the run; `flush_bytes` must exceed the last-level cache.
    Cold { flush_bytes: u64 },
    /// Before each run, the threads read `between_bytes`, as much as the other operators of a network touch. Then each
    /// writes its share of the activations, as the operators before do.
    Network { between_bytes: u64 },
}

impl Cache {
    /// Returns the number of bytes that the threads write or read before each run.
    pub(super) fn flush_bytes(self) -> Option<u64> {
        match self {
            Cache::Warm => None,
            Cache::Cold { flush_bytes: bytes } | Cache::Network { between_bytes: bytes } => Some(bytes),
        }
    }
}

/// TVM's time evaluator. After one untimed call, each of `repeat` repeats runs `number` times. If a repeat takes less
/// than `min_repeat_ms`, `number` grows permanently, and the repeat restarts. Samples are means of `number` runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Evaluator {
    pub number: u32,
    pub repeat: u32,
    /// Minimum duration of a repeat; with 0, `number` never grows.
    pub min_repeat_ms: u32,
    /// Number of measured durations of zero after which `number` stops growing in a repeat.
    pub limit_zero_time_iterations: u32,
    /// Pause after every `repeats_to_cooldown`-th repeat, including the first one.
    pub cooldown_interval_ms: u32,
    pub repeats_to_cooldown: u32,
    /// Cache state before each repeat, not before each run.
    pub cache: Cache,
}

impl Default for Evaluator {
    fn default() -> Self {
        Self {
            number: 10,
            repeat: 1,
            min_repeat_ms: 0,
            limit_zero_time_iterations: 100,
            cooldown_interval_ms: 0,
            repeats_to_cooldown: 1,
            cache: Cache::Warm,
        }
    }
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("measuring plan: `{field}` is {found}, but must be {allowed}")]
pub struct PlanError {
    pub field: &'static str,
    pub found: String,
    pub allowed: String,
}

const FLUSH_BYTES_MAX: u64 = 4 << 30;

impl Method {
    pub fn placement(&self, seed: u64, visit: u32, process: u32) -> Placement {
        let placement = Placement::of_visit(seed, visit, process);
        match self {
            Method::Sample(Plan { stack_offset_bytes: Some(stack_bytes), .. }) => {
                Placement { stack_bytes: *stack_bytes, is_stack_fixed: true, ..placement }
            }
            Method::Sample(_) | Method::Evaluate(_) => placement,
        }
    }

    /// Returns the number of visits; always 1 for the evaluator's rule.
    pub fn visit_count(&self) -> u32 {
        match self {
            Method::Sample(plan) => plan.visits,
            Method::Evaluate(_) => 1,
        }
    }

    pub fn of_visit(&self) -> Method {
        match self {
            Method::Sample(plan) => Method::Sample(plan.of_visit()),
            Method::Evaluate(rule) => Method::Evaluate(rule.clone()),
        }
    }

    pub fn check_settings(&self) -> Result<(), PlanError> {
        match self {
            Method::Sample(plan) => plan.check_settings(),
            Method::Evaluate(rule) => rule.check_settings(),
        }
    }

    /// Returns when measuring ends, at most a batch later (deadlines must be longer); None for the evaluator's rule.
    pub fn time_limit(&self) -> Option<Duration> {
        match self {
            Method::Sample(plan) => Some(Duration::from_nanos(plan.time_limit_ns)),
            Method::Evaluate(_) => None,
        }
    }
}

impl Plan {
    /// Returns the plan of one visit, which may be less precise, because errors of several visits partly cancel out.
    pub fn of_visit(&self) -> Plan {
        /// Number of samples of a visit whose median is not moved by a single disturbed sample.
        const SAMPLES_OF_VISIT: u32 = 3;
        let share = |time_ns: u64| time_ns / u64::from(self.visits);
        let samples_min = self.samples_min.div_ceil(self.visits).max(SAMPLES_OF_VISIT).min(self.samples_min);
        Plan {
            visits: 1,
            precision: (self.precision * f64::from(self.visits).sqrt()).min(0.5),
            samples_min,
            warm_up_time_ns: share(self.warm_up_time_ns),
            samples_slow_min: self.samples_slow_min.div_ceil(self.visits),
            samples_max: self.samples_max.div_ceil(self.visits).max(samples_min),
            sampling_time_min_ns: share(self.sampling_time_min_ns),
            time_budget_ns: share(self.time_budget_ns),
            samples_kept_max: self.samples_kept_max.div_ceil(self.visits),
            ..self.clone()
        }
    }

    pub fn check_settings(&self) -> Result<(), PlanError> {
        require_setting((1..=1000).contains(&self.visits), "visits", self.visits, "from 1 to 1000")?;
        let offset = self.stack_offset_bytes.unwrap_or(0);
        let is_place = offset < PAGE_BYTES && offset.is_multiple_of(16);
        require_setting(is_place, "stack_offset_bytes", offset, format!("a multiple of 16 below {PAGE_BYTES}"))?;
        require_setting(self.batch_precisions >= 1, "batch_precisions", self.batch_precisions, "at least 1")?;
        require_setting(self.batch_runs_max >= 1, "batch_runs_max", self.batch_runs_max, "at least 1")?;
        require_setting(self.precision > 0.0 && self.precision < 1.0, "precision", self.precision, "between 0 and 1")?;
        require_setting(
            self.confidence >= 0.5 && self.confidence < 1.0,
            "confidence",
            self.confidence,
            "from 0.5 to below 1",
        )?;
        for (field, samples) in [("samples_min", self.samples_min), ("samples_max", self.samples_max)] {
            require_setting((1..=1_000_000).contains(&samples), field, samples, "from 1 to 1000000")?;
        }
        require_setting(self.samples_slow_min >= 1, "samples_slow_min", self.samples_slow_min, "at least 1")?;
        let Plan { samples_min: least, samples_max: most, .. } = *self;
        // The error names the setting that was changed.
        match most == Plan::default().samples_max {
            true => require_setting(least <= most, "samples_min", least, format!("at most `samples_max`, {most}")),
            false => require_setting(least <= most, "samples_max", most, format!("at least `samples_min`, {least}")),
        }?;
        require_setting(self.time_limit_ns >= 1, "time_limit_ns", self.time_limit_ns, "at least 1")?;
        check_cache(self.cache)
    }
}

impl Evaluator {
    pub fn check_settings(&self) -> Result<(), PlanError> {
        require_setting(self.number >= 1, "number", self.number, "at least 1")?;
        require_setting((1..=1_000_000).contains(&self.repeat), "repeat", self.repeat, "from 1 to 1000000")?;
        require_setting(self.repeats_to_cooldown >= 1, "repeats_to_cooldown", self.repeats_to_cooldown, "at least 1")?;
        let zeros = self.limit_zero_time_iterations;
        require_setting(zeros >= 1, "limit_zero_time_iterations", zeros, "at least 1")?;
        check_cache(self.cache)
    }
}

fn check_cache(cache: Cache) -> Result<(), PlanError> {
    let (field, bytes) = match cache {
        Cache::Warm => return Ok(()),
        Cache::Cold { flush_bytes } => ("flush_bytes", flush_bytes),
        Cache::Network { between_bytes } => ("between_bytes", between_bytes),
    };
    let allowed = 1..=FLUSH_BYTES_MAX;
    require_setting(allowed.contains(&bytes), field, bytes, format!("in {allowed:?}"))
}

fn require_setting(
    holds: bool,
    field: &'static str,
    found: impl ToString,
    allowed: impl ToString,
) -> Result<(), PlanError> {
    if holds { Ok(()) } else { Err(PlanError { field, found: found.to_string(), allowed: allowed.to_string() }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn the_defaults_pass_and_nonsense_does_not() {
        Method::Sample(Plan::default()).check_settings().expect("default plan");
        Method::Evaluate(Evaluator::default()).check_settings().expect("default rule");
        let refused = |plan: Plan| plan.check_settings().expect_err("nonsense").to_string();
        expect!["measuring plan: `precision` is 0, but must be between 0 and 1"]
            .assert_eq(&refused(Plan { precision: 0.0, ..Plan::default() }));
        expect!["measuring plan: `samples_max` is 3, but must be at least `samples_min`, 8"]
            .assert_eq(&refused(Plan { samples_max: 3, ..Plan::default() }));
        expect!["measuring plan: `samples_min` is 20000, but must be at most `samples_max`, 10000"]
            .assert_eq(&refused(Plan { samples_min: 20_000, ..Plan::default() }));
        expect!["measuring plan: `samples_min` is 100000000, but must be from 1 to 1000000"]
            .assert_eq(&refused(Plan { samples_min: 100_000_000, ..Plan::default() }));
        expect!["measuring plan: `confidence` is NaN, but must be from 0.5 to below 1"]
            .assert_eq(&refused(Plan { confidence: f64::NAN, ..Plan::default() }));
        let cache = Cache::Cold { flush_bytes: u64::MAX };
        expect!["measuring plan: `flush_bytes` is 18446744073709551615, but must be in 1..=4294967296"]
            .assert_eq(&refused(Plan { cache, ..Plan::default() }));
    }

    #[test]
    fn visits_share_the_time_and_the_samples() {
        let plan = Plan::default();
        let visit = plan.of_visit();
        visit.check_settings().expect("a visit is a plan");
        assert_eq!((visit.visits, plan.samples_min, visit.samples_min), (1, 8, 3));
        let least = |samples_min, visits| Plan { samples_min, visits, ..Plan::default() }.of_visit().samples_min;
        assert_eq!([least(2, 3), least(8, 1), least(8, 100), least(30, 3)], [2, 8, 3, 10]);
        assert_eq!(3 * visit.time_budget_ns / 1_000_000, 79, "rounded down");
        assert_eq!(visit.of_visit(), visit);
        Plan { samples_max: 8, visits: 100, ..Plan::default() }
            .of_visit()
            .check_settings()
            .expect("few samples, many visits");
    }

    #[test]
    fn a_plan_names_what_it_changes() {
        let plan: Plan = toml::from_str("precision = 0.05\ncache = { cold = { flush_bytes = 4096 } }").expect("parses");
        assert_eq!(plan, Plan { precision: 0.05, cache: Cache::Cold { flush_bytes: 4096 }, ..Plan::default() });
        toml::from_str::<Plan>("precison = 0.05").expect_err("a misspelt setting");
    }
}
