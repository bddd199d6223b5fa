//! Measures by the rule of TVM's time evaluator, so that times are comparable with other measurements by TVM.

use std::time::Duration;

use super::{
    Clock, Evaluator, Measurement, StopReason,
    recorder::{Closing, Recorder},
    statistics,
};
use crate::counters::CounterReader;

const GROWTH: f64 = 1.618;

/// Measures by a rule that passed [`Evaluator::check_settings`]; an error from `run` ends the measurement.
pub fn evaluate_rule<E>(
    run: &mut dyn FnMut(u32) -> Result<(), E>,
    rule: &Evaluator,
    clock: &mut dyn Clock,
    counters: &mut dyn CounterReader,
) -> Result<Measurement, E> {
    debug_assert_eq!(rule.check_settings(), Ok(()), "check the rule before using it");
    // The first flush allocates memory, so it happens before measuring.
    clock.prepare_caches(rule.cache);
    let mut recorder = Recorder::new(clock, counters);
    let first_run_ns = recorder.time_runs(run, 1)?;
    let speed_before_ns = recorder.clock.speed_probe_ns();
    let mut number = rule.number;
    for repeat in 0..rule.repeat {
        let mut zeros = 0;
        loop {
            recorder.clock.prepare_caches(rule.cache);
            let elapsed_ns = recorder.time_batch(run, number)?.elapsed_ns;
            zeros += u32::from(elapsed_ns == 0);
            let is_long_enough = elapsed_ns >= u64::from(rule.min_repeat_ms) * 1_000_000;
            if is_long_enough || zeros >= rule.limit_zero_time_iterations {
                break;
            }
            if elapsed_ns > 0 {
                number = grow_number(number, elapsed_ns, rule.min_repeat_ms);
            }
        }
        recorder.keep_batch();
        if rule.cooldown_interval_ms > 0 && repeat % rule.repeats_to_cooldown == 0 {
            recorder.clock.sleep(Duration::from_millis(rule.cooldown_interval_ms.into()));
        }
    }
    let speed_after_ns = recorder.clock.speed_probe_ns();
    Ok(recorder.finish_measurement(Closing {
        first_run_ns,
        warm_up_runs: 0,
        batch_size: number,
        confidence: statistics::CONFIDENCE,
        samples_kept_max: rule.repeat,
        flush_bytes: rule.cache.flush_bytes(),
        stop: StopReason::RepeatsDone,
        wanted: None,
        samples_min: rule.repeat,
        speed_ns: (speed_before_ns, speed_after_ns),
    }))
}

/// Returns the next number of runs: enough for `min_repeat_ms` plus one, but at least [`GROWTH`] times `number`.
fn grow_number(number: u32, elapsed_ns: u64, min_repeat_ms: u32) -> u32 {
    let run_ms = elapsed_ns as f64 / 1e6 / f64::from(number);
    let needed = f64::from(min_repeat_ms) / run_ms + 1.0;
    needed.max(f64::from(number) * GROWTH) as u32
}
