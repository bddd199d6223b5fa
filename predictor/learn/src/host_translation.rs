//! Factors that turn times of the machine that a predictor learned from into times of another one, on which a few operators were
//! measured.

use serde::Serialize;
use std::collections::BTreeMap;

/// Ratio of this machine to the training machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Distance {
    /// Time here over time on the training machine.
    pub factor: f64,
    /// Ends of the range that holds 90 % of operators.
    pub low: f64,
    pub high: f64,
}

/// Factors from times of the training machine to another host.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HostTranslation {
    pub host_class: String,
    pub learned_on: String,
    pub distance: Distance,
    pub sentinels: usize,
    pub cpus: usize,
    #[serde(skip)]
    pub kinds: BTreeMap<String, f64>,
    /// Factors by bottleneck, for other kinds.
    #[serde(skip)]
    pub factors: BTreeMap<String, f64>,
    #[serde(skip)]
    pub common_factor: f64,
    /// Variance to add to squared log half-widths.
    #[serde(skip)]
    pub extra_variance: f64,
}

impl HostTranslation {
    /// Factor by operator kind, else by bottleneck.
    pub fn find_factor(&self, kind: &str, bound: &str) -> f64 {
        self.kinds.get(kind).or_else(|| self.factors.get(bound)).copied().unwrap_or(self.common_factor)
    }

    pub fn widen_half_width(&self, log_width: f64) -> f64 {
        (log_width.powi(2) + self.extra_variance).sqrt()
    }

    pub fn distance_note(&self) -> String {
        let HostTranslation { host_class, learned_on, distance, sentinels, .. } = self;
        format!(
            "times are those of this machine, `{host_class}`: {:.2} times those of `{learned_on}`, on which the predictor was trained ({:.2} to {:.2} times, by {sentinels} sentinels)",
            distance.factor, distance.low, distance.high,
        )
    }
}
