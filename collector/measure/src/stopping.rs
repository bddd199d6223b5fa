//! The stopping rule of adaptive sampling. It tests the data repeatedly, so the stated confidence is slightly
//! optimistic; the plan's minimum time and number of samples limit the effect.

use serde::{Deserialize, Serialize};

use super::{Plan, statistics};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    Precise,
    SamplesMax,
    TimeBudget,
    /// The time limit of the whole measurement was reached, perhaps before the minimum number of samples.
    TimeLimit,
    RepeatsDone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed {
    pub sampling_ns: u64,
    pub total_ns: u64,
}

/// Decides whether and why sampling stops; `None` continues. `sorted` holds all samples so far.
pub fn decide_stop(plan: &Plan, sorted: &[f64], elapsed: Elapsed) -> Option<StopReason> {
    let is_enough = sorted.len() >= plan.samples_min as usize;
    if elapsed.total_ns >= plan.time_limit_ns {
        return Some(StopReason::TimeLimit);
    }
    if sorted.len() >= plan.samples_max as usize {
        return Some(StopReason::SamplesMax);
    }
    if is_enough && elapsed.sampling_ns >= plan.sampling_time_min_ns && is_precise(plan, sorted) {
        return Some(StopReason::Precise);
    }
    let is_least = is_enough || sorted.len() >= plan.samples_slow_min as usize;
    (is_least && elapsed.sampling_ns >= plan.time_budget_ns).then_some(StopReason::TimeBudget)
}

fn is_precise(plan: &Plan, sorted: &[f64]) -> bool {
    // The interval is expensive, and with many samples one more hardly changes it.
    let is_turn = sorted.len() < 64 || sorted.len().is_multiple_of(16);
    is_turn && relative_half_width(sorted, plan.confidence).is_some_and(|width| width <= plan.precision)
}

/// Returns the half-width of the median's confidence interval over the median; None for too few samples.
pub fn relative_half_width(sorted: &[f64], confidence: f64) -> Option<f64> {
    let (low, high) = statistics::time_interval(sorted, confidence)?;
    let median = statistics::median_of_sorted(sorted);
    (median > 0.0).then(|| (high - low) / 2.0 / median)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: [f64; 8] = [100.0; 8];
    const LOUD: [f64; 8] = [70.0, 80.0, 90.0, 100.0, 100.0, 110.0, 120.0, 130.0];
    const MILLISECOND: u64 = 1_000_000;

    fn check(sorted: &[f64], sampling_ms: u64, total_ms: u64, expected: Option<StopReason>) {
        let elapsed = Elapsed { sampling_ns: sampling_ms * MILLISECOND, total_ns: total_ms * MILLISECOND };
        assert_eq!(decide_stop(&Plan::default(), sorted, elapsed), expected);
    }

    #[test]
    fn each_bound_stops_for_its_own_reason() {
        check(&QUIET, 12, 30, Some(StopReason::Precise));
        check(&QUIET, 11, 30, None);
        check(&QUIET[..7], 12, 30, None);
        check(&LOUD, 12, 30, None);
        check(&LOUD, 80, 90, Some(StopReason::TimeBudget));
        // Runs of which the budget cannot hold eight: two are the least.
        check(&LOUD[..2], 500, 510, Some(StopReason::TimeBudget));
        check(&LOUD[..1], 500, 510, None);
        check(&LOUD[..1], 10_000, 10_000, Some(StopReason::TimeLimit));
        check(&vec![100.0; 10_000], 1, 2, Some(StopReason::SamplesMax));
    }

    #[test]
    fn three_samples_may_be_enough() {
        let plan = Plan { samples_min: 1, ..Plan::default() };
        let stops = |samples: &[f64]| {
            decide_stop(&plan, samples, Elapsed { sampling_ns: 12 * MILLISECOND, total_ns: 30 * MILLISECOND })
        };
        assert_eq!(stops(&[99.7, 100.0, 100.3]), Some(StopReason::Precise));
        assert_eq!(stops(&[99.5, 100.0, 100.5]), None);
        assert_eq!(stops(&[100.0, 100.0]), None, "two samples may agree by chance");
    }
}
