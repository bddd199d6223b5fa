//! Assigns operators to devices such that no operator gains by moving alone (Nash equilibrium), unless that would
//! raise the objective. The result includes a bound on the distance from the optimum.
//!
//! Without edges, the makespan is the largest device load. The cost of an operator is the load of its device plus its
//! energy. With edges and transfer costs, operators run in list-scheduling order and all share one cost: makespan plus
//! energy. Small instances are searched exhaustively, others by local search.

mod bound;
mod exact;
mod game;
mod local;

pub use exact::{EXACT_MOST, count_assignments};
pub use local::search_locally;

use crate::{Error, Result, check_positive, not_negative, topological_order};
use game::Game;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    pub times_ns: Vec<Vec<f64>>,
    pub edges: Vec<Edge>,
    /// Transfer costs between devices; empty for free transfers.
    pub links: Vec<Vec<Link>>,
    /// Energy of each operator on each device in joules; empty if energy has no price.
    pub energies_j: Vec<Vec<f64>>,
    pub price_ns_per_j: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    pub from: usize,
    pub to: usize,
    pub bytes: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    pub latency_ns: f64,
    pub ns_per_byte: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Placement {
    pub devices: Vec<usize>,
    pub makespan_ns: f64,
    /// When each operator ends if each device runs its operators in list-scheduling order, the longest remaining path
    /// first.
    pub ends_ns: Vec<f64>,
    pub energy_j: f64,
    pub objective_ns: f64,
    pub pays_ns: Vec<Vec<f64>>,
    /// Change of the objective if an operator moves alone, by operator and device.
    #[serde(skip)]
    pub objective_changes_ns: Vec<Vec<f64>>,
    /// Largest cost reduction of one operator by moving alone; not positive in an equilibrium.
    pub largest_gain_ns: f64,
    /// Lower bound of the objective if operators run in the order of list scheduling.
    pub least_ns: f64,
    /// Lower bound of the objective for any order of the operators.
    pub least_in_any_order_ns: f64,
    pub is_exact: bool,
    /// Price of anarchy: worst equilibrium over optimum; None unless all assignments were evaluated.
    pub anarchy: Option<f64>,
    /// Upper bound of the price of anarchy for identical devices without transfers and energy.
    pub anarchy_most: Option<f64>,
}

impl Placement {
    /// Returns whether no operator gains by moving alone, except for rounding errors.
    pub fn is_equilibrium(&self) -> bool {
        self.largest_gain_ns <= self.objective_ns.abs() * 1e-9
    }

    pub fn ratio_most(&self) -> f64 {
        if self.least_ns > 0.0 { self.objective_ns / self.least_ns } else { 1.0 }
    }

    /// Returns an upper bound of the ratio of objective to optimum if every time may have a relative error up to `off`.
    /// None for an invalid `off`. The bound for any order is used, because other times may change the list order.
    pub fn robust_ratio(&self, off: f64) -> Option<f64> {
        let is_bounded = (0.0..1.0).contains(&off) && self.least_in_any_order_ns > 0.0;
        is_bounded.then(|| self.objective_ns / self.least_in_any_order_ns * (1.0 + off) / (1.0 - off))
    }
}

pub fn place_operators(instance: &Instance) -> Result<Placement> {
    let game = Game::from_instance(instance)?;
    Ok(match exact::best_assignment(&game) {
        Some(found) => game.settle_moves(found.devices.clone(), Some(&found)),
        None => search_locally(instance)?,
    })
}

impl Instance {
    /// Returns the makespan of an assignment of operators to devices.
    pub fn makespan_of(&self, devices: &[usize]) -> Result<f64> {
        Ok(Game::from_instance(self)?.makespan(devices))
    }

    pub fn device_count(&self) -> usize {
        self.times_ns.first().map_or(0, Vec::len)
    }

    fn check_instance(&self) -> Result<Vec<usize>> {
        let (operators, devices) = (self.times_ns.len(), self.device_count());
        if operators == 0 {
            return Err(Error::Nothing("operator"));
        }
        if devices == 0 {
            return Err(Error::Nothing("device"));
        }
        for (operator, times) in self.times_ns.iter().enumerate() {
            if times.len() != devices {
                return Err(Error::Ragged { operator, found: times.len(), wanted: devices, kind: "devices" });
            }
            for (device, time_ns) in times.iter().enumerate() {
                check_positive(|| format!("the time of operator {operator} on device {device}"), *time_ns)?;
            }
        }
        if !self.energies_j.is_empty() && self.energies_j.len() != operators {
            let found = self.energies_j.len();
            return Err(Error::Ragged { operator: found, found: 0, wanted: devices, kind: "devices" });
        }
        for (operator, energies) in self.energies_j.iter().enumerate() {
            if energies.len() != devices {
                return Err(Error::Ragged { operator, found: energies.len(), wanted: devices, kind: "devices" });
            }
            for energy in energies {
                not_negative(|| format!("the energy of operator {operator}"), *energy)?;
            }
        }
        not_negative(|| "the price of a joule".to_owned(), self.price_ns_per_j)?;
        for link in self.links.iter().flatten() {
            not_negative(|| "the latency of a link".to_owned(), link.latency_ns)?;
            not_negative(|| "the time per byte of a link".to_owned(), link.ns_per_byte)?;
        }
        if !self.links.is_empty() && (self.links.len() != devices || self.links.iter().any(|row| row.len() != devices))
        {
            return Err(Error::Ragged {
                operator: 0,
                found: self.links.len(),
                wanted: devices,
                kind: "links of devices",
            });
        }
        let mut before = vec![Vec::new(); operators];
        for edge in &self.edges {
            not_negative(|| format!("the number of bytes that operator {} reads", edge.to), edge.bytes)?;
            before.get_mut(edge.to).ok_or(Error::Unknown { operator: edge.from, missing: edge.to })?.push(edge.from);
        }
        topological_order(&before)
    }
}

#[cfg(test)]
mod tests;
