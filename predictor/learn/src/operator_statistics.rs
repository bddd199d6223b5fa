//! The statistics of an operator that are stored with its trees. Field names are part of the file format.

use super::UNSEEN;
use super::applicability::ApplicabilityDomain;
use super::levels::LevelRatios;
use samples::Samples;
use samples::features::{FEATURES, Matrix, View};
use samples::schedules::Schedules;
use samples::statistics::{median, quantile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Quantile of an operator's times that is taken as its launch overhead.
const OVERHEAD_SHARE: f64 = 0.01;

const FEWEST_OF_THREADS: usize = 100;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatorStatistics {
    pub rows: usize,
    pub overheads_ns: BTreeMap<String, f64>,
    /// Pairs of thread count and launch overhead by device, ascending; only thread counts with enough times.
    pub overheads_by_threads_ns: BTreeMap<String, Vec<(f64, f64)>>,
    /// Launch overhead for devices without one of their own: the median over devices.
    pub overhead_ns: f64,
    /// Log of the smallest ratio of a measured time to roofline bound and launch overhead.
    pub best_log: f64,
    /// Log of the smallest ratio of a measured time to the roofline bound alone. None in older files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_roofline_log: Option<f64>,
    /// `best_roofline_log` of convolutions for which algorithms may skip products; the other one is without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_skipping_log: Option<f64>,
    /// Library choices by mean ratio of time to bound, best first; the feature value is the index plus one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// Weight of the per-device trees in the mean with the transfer trees, for devices outside of the training data.
    pub per_device_weight: f64,
    /// Minimum and maximum of each feature in the training data; None if always missing.
    pub ranges: Vec<Option<(f32, f32)>>,
    pub held_out_mape: Option<f64>,
    /// Log half-widths of 90 % intervals by device; the empty name means unseen devices.
    pub half_widths: BTreeMap<String, f64>,
    /// Log half-widths by device, for queries with less schedule information than the training data.
    pub half_widths_by_view: BTreeMap<View, BTreeMap<String, f64>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub levels: BTreeMap<String, LevelRatios>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub size_names: BTreeMap<String, String>,
    pub schedules: Schedules,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applicability: Option<ApplicabilityDomain>,
}

pub(super) fn measure_overheads(samples: &Samples, rows: &[usize]) -> OperatorStatistics {
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
        // Positive floats sort like their bits.
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

pub(super) fn feature_ranges(matrix: &Matrix) -> Vec<Option<(f32, f32)>> {
    let mut ranges: Vec<Option<(f32, f32)>> = vec![None; matrix.column_count()];
    for row in 0..matrix.row_count() {
        for (range, value) in ranges.iter_mut().zip(matrix.row(row)).filter(|(_, value)| value.is_finite()) {
            let (low, high) = range.unwrap_or((*value, *value));
            *range = Some((low.min(*value), high.max(*value)));
        }
    }
    ranges
}

impl OperatorStatistics {
    pub fn check_values(&self, width: usize) -> std::result::Result<(), String> {
        let is_time = |time: &f64| time.is_finite() && *time > 0.0;
        if self.ranges.len() != width {
            return Err(format!("{} feature ranges, expected {width}", self.ranges.len()));
        }
        self.schedules.check_consistency()?;
        let by_threads = self.overheads_by_threads_ns.values().flatten();
        if !by_threads.clone().all(|(threads, time)| is_time(threads) && is_time(time))
            || !self.overheads_ns.values().chain([&self.overhead_ns]).all(is_time)
            || ![Some(self.best_log), self.best_roofline_log, self.best_skipping_log]
                .iter()
                .flatten()
                .all(|log| log.is_finite())
            || !(0.0..=1.0).contains(&self.per_device_weight)
        {
            return Err("an overhead, the best ratio or the weight of the per-device trees is invalid".to_owned());
        }
        if !self.applicability.as_ref().is_none_or(|domain| domain.is_sound(width)) {
            return Err("the applicability domain is invalid".to_owned());
        }
        if !self.levels.values().all(LevelRatios::is_sound) {
            return Err("interval widths do not increase with the coverage level".to_owned());
        }
        match self
            .half_widths_by_view
            .values()
            .flat_map(BTreeMap::values)
            .chain(self.half_widths.values())
            .all(|half_width| half_width.is_finite() && *half_width >= 0.0)
        {
            true => Ok(()),
            false => Err("an interval width is not a finite, non-negative number".to_owned()),
        }
    }

    /// Returns the shortest time that the training data makes plausible.
    pub fn least_ns(&self, roofline_ns: f64, overhead_ns: f64, may_skip_products: bool) -> f64 {
        // If only convolutions that skip products were measured, others reach the roofline at best.
        let of_skipping = self.best_skipping_log;
        let log = if may_skip_products { of_skipping } else { self.best_roofline_log.or(of_skipping.map(|_| 0.0)) };
        let of_roofline = log.map_or(0.0, |log| roofline_ns * log.exp());
        of_roofline.max((roofline_ns + overhead_ns) * self.best_log.exp())
    }

    pub fn has_seen(&self, device: &str) -> bool {
        self.overheads_ns.contains_key(device)
    }

    /// Returns the range of thread counts in the training data, on any device.
    pub fn thread_range(&self) -> Option<(f64, f64)> {
        let column = FEATURES.iter().position(|feature| feature.name == "threads")?;
        let (least, most) = self.ranges.get(column).copied().flatten()?;
        (least >= 1.0 && most.is_finite()).then_some((f64::from(least), f64::from(most)))
    }

    /// Returns whether no device was measured on a single thread, because all rows are for whole devices, as on GPUs.
    pub fn has_whole_devices(&self) -> bool {
        self.thread_range().is_some_and(|(least, _)| least > 1.0)
    }

    pub fn half_width_of(&self, device: &str, view: View, row: &[f32]) -> Option<f64> {
        Some(self.widening_factor(row) * self.half_width(device, view)?)
    }

    pub fn widening_factor(&self, row: &[f32]) -> f64 {
        self.applicability.as_ref().map_or(1.0, |domain| domain.widening_factor(row))
    }

    /// Returns the half-width for a device; for a device without one, that for unseen devices.
    pub fn half_width(&self, device: &str, view: View) -> Option<f64> {
        let of = |device: &str| {
            let of_view = self.half_widths_by_view.get(&view).and_then(|half_widths| half_widths.get(device));
            of_view.or_else(|| self.half_widths.get(device)).copied()
        };
        of(device).or_else(|| of(UNSEEN))
    }

    pub fn levels_on(&self, device: &str) -> Option<LevelRatios> {
        self.levels.get(device).or_else(|| self.levels.get(UNSEEN)).copied()
    }

    /// Returns the launch overhead; unmeasured thread counts use the next larger measured count, or the largest.
    pub fn overhead_ns(&self, device: &str, threads: f64) -> f64 {
        let by_threads = self.overheads_by_threads_ns.get(device).map_or(&[][..], Vec::as_slice);
        let enough = by_threads.iter().find(|(known, _)| *known >= threads).or(by_threads.last());
        let of_device = || self.overheads_ns.get(device).copied().unwrap_or(self.overhead_ns);
        enough.map_or_else(of_device, |(_, overhead)| *overhead)
    }
}
