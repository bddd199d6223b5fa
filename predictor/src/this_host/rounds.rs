//! Combines the rounds of a calibration: peak rates, and the sentinels' times.

use super::{OUTLIER, Sentinel, UNCERTAINTY_MOST};
use crate::error::Result;
use crate::probe::{MeasuredOperators, TimedOperator};
use crate::queries::{self, Setting};
use datasets::peaks::{Certainty, ComputePeak, MemoryPeak};
use datasets::{Peaks, Reached};
use learn::host_translation::HostTranslation;
use learn::predictor::Predictor;
use samples::statistics::median;
use std::collections::BTreeMap;

/// Lower limit of the deviation used to reject outliers, as a share of the median.
const LEAST_DEVIATION: f64 = 0.01;

/// Returns the peak rates over all rounds, at least the rates that sentinels reached twice; None if none were measured.
/// Thread counts that were not measured scale as those of the training machine `there`.
pub(super) fn combine_peaks(rounds: &[MeasuredOperators], there: Option<&Peaks>) -> Option<Peaks> {
    let mut peaks = Peaks::from_measurements(rounds.iter().flat_map(|round| &round.peaks));
    if peaks.compute.is_empty() || peaks.memory.is_empty() {
        return None;
    }
    let mut reached = Reached::default();
    rounds.iter().flat_map(|round| &round.records).for_each(|record| reached.add_record(record));
    peaks.raise_peaks(&reached);
    if let Some(there) = there {
        assume_thread_counts(&mut peaks, there);
    }
    Some(peaks)
}

fn assume_thread_counts(peaks: &mut Peaks, there: &Peaks) {
    let Some(measured) = peaks.compute.last().map(|peak| f64::from(peak.threads)) else { return };
    let known = peaks.clone();
    for peak in there.compute.iter().filter(|peak| f64::from(peak.threads) > measured) {
        let rates = (known.flops_per_second(measured), there.flops_per_second(measured));
        let (Some(here), Some(there)) = rates else { continue };
        let flops_per_second = here * peak.flops_per_second / there;
        peaks.compute.push(ComputePeak { flops_per_second, certainty: Certainty::default(), ..*peak });
    }
    for peak in there.memory.iter().filter(|peak| f64::from(peak.threads) > measured) {
        let bytes = peak.working_set_bytes as f64;
        let rates = (known.bytes_per_second(measured, bytes), there.bytes_per_second(measured, bytes));
        let (Some(here), Some(there)) = rates else { continue };
        let bytes_per_second = here * peak.bytes_per_second / there;
        peaks.memory.push(MemoryPeak { bytes_per_second, certainty: Certainty::default(), ..peak.clone() });
    }
}

/// Returns the sentinels that the predictor was trained on, with their times over all rounds.
pub(super) fn combine_sentinels(
    predictor: &Predictor,
    rounds: &[MeasuredOperators],
    peaks: Option<&Peaks>,
) -> Result<Vec<Sentinel>> {
    let timed: Vec<Vec<TimedOperator>> = rounds.iter().map(MeasuredOperators::timed_operators).collect();
    let mut times: BTreeMap<(&str, u32), Vec<Option<&TimedOperator>>> = BTreeMap::new();
    for (round, timed) in timed.iter().enumerate() {
        for one in timed {
            let of_operator = times.entry((&one.operator, one.threads)).or_default();
            of_operator.resize(round + 1, None);
            of_operator[round] = Some(one);
        }
    }
    let sentinels = times
        .into_iter()
        .map(|((operator, threads), times)| build_sentinel(predictor, operator, threads, &times, peaks));
    Ok(sentinels.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Combines a measurement with its prediction; None for an operator that was not trained.
fn build_sentinel(
    predictor: &Predictor,
    text: &str,
    threads: u32,
    times: &[Option<&TimedOperator>],
    peaks: Option<&Peaks>,
) -> Result<Option<Sentinel>> {
    let operator = queries::parse_operator(text, None)?;
    if !predictor.learned.operators.contains_key(&operator.name) {
        return Ok(None);
    }
    let setting = Setting { threads: Some(f64::from(threads)), extrapolate: true, ..Setting::default() };
    let answer = queries::predict_operators(predictor, std::slice::from_ref(&operator), &setting)?;
    let prediction = &answer[0].prediction;
    let (measured_ns, uncertainty, rounds_ns) = robust_time(times);
    let here = HostTranslation { peaks: peaks.cloned(), ..HostTranslation::default() };
    Ok(Some(Sentinel {
        operator: text.to_owned(),
        kind: operator.name,
        threads,
        bound: prediction.bound.to_owned(),
        measured_ns,
        rounds_ns,
        uncertainty,
        predicted_ns: prediction.time_ns,
        scale: prediction.scale_to_host(&here, &operator.work),
        half_width: 0.5 * (prediction.high_ns / prediction.low_ns).ln(),
    }))
}

/// Returns the median over rounds, its uncertainty, and the usable rounds (known uncertainty, not an outlier).
fn robust_time(times: &[Option<&TimedOperator>]) -> (f64, Option<f64>, Vec<Option<f64>>) {
    let is_known = |one: &&TimedOperator| one.uncertainty.is_some_and(|share| share <= UNCERTAINTY_MOST);
    let known: Vec<Option<&TimedOperator>> = times.iter().map(|one| one.filter(is_known)).collect();
    let mut logs: Vec<f64> = known.iter().flatten().map(|one| one.time_ns.ln()).collect();
    if logs.is_empty() {
        let best = times.iter().flatten().min_by(|one, two| one.time_ns.total_cmp(&two.time_ns));
        return best.map_or((f64::NAN, None, Vec::new()), |one| (one.time_ns, one.uncertainty, Vec::new()));
    }
    let middle = median(&mut logs);
    let mut deviations: Vec<f64> = logs.iter().map(|log| (log - middle).abs()).collect();
    let most = OUTLIER * median(&mut deviations).max(LEAST_DEVIATION);
    let kept: Vec<Option<&TimedOperator>> =
        known.iter().map(|one| one.filter(|one| (one.time_ns.ln() - middle).abs() <= most)).collect();
    let mut logs: Vec<f64> = kept.iter().flatten().map(|one| one.time_ns.ln()).collect();
    let mut own: Vec<f64> = kept.iter().flatten().filter_map(|one| one.uncertainty).collect();
    let (least, most) = value_range(&logs);
    let uncertainty = median(&mut own).max((0.5 * (most - least)).exp() - 1.0);
    (median(&mut logs).exp(), Some(uncertainty), kept.into_iter().map(|one| one.map(|one| one.time_ns)).collect())
}

fn value_range(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), one| (least.min(*one), most.max(*one)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbed_round_is_no_part_of_the_median() {
        let timed = |time_ns: f64, uncertainty: f64| TimedOperator {
            operator: "relu:shape=1".to_owned(),
            threads: 1,
            time_ns,
            uncertainty: Some(uncertainty),
        };
        let rounds = [timed(100.0, 0.01), timed(160.0, 0.01), timed(102.0, 0.01), timed(60.0, 0.5)];
        let (time_ns, uncertainty, kept) = robust_time(&rounds.each_ref().map(Some));
        assert!((100.0..=102.0).contains(&time_ns) && uncertainty.is_some_and(|share| share < 0.02), "{time_ns}");
        assert_eq!(kept, [Some(100.0), None, Some(102.0), None]);
        let (_, unknown, _) = robust_time(&[Some(&rounds[3])]);
        assert_eq!(unknown, Some(0.5));
    }

    /// On one CPU nothing is known of two threads.
    #[test]
    fn thread_counts_without_peaks_scale_as_those_of_the_training_machine() {
        let peaks = |factor: f64, counts: &[u32]| {
            let certainty = Certainty { measurements: 2, ..Certainty::default() };
            let compute = |threads: &u32| ComputePeak {
                threads: *threads,
                flops_per_second: factor * f64::from(*threads),
                certainty,
            };
            let memory = |threads: &u32| MemoryPeak {
                threads: *threads,
                working_set_bytes: 1024,
                level: None,
                bytes_per_second: factor * 1.5f64.powi(*threads as i32),
                certainty,
            };
            Peaks { compute: counts.iter().map(compute).collect(), memory: counts.iter().map(memory).collect() }
        };
        let mut here = peaks(3.0, &[1]);
        assume_thread_counts(&mut here, &peaks(1.0, &[1, 2]));
        assert!(here.is_sound());
        assert_eq!(here.flops_per_second(2.0), Some(6.0));
        assert_eq!(here.bytes_per_second(2.0, 1e6), Some(3.0 * 1.5 * 1.5));
        assert_eq!(here.memory[1].certainty.measurements, 0, "it was not measured");
    }
}
