//! Factors that convert times of the predictor's training machine into times of another, measured machine.

use serde::Serialize;
use std::collections::BTreeMap;

/// Ratio of times on this machine to times on the training machine.
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
    #[serde(skip)]
    pub kinds: BTreeMap<String, f64>,
    /// Factors by bottleneck, for operator kinds without a factor of their own.
    #[serde(skip)]
    pub factors: BTreeMap<String, f64>,
    #[serde(skip)]
    pub common_factor: f64,
    #[serde(skip)]
    pub extra_variance: f64,
}

impl HostTranslation {
    /// Returns the factor of the operator kind, else of the bottleneck, else the common factor.
    pub fn find_factor(&self, kind: &str, bound: &str) -> f64 {
        self.kinds.get(kind).or_else(|| self.factors.get(bound)).copied().unwrap_or(self.common_factor)
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
        format!(
            "times are translated to {machine}, by the factor {:.2} (range {:.2} to {:.2}, measured with {sentinels} sentinel operators); the predictor was trained on `{learned_on}`",
            distance.factor, distance.low, distance.high,
        )
    }
}
