//! Baseline rules for slowdowns, reported alongside the model's predictions.

use super::{Demand, Machine};
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    None,
    /// The slowdown is 1 plus the sum of the partners' bandwidth shares.
    Sum,
    /// The slowdown is 1 plus the largest bandwidth share of a partner.
    Maximum,
    /// Operators are classified as memory-bound or not. Memory-bound operators share the bandwidth evenly.
    Class,
}

impl Baseline {
    pub const ALL: [Baseline; 4] = [Baseline::None, Baseline::Sum, Baseline::Maximum, Baseline::Class];

    pub fn name(self) -> &'static str {
        match self {
            Baseline::None => "no interference",
            Baseline::Sum => "sum",
            Baseline::Maximum => "maximum",
            Baseline::Class => "class rule",
        }
    }
}

const BOUND_SHARE: f64 = 0.5;

pub fn rule_slowdowns(rule: Baseline, machine: &Machine, running: &[(usize, &Demand)]) -> Vec<f64> {
    let shares: Vec<f64> =
        running.iter().map(|(cores, demand)| demand.bandwidth_use(*cores, machine) / machine.bytes_per_ns).collect();
    let others =
        |own: usize| shares.iter().enumerate().filter(move |(place, _)| *place != own).map(|(_, share)| *share);
    let bound = shares.iter().filter(|share| **share >= BOUND_SHARE).count();
    let slowdown = |own: usize| match rule {
        Baseline::None => 1.0,
        Baseline::Sum => 1.0 + others(own).sum::<f64>(),
        Baseline::Maximum => 1.0 + others(own).fold(0.0, f64::max),
        Baseline::Class if shares[own] >= BOUND_SHARE => bound as f64,
        Baseline::Class => 1.0,
    };
    (0..running.len()).map(slowdown).collect()
}
