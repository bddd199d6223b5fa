//! Adaptive sampling: first run apart, warm-up, then many short batches until the median is known.
//!
//! Many short batches rather than few long ones: on a shared machine single runs of a kernel scatter by tens of
//! percent, because a disturbance hits some of them and not the rest. The median of many and their minimum come back
//! within about a percent; a mean over one long batch contains every disturbance in it.

use super::{
    Cache, Clock, Measurement, Plan,
    flush::Flusher,
    recorder::{Closing, Recorder},
    stopping::{self, Elapsed},
};
use crate::counters::CounterReader;

/// Measures until the plan is satisfied. `run` runs the artifact the given number of times, back to back; an error
/// from it ends the measuring. The plan must have passed [`Plan::check`].
pub fn sample<E>(
    run: &mut dyn FnMut(u32) -> Result<(), E>,
    plan: &Plan,
    clock: &mut dyn Clock,
    counters: &mut dyn CounterReader,
) -> Result<Measurement, E> {
    debug_assert_eq!(plan.check(), Ok(()), "check the plan before using it");
    let mut flusher = plan.cache.flush_bytes().map(Flusher::new);
    let mut recorder = Recorder::new(clock, counters);
    let first_run_ns = recorder.time(run, 1)?;
    let warm = warm_up(&mut recorder, run, plan, first_run_ns)?;
    let batch_size = batch_size(plan, warm.run_ns, recorder.clock.precision_ns());
    let speed_before_ns = recorder.clock.speed_probe_ns();
    let sampling_from_ns = recorder.elapsed_ns();
    let stop = loop {
        if let Some(flusher) = &mut flusher {
            flusher.flush();
        }
        recorder.batch(run, batch_size)?;
        recorder.keep();
        let total_ns = recorder.elapsed_ns();
        let elapsed = Elapsed { sampling_ns: total_ns - sampling_from_ns, total_ns };
        if let Some(stop) = stopping::decide(plan, recorder.sorted(), elapsed) {
            break stop;
        }
    };
    let speed_after_ns = recorder.clock.speed_probe_ns();
    Ok(recorder.finish(Closing {
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

/// A first run this many times as long as the warm-up replaces it.
const WARM_UP_MULTIPLE: u64 = 4;

struct Warm {
    runs: u64,
    /// Estimate of one run's time, from the last and longest batch.
    run_ns: u64,
}

/// Runs in growing batches until the plan's warm-up is done. The time limit holds here too.
fn warm_up<E>(
    recorder: &mut Recorder<'_>,
    run: &mut dyn FnMut(u32) -> Result<(), E>,
    plan: &Plan,
    first_run_ns: u64,
) -> Result<Warm, E> {
    let mut warm = Warm { runs: 0, run_ns: first_run_ns.max(1) };
    if first_run_ns >= plan.warm_up_time_ns.saturating_mul(WARM_UP_MULTIPLE) {
        return Ok(warm);
    }
    let mut spent_ns = 0;
    let mut batch = 1;
    while (spent_ns < plan.warm_up_time_ns || warm.runs < u64::from(plan.warm_up_runs))
        && recorder.elapsed_ns() < plan.time_limit_ns
    {
        let elapsed_ns = recorder.time(run, batch)?;
        spent_ns += elapsed_ns;
        warm.runs += u64::from(batch);
        warm.run_ns = (elapsed_ns / u64::from(batch)).max(1);
        let missing_runs = plan.warm_up_time_ns.saturating_sub(spent_ns).div_ceil(warm.run_ns).max(1);
        batch = u32::try_from(missing_runs).unwrap_or(u32::MAX).min(batch.saturating_mul(2)).min(plan.batch_runs_max);
    }
    Ok(warm)
}

/// Long enough for the clock and not longer; a cold cache allows one run only.
fn batch_size(plan: &Plan, run_ns: u64, precision_ns: u64) -> u32 {
    if matches!(plan.cache, Cache::Cold { .. }) {
        return 1;
    }
    let runs = (precision_ns * u64::from(plan.batch_precisions)).div_ceil(run_ns);
    u32::try_from(runs).unwrap_or(u32::MAX).clamp(1, plan.batch_runs_max)
}
