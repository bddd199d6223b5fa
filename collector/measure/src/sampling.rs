//! Adaptive sampling: a separate first run, warm-up, then many short batches until the median is precise. A disturbance
//! affects some batches and not the rest, so median and minimum are reproducible, unlike the mean of one long batch.

use super::{
    Cache, Clock, Measurement, Plan,
    recorder::{Closing, Recorder},
    stopping::{self, Elapsed},
};
use crate::counters::CounterReader;

/// Measures until a plan that passed [`Plan::check_settings`] is satisfied; an error from `run` ends the measurement.
pub fn sample_runs<E>(
    run: &mut dyn FnMut(u32) -> Result<(), E>,
    plan: &Plan,
    clock: &mut dyn Clock,
    counters: &mut dyn CounterReader,
) -> Result<Measurement, E> {
    debug_assert_eq!(plan.check_settings(), Ok(()), "check the plan before using it");
    // Each group of counters needs a sample of its own.
    let groups = u32::try_from(counters.group_count()).unwrap_or(u32::MAX);
    let stopping_plan = Plan { samples_min: plan.samples_min.max(groups), ..plan.clone() };
    // The first preparation allocates memory, so it happens before any budget starts.
    clock.prepare_caches(plan.cache);
    let mut recorder = Recorder::new(clock, counters);
    let first_run_ns = recorder.time_runs(run, 1)?;
    let speed_before_ns = recorder.clock.speed_probe_ns();
    let mut warm = Warm { runs: 0, run_ns: first_run_ns.max(1), spent_ns: 0 };
    let mut sampling_from_ns = recorder.elapsed_ns();
    let precision_ns = recorder.clock.precision_ns();
    let is_long = |run_ns: u64| is_long(plan, run_ns) && batch_size(plan, run_ns, precision_ns) == 1;
    // A long first run is warm-up enough if the second one is long, too; otherwise only the start was slow.
    if is_long(first_run_ns) {
        recorder.clock.prepare_caches(plan.cache);
        warm.add_batch(recorder.time_batch(run, 1)?.elapsed_ns, 1);
    }
    if is_long(warm.run_ns) {
        warm.runs = 0;
        recorder.keep_batch();
    } else {
        warm_up(&mut recorder, run, plan, &mut warm)?;
        sampling_from_ns = recorder.elapsed_ns();
    }
    let batch_size = batch_size(plan, warm.run_ns, precision_ns);
    let stop = loop {
        let total_ns = recorder.elapsed_ns();
        let elapsed = Elapsed { sampling_ns: total_ns - sampling_from_ns, total_ns };
        if !recorder.sorted_samples().is_empty()
            && let Some(stop) = stopping::decide_stop(&stopping_plan, recorder.sorted_samples(), elapsed)
        {
            break stop;
        }
        recorder.clock.prepare_caches(plan.cache);
        recorder.time_batch(run, batch_size)?;
        recorder.keep_batch();
    };
    let speed_after_ns = recorder.clock.speed_probe_ns();
    Ok(recorder.finish_measurement(Closing {
        first_run_ns,
        warm_up_runs: warm.runs,
        batch_size,
        confidence: plan.confidence,
        samples_kept_max: plan.samples_kept_max,
        flush_bytes: plan.cache.flush_bytes(),
        stop,
        wanted: Some(plan.precision),
        samples_min: plan.samples_min,
        speed_ns: (speed_before_ns, speed_after_ns),
    }))
}

/// A run that takes at least this multiple of the warm-up time needs no warm-up.
const WARM_UP_MULTIPLE: u64 = 4;

fn is_long(plan: &Plan, run_ns: u64) -> bool {
    run_ns >= plan.warm_up_time_ns.saturating_mul(WARM_UP_MULTIPLE)
}

struct Warm {
    runs: u64,
    spent_ns: u64,
    /// Minimum time per run over all batches so far, because slower batches were disturbed or cold.
    run_ns: u64,
}

impl Warm {
    fn add_batch(&mut self, elapsed_ns: u64, runs: u32) {
        self.spent_ns += elapsed_ns;
        self.runs += u64::from(runs);
        self.run_ns = self.run_ns.min((elapsed_ns / u64::from(runs)).max(1));
    }
}

/// Runs growing batches for the warm-up time, at least one batch, as the cold first run would give a wrong batch size.
fn warm_up<E>(
    recorder: &mut Recorder<'_>,
    run: &mut dyn FnMut(u32) -> Result<(), E>,
    plan: &Plan,
    warm: &mut Warm,
) -> Result<(), E> {
    let least_runs = u64::from(plan.warm_up_runs.max(1));
    let mut batch = 1;
    while (warm.spent_ns < plan.warm_up_time_ns || warm.runs < least_runs) && recorder.elapsed_ns() < plan.time_limit_ns
    {
        warm.add_batch(recorder.time_runs(run, batch)?, batch);
        let missing_runs = plan.warm_up_time_ns.saturating_sub(warm.spent_ns).div_ceil(warm.run_ns).max(1);
        batch = u32::try_from(missing_runs).unwrap_or(u32::MAX).min(batch.saturating_mul(2)).min(plan.batch_runs_max);
    }
    Ok(())
}

/// Returns the runs of the smallest batch that is long compared with the clock's precision; 1 for caches that each run
/// changes.
fn batch_size(plan: &Plan, run_ns: u64, precision_ns: u64) -> u32 {
    if plan.cache != Cache::Warm {
        return 1;
    }
    let runs = (precision_ns * u64::from(plan.batch_precisions)).div_ceil(run_ns);
    u32::try_from(runs).unwrap_or(u32::MAX).clamp(1, plan.batch_runs_max)
}
