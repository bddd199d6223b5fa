//! Converts times of the predictor's training machine into times of another, measured machine: by the ratio of the
//! attainable times, if the peak rates of both are known, and by measured factors.

use samples::features::{self, Peaks, Work};
use serde::Serialize;
use std::collections::BTreeMap;

/// Ratio of times on this machine to times on the training machine, after conversion by peak rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Distance {
    pub factor: f64,
    /// Lower end of the range of factors of 90 % of the operators.
    pub low: f64,
    pub high: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HostTranslation {
    pub host_class: String,
    pub learned_on: String,
    pub distance: Distance,
    pub sentinels: usize,
    pub cpus: usize,
    /// Measured peak rates of this machine, if known.
    #[serde(skip)]
    pub peaks: Option<Peaks>,
    #[serde(skip)]
    pub factors: Factors,
    #[serde(skip)]
    pub extra_variance: f64,
}

/// Factors of measured operators, each shrunk towards the common one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Factors {
    pub kinds: BTreeMap<String, KindFactors>,
    pub bounds: BTreeMap<String, f64>,
    pub common: f64,
}

/// Factors of an operator kind: of all its operators, and by bottleneck.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KindFactors {
    pub all: f64,
    pub bounds: BTreeMap<String, f64>,
}

impl Factors {
    /// Returns the factor of the operator kind with this bottleneck. If it was measured with others only, its factor and
    /// that of the bottleneck count alike.
    pub fn find_factor(&self, kind: &str, bound: &str) -> f64 {
        let of_bound = self.bounds.get(bound).copied();
        match self.kinds.get(kind) {
            Some(KindFactors { all, bounds }) => {
                bounds.get(bound).copied().unwrap_or_else(|| (all * of_bound.unwrap_or(*all)).sqrt())
            }
            None => of_bound.unwrap_or(self.common),
        }
    }
}

impl HostTranslation {
    /// Returns the times of the arithmetic and of the compulsory traffic at the peak rates of this machine, if known.
    pub fn roofline_ns(&self, work: &Work, threads: f64) -> Option<(f64, f64)> {
        features::roofline_by_peaks(work, self.peaks.as_ref()?, threads)
    }

    /// Returns the capacity of a core's second-level cache as far as the peak rates show it, a power of two.
    pub fn cache_bytes(&self) -> Option<f64> {
        let sets = &self.peaks.as_ref()?.memory;
        let second = sets.iter().filter(|set| set.threads == 1 && set.level.as_deref() == Some("L2"));
        second.map(|set| set.working_set_bytes as f64).reduce(f64::max)
    }

    pub fn widen_half_width(&self, log_width: f64) -> f64 {
        (log_width.powi(2) + self.extra_variance).sqrt()
    }

    /// Returns a note on the translated times; `here` is the class of this machine.
    pub fn distance_note(&self, here: &str) -> String {
        let HostTranslation { host_class, learned_on, distance, sentinels, .. } = self;
        let machine = match host_class == here {
            true => format!("this machine, `{host_class}`"),
            false => format!("`{host_class}`, where the calibration was made, not to this machine, `{here}`"),
        };
        let by = if self.peaks.is_some() { "its peak rates and the factor" } else { "the factor" };
        format!(
            "times are translated to {machine}, by {by} {:.2} (range {:.2} to {:.2}, measured with {sentinels} sentinel operators); the predictor was trained on `{learned_on}`",
            distance.factor, distance.low, distance.high,
        )
    }
}
