//! The statistics that are learned of an operator beside its trees. The names in files are those of their formats.

use super::UNSEEN;
use super::applicability::ApplicabilityDomain;
use samples::Samples;
use samples::features::{Matrix, View};
use samples::schedules::Schedules;
use samples::statistics::{median, quantile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The share of an operator's times that lie below its overhead.
const OVERHEAD_SHARE: f64 = 0.01;

/// Times with so many threads that their overhead is told apart.
const FEWEST_OF_THREADS: usize = 100;

/// The statistics that were learned of one operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorStatistics {
    /// Samples.
    pub rows: usize,
    /// Time of the smallest operators by device.
    pub overheads_ns: BTreeMap<String, f64>,
    /// The same with so many threads, ascending, where there were enough times of each.
    pub overheads_by_threads_ns: BTreeMap<String, Vec<(f64, f64)>>,
    /// Overhead on other devices: the middle of those that were measured.
    pub overhead_ns: f64,
    /// The smallest ratio that was measured, as a logarithm.
    pub best_log: f64,
    /// What libraries chose, where the data says it: the one that goes with the shortest times, as multiples of their bounds,
    /// first. The first stands under 1 among the features.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// The weight of trees of single devices in the blend that answers for other devices, against transfer trees.
    pub per_device_weight: f64,
    /// Smallest and largest value of each feature; nothing where it was always absent.
    pub ranges: Vec<Option<(f32, f32)>>,
    /// Mean absolute error in percent for shapes held out while learning; nothing where that was not tried.
    pub held_out_mape: Option<f64>,
    /// Half-widths of 90 % intervals, as logarithms, by device; under no name for devices never seen.
    pub half_widths: BTreeMap<String, f64>,
    /// The same for questions that know less of the schedule than what was learned from.
    pub half_widths_by_view: BTreeMap<View, BTreeMap<String, f64>>,
    /// What its sizes are called in the table that was learned from, by the names of features.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub size_names: BTreeMap<String, String>,
    /// Its schedules; none of what was measured without any.
    pub schedules: Schedules,
    /// Where its training data lies, and how intervals widen away from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applicability: Option<ApplicabilityDomain>,
}

/// The overheads of an operator's samples; all else is found later.
pub(super) fn of(samples: &Samples, rows: &[usize]) -> OperatorStatistics {
    let mut times: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for row in rows {
        times.entry(samples.device_name(*row)).or_default().push(samples.rows[*row].time_ns);
    }
    let overhead = |(device, mut times): (&str, Vec<f64>)| (device.to_owned(), quantile(&mut times, OVERHEAD_SHARE));
    let overheads_ns: BTreeMap<String, f64> = times.into_iter().map(overhead).collect();
    let overhead_ns = median(&mut overheads_ns.values().copied().collect::<Vec<_>>());
    let overheads_by_threads_ns = overheads_by_threads(samples, rows);
    OperatorStatistics {
        rows: rows.len(),
        overheads_ns,
        overheads_by_threads_ns,
        overhead_ns,
        ..OperatorStatistics::default()
    }
}

fn overheads_by_threads(samples: &Samples, rows: &[usize]) -> BTreeMap<String, Vec<(f64, f64)>> {
    let mut times: BTreeMap<(&str, u64), Vec<f64>> = BTreeMap::new();
    for row in rows {
        // Positive numbers stand in the order of their bits.
        let threads = samples.rows[*row].busy_threads.to_bits();
        times.entry((samples.device_name(*row), threads)).or_default().push(samples.rows[*row].time_ns);
    }
    let mut overheads: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for ((device, threads), mut times) in times {
        if times.len() >= FEWEST_OF_THREADS {
            let overhead = quantile(&mut times, OVERHEAD_SHARE);
            overheads.entry(device.to_owned()).or_default().push((f64::from_bits(threads), overhead));
        }
    }
    overheads
}

/// Smallest and largest value of each feature.
pub(super) fn ranges(matrix: &Matrix) -> Vec<Option<(f32, f32)>> {
    let mut ranges: Vec<Option<(f32, f32)>> = vec![None; matrix.columns()];
    for row in 0..matrix.rows() {
        for (range, value) in ranges.iter_mut().zip(matrix.row(row)).filter(|(_, value)| value.is_finite()) {
            let (low, high) = range.unwrap_or((*value, *value));
            *range = Some((low.min(*value), high.max(*value)));
        }
    }
    ranges
}

impl OperatorStatistics {
    /// Whether the numbers fit rows of so many features.
    pub fn check(&self, width: usize) -> std::result::Result<(), String> {
        let is_time = |time: &f64| time.is_finite() && *time > 0.0;
        if self.ranges.len() != width {
            return Err(format!("it has ranges of {} features, not {width}", self.ranges.len()));
        }
        self.schedules.check()?;
        let by_threads = self.overheads_by_threads_ns.values().flatten();
        if !by_threads.clone().all(|(threads, time)| is_time(threads) && is_time(time))
            || !self.overheads_ns.values().chain([&self.overhead_ns]).all(is_time)
            || !self.best_log.is_finite()
            || !(0.0..=1.0).contains(&self.per_device_weight)
        {
            return Err("an overhead is not a positive number, or a share not one".to_owned());
        }
        if !self.applicability.as_ref().is_none_or(|domain| domain.is_sound(width)) {
            return Err("what intervals widen by is not sound".to_owned());
        }
        match self
            .half_widths_by_view
            .values()
            .flat_map(BTreeMap::values)
            .chain(self.half_widths.values())
            .all(|half_width| half_width.is_finite() && *half_width >= 0.0)
        {
            true => Ok(()),
            false => Err("the width of an interval is not a number".to_owned()),
        }
    }

    /// Whether a device was learned from.
    pub fn has_seen(&self, device: &str) -> bool {
        self.overheads_ns.contains_key(device)
    }

    /// The half-width of the 90 % interval of a question: that of the device, wider away from the training data.
    pub fn half_width_of(&self, device: &str, view: View, row: &[f32]) -> Option<f64> {
        let factor = self.applicability.as_ref().map_or(1.0, |domain| domain.widening(row));
        Some(factor * self.half_width(device, view)?)
    }

    /// The half-width on a device when so much is known; of one without its own, that of devices that were never seen.
    pub fn half_width(&self, device: &str, view: View) -> Option<f64> {
        let of = |device: &str| {
            let of_view = self.half_widths_by_view.get(&view).and_then(|half_widths| half_widths.get(device));
            of_view.or_else(|| self.half_widths.get(device)).copied()
        };
        of(device).or_else(|| of(UNSEEN))
    }

    /// What the smallest operators cost on a device with so many threads; of the largest known number for more.
    pub fn overhead_ns(&self, device: &str, threads: f64) -> f64 {
        let by_threads = self.overheads_by_threads_ns.get(device).map_or(&[][..], Vec::as_slice);
        let enough = by_threads.iter().find(|(known, _)| *known >= threads).or(by_threads.last());
        let of_device = || self.overheads_ns.get(device).copied().unwrap_or(self.overhead_ns);
        enough.map_or_else(of_device, |(_, overhead)| *overhead)
    }
}
