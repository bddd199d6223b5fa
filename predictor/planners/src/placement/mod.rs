//! Operators on devices: an assignment from which nobody wants to move, and how far it can be from the best one.
//!
//! Without edges, operators of a device run one after the other in any order, and the whole takes as long as the device with
//! most to do. What an operator *pays* is when its device is done, and its energy: it moves where it would pay less, and where
//! nobody does, that is a Nash equilibrium. With edges and costs of transfer, operators run in the order of a list, and all pay
//! the same: what the whole takes. Small questions are answered by looking at every assignment, others by moves and exchanges
//! from several beginnings; the answer carries its certificate either way.

mod bound;
mod exact;
mod game;
mod local;

pub use exact::{EXACT_MOST, assignments};
pub use local::local;

use crate::{Error, Result, not_negative, positive, topological};
use game::Game;
use serde::{Deserialize, Serialize};

/// What is to be placed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// The time of each operator on each device.
    pub times_ns: Vec<Vec<f64>>,
    /// What an operator reads of what others make.
    pub edges: Vec<Edge>,
    /// What it costs to bring something from one device to another; nothing where left out.
    pub links: Vec<Vec<Link>>,
    /// The energy of each operator on each device, in joules; left out where it does not matter.
    pub energies_j: Vec<Vec<f64>>,
    /// What a joule is worth, in nanoseconds.
    pub price_ns_per_j: f64,
}

/// Something that one operator makes and another one reads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Edge {
    /// Who makes it.
    pub from: usize,
    /// Who reads it.
    pub to: usize,
    /// Its size.
    pub bytes: f64,
}

/// The way between two devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// What any transfer takes.
    pub latency_ns: f64,
    /// What each byte takes.
    pub ns_per_byte: f64,
}

/// Where operators go.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Placement {
    /// The device of each operator.
    pub devices: Vec<usize>,
    /// When the last device is done.
    pub makespan_ns: f64,
    /// Energy of all.
    pub energy_j: f64,
    /// What was made small: the makespan, and the energy at its price.
    pub objective_ns: f64,
    /// What each operator pays on each device while the others stay.
    pub pays_ns: Vec<Vec<f64>>,
    /// The most that any operator gains by a move of its own: not above zero in an equilibrium.
    pub largest_gain_ns: f64,
    /// No assignment takes less.
    pub least_ns: f64,
    /// No assignment takes less, in whatever order its operators run; `least_ns` may be of the order of the list alone.
    pub least_in_any_order_ns: f64,
    /// Whether every assignment was looked at.
    pub is_exact: bool,
    /// The worst equilibrium over the best assignment, where every assignment was looked at.
    pub anarchy: Option<f64>,
    /// What that can be at most for devices that are all alike, and nothing to transfer or to pay.
    pub anarchy_most: Option<f64>,
}

impl Placement {
    /// Whether no operator wants to move, to the last digits.
    pub fn is_equilibrium(&self) -> bool {
        self.largest_gain_ns <= self.objective_ns.abs() * 1e-9
    }

    /// How many times as long as the best assignment it takes at most.
    pub fn ratio_most(&self) -> f64 {
        if self.least_ns > 0.0 { self.objective_ns / self.least_ns } else { 1.0 }
    }

    /// Returns how many times as long as the best assignment this one takes at most when every time may be off by this share,
    /// either way; nothing for a share that is none.
    ///
    /// By the true times this assignment takes at most `1 + off` times as long as by the given ones, and any other takes at
    /// least `1 - off` times as long. So the errors multiply what this assignment is above the bound already; the bound
    /// must hold in any order, because other times may put operators into another one.
    pub fn promise(&self, off: f64) -> Option<f64> {
        let is_bounded = (0.0..1.0).contains(&off) && self.least_in_any_order_ns > 0.0;
        is_bounded.then(|| self.objective_ns / self.least_in_any_order_ns * (1.0 + off) / (1.0 - off))
    }
}

/// The best assignment that is found, with its certificate.
pub fn place(instance: &Instance) -> Result<Placement> {
    let game = Game::of(instance)?;
    Ok(match exact::best(&game) {
        Some(found) => game.settle(found.devices.clone(), Some(&found)),
        None => local(instance)?,
    })
}

impl Instance {
    /// How many devices there are.
    pub fn devices(&self) -> usize {
        self.times_ns.first().map_or(0, Vec::len)
    }

    /// Refuses what makes no sense; the order in which operators run.
    fn check(&self) -> Result<Vec<usize>> {
        let (operators, devices) = (self.times_ns.len(), self.devices());
        if operators == 0 {
            return Err(Error::Nothing("operator"));
        }
        if devices == 0 {
            return Err(Error::Nothing("device"));
        }
        for (operator, times) in self.times_ns.iter().enumerate() {
            if times.len() != devices {
                return Err(Error::Ragged { operator, found: times.len(), wanted: devices, of: "devices" });
            }
            for (device, time_ns) in times.iter().enumerate() {
                positive(|| format!("the time of operator {operator} on device {device}"), *time_ns)?;
            }
        }
        if !self.energies_j.is_empty() && self.energies_j.len() != operators {
            let found = self.energies_j.len();
            return Err(Error::Ragged { operator: found, found: 0, wanted: devices, of: "devices" });
        }
        for (operator, energies) in self.energies_j.iter().enumerate() {
            if energies.len() != devices {
                return Err(Error::Ragged { operator, found: energies.len(), wanted: devices, of: "devices" });
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
            return Err(Error::Ragged { operator: 0, found: self.links.len(), wanted: devices, of: "devices' links" });
        }
        let mut before = vec![Vec::new(); operators];
        for edge in &self.edges {
            not_negative(|| format!("what operator {} reads", edge.to), edge.bytes)?;
            before.get_mut(edge.to).ok_or(Error::Unknown { operator: edge.from, missing: edge.to })?.push(edge.from);
        }
        topological(&before)
    }
}

#[cfg(test)]
mod tests;
