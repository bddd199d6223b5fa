//! A model of slowdowns that is fitted to measured pairs of concurrent operators, beyond bandwidth and cache capacity.
//!
//! The slowdown is 1 plus a weighted sum of nonnegative terms that never decrease with a partner's demand. With
//! nonnegative weights, sharing never speeds an operator up. The fit minimises absolute relative errors instead of
//! squares, because some measurements were disturbed. Operators with a measured `Profile` have additional terms.

use super::{Demand, Machine, physical_speeds};
use serde::{Deserialize, Serialize};

/// Losses (slowdowns minus 1) of an operator next to synthetic partners, and the losses of the partners.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    pub sensitivity: Vec<f64>,
    pub pressure: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Learned {
    /// Weights of the model for operators that all have a profile; empty if too few measurements had profiles.
    profiled: Vec<f64>,
    plain: Vec<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CoRunMeasurement<'a> {
    /// Number of cores and demand of the measured operator.
    pub own: (usize, &'a Demand),
    pub others: Vec<(usize, &'a Demand)>,
    pub slowdown: f64,
}

impl Default for Learned {
    fn default() -> Learned {
        Learned { profiled: Vec::new(), plain: vec![1.0] }
    }
}

impl Learned {
    pub fn fit_model(machine: &Machine, seen: &[CoRunMeasurement<'_>]) -> Learned {
        let physical = Machine { learned: Learned::default(), ..machine.clone() };
        let rows = |terms: fn(&Machine, &CoRunMeasurement<'_>) -> Option<Vec<f64>>| {
            seen.iter().filter_map(|one| Some((terms(&physical, one)?, one.slowdown))).collect::<Vec<_>>()
        };
        let plain = fit_weights(&rows(|machine, seen| Some(plain_terms(machine, seen))));
        let with_profile = rows(profiled_terms);
        // If fewer than half of the pairs have profiles, pairs with profiles do not represent the others.
        let profiled = if 2 * with_profile.len() >= seen.len() { fit_weights(&with_profile) } else { Vec::new() };
        if plain.is_empty() { Learned::default() } else { Learned { profiled, plain } }
    }

    pub(super) fn predict_slowdown(&self, machine: &Machine, seen: &CoRunMeasurement<'_>) -> f64 {
        let terms = match profiled_terms(machine, seen) {
            Some(terms) if terms.len() == self.profiled.len() => return 1.0 + weighted_sum(&terms, &self.profiled),
            _ => plain_terms(machine, seen),
        };
        1.0 + weighted_sum(&terms, &self.plain)
    }

    pub fn is_physical(&self) -> bool {
        *self == Learned::default()
    }
}

fn weighted_sum(terms: &[f64], weights: &[f64]) -> f64 {
    terms.iter().zip(weights).map(|(term, weight)| term * weight).sum()
}

/// Returns the slowdown minus 1 from bandwidth and cache capacity, then terms of the partners' bandwidth and cache use.
fn plain_terms(machine: &Machine, CoRunMeasurement { own, others, .. }: &CoRunMeasurement<'_>) -> Vec<f64> {
    let (cores, demand) = *own;
    let mut running = vec![*own];
    running.extend(others);
    let physical = 1.0 / physical_speeds(machine, &running)[0] - 1.0;
    let rate = |cores: usize, demand: &Demand| demand.bandwidth_use(cores, machine) / machine.bytes_per_ns;
    let cached = |cores: usize, demand: &Demand| demand.reused_bytes / demand.time_alone(cores) / machine.bytes_per_ns;
    let of_others =
        |term: &dyn Fn(usize, &Demand) -> f64| others.iter().map(|(cores, one)| term(*cores, one)).sum::<f64>();
    let crowd = of_others(&|_, one| (one.footprint_bytes / machine.cache_bytes).min(1.0));
    let (moved, kept) = (rate(cores, demand), cached(cores, demand).min(4.0));
    vec![
        physical,
        moved * of_others(&rate),
        of_others(&rate),
        kept * crowd,
        kept * of_others(&|cores, one| cached(cores, one).min(4.0)),
        of_others(&|cores, one| cached(cores, one).min(4.0)),
        if others.is_empty() { 0.0 } else { 1.0 },
    ]
}

/// Returns the plain terms, and three per synthetic partner: own sensitivity × others' pressure, pressure, sensitivity.
fn profiled_terms(machine: &Machine, seen: &CoRunMeasurement<'_>) -> Option<Vec<f64>> {
    let own = seen.own.1.profile.as_ref()?;
    let others = seen.others.iter().map(|(_, one)| one.profile.as_ref()).collect::<Option<Vec<_>>>()?;
    let count = own.sensitivity.len();
    if others.iter().any(|one| one.pressure.len() != count) {
        return None;
    }
    let mut terms = plain_terms(machine, seen);
    for partner in 0..count {
        let pressure: f64 = others.iter().map(|one| one.pressure[partner].max(0.0)).sum();
        terms.push(own.sensitivity[partner].max(0.0) * pressure);
        terms.push(pressure);
        terms.push(if others.is_empty() { 0.0 } else { own.sensitivity[partner].max(0.0) });
    }
    Some(terms)
}

/// Fits nonnegative weights that minimise absolute relative errors, by iteratively reweighted least squares.
fn fit_weights(rows: &[(Vec<f64>, f64)]) -> Vec<f64> {
    const TIMES: usize = 30;
    /// Lower limit of residuals in the reweighting, which limits the weight of a row.
    const CLOSEST: f64 = 0.003;
    let mut trust = vec![1.0; rows.len()];
    let mut found = Vec::new();
    for _ in 0..TIMES {
        found = least_squares(rows, &trust);
        for (trust, (terms, slowdown)) in trust.iter_mut().zip(rows) {
            let off = ((1.0 + weighted_sum(terms, &found)) / slowdown - 1.0).abs();
            *trust = CLOSEST / off.max(CLOSEST);
        }
    }
    found
}

/// Fits nonnegative weights to relative errors; a small ridge penalty keeps undetermined weights low.
fn least_squares(rows: &[(Vec<f64>, f64)], trust: &[f64]) -> Vec<f64> {
    const PRICE: f64 = 1e-4;
    const ROUNDS: usize = 300;
    let Some((first, _)) = rows.first() else { return Vec::new() };
    let count = first.len();
    let mut products = vec![vec![0.0; count]; count];
    let mut wanted = vec![0.0; count];
    let mut scale = vec![0.0f64; count];
    for ((terms, slowdown), trust) in rows.iter().zip(trust) {
        let weight = trust / (slowdown * slowdown);
        for one in 0..count {
            wanted[one] += weight * terms[one] * (slowdown - 1.0);
            scale[one] += weight * terms[one] * terms[one];
            for other in 0..count {
                products[one][other] += weight * terms[one] * terms[other];
            }
        }
    }
    let mut found = vec![0.0; count];
    for _ in 0..ROUNDS {
        for one in 0..count {
            let price = PRICE * scale[one] + f64::MIN_POSITIVE;
            let others: f64 =
                (0..count).filter(|other| *other != one).map(|other| products[one][other] * found[other]).sum();
            found[one] = ((wanted[one] - others) / (products[one][one] + price)).max(0.0);
        }
    }
    found
}
