//! Factors that turn times of the machine that a predictor learned from into times of another one, on which a few operators were
//! measured.

use serde::Serialize;
use std::collections::BTreeMap;

/// How far a machine is from the one that was learned from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Distance {
    /// Times of this machine over those of the one that was learned from.
    pub factor: f64,
    /// 90 % of measured operators should lie between this …
    pub low: f64,
    pub high: f64,
}

/// Factors from times of the machine that was learned from to times of another one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HostTranslation {
    pub host_class: String,
    /// The device that was learned from.
    pub learned_on: String,
    /// How far both are from each other.
    pub distance: Distance,
    /// How many operators say so.
    pub sentinels: usize,
    pub cpus: usize,
    /// Factors by kind of operator.
    #[serde(skip)]
    pub kinds: BTreeMap<String, f64>,
    /// Factors of other kinds by what bounds the operator.
    #[serde(skip)]
    pub factors: BTreeMap<String, f64>,
    /// The factor of all other operators.
    #[serde(skip)]
    pub common_factor: f64,
    /// By how much the squares of half-widths of intervals grow, as logarithms.
    #[serde(skip)]
    pub extra_variance: f64,
}

impl HostTranslation {
    /// Returns the factor of a kind of operator, else that of operators that are bound alike.
    pub fn factor(&self, kind: &str, bound: &str) -> f64 {
        self.kinds.get(kind).or_else(|| self.factors.get(bound)).copied().unwrap_or(self.common_factor)
    }

    /// Returns the half-width of an interval on the host, as a logarithm.
    pub fn widened(&self, log_width: f64) -> f64 {
        (log_width.powi(2) + self.extra_variance).sqrt()
    }

    /// Returns how far the host is, in words.
    pub fn note(&self) -> String {
        let HostTranslation { host_class, learned_on, distance, sentinels, .. } = self;
        format!(
            "times are those of this machine, `{host_class}`: {:.2} times those of `{learned_on}`, on which the predictor was trained ({:.2} to {:.2} times, by {sentinels} sentinels)",
            distance.factor, distance.low, distance.high,
        )
    }
}
