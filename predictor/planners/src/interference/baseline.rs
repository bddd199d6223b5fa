//! What a simpler rule says of slowdowns, to be printed beside the model.

use super::{Demand, Machine};
use serde::Serialize;

/// A simple rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// Partners do not matter.
    None,
    /// Everybody waits for everybody, in parts of the bandwidth that each takes of it alone.
    Sum,
    /// Only the partner that moves most counts.
    Maximum,
    /// Operators are of two classes, those that memory bounds and the others; the first share it evenly.
    Class,
}

impl Baseline {
    /// All of them.
    pub const ALL: [Baseline; 4] = [Baseline::None, Baseline::Sum, Baseline::Maximum, Baseline::Class];

    /// As it is called in tables.
    pub fn name(self) -> &'static str {
        match self {
            Baseline::None => "no interference",
            Baseline::Sum => "sum",
            Baseline::Maximum => "maximum",
            Baseline::Class => "class rule",
        }
    }
}

/// Memory bounds an operator that takes at least this share of the bandwidth.
const BOUND_SHARE: f64 = 0.5;

/// The slowdown of each by a simple rule.
pub fn baseline(rule: Baseline, machine: &Machine, running: &[(usize, &Demand)]) -> Vec<f64> {
    let shares: Vec<f64> =
        running.iter().map(|(cores, demand)| demand.rate(*cores, machine) / machine.bytes_per_ns).collect();
    let others =
        |own: usize| shares.iter().enumerate().filter(move |(place, _)| *place != own).map(|(_, share)| *share);
    let bound = shares.iter().filter(|share| **share >= BOUND_SHARE).count();
    let of = |own: usize| match rule {
        Baseline::None => 1.0,
        Baseline::Sum => 1.0 + others(own).sum::<f64>(),
        Baseline::Maximum => 1.0 + others(own).fold(0.0, f64::max),
        Baseline::Class if shares[own] >= BOUND_SHARE => bound as f64,
        Baseline::Class => 1.0,
    };
    (0..running.len()).map(of).collect()
}
