//! Networks whose operators were timed while the whole network ran.

use serde::Serialize;

/// An operator timed in the network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Placed {
    pub operator: String,
    /// The operator with its sizes, as text.
    pub text: String,
    pub task: String,
    /// Calls in one run of the network.
    pub count: f64,
    /// Whether it ran by its default schedule. Sums over a network take default schedules only.
    pub is_default: bool,
    /// Time of one call in the network.
    pub in_place_ns: f64,
    /// Time of one call alone, by the same schedule, if known.
    pub alone_ns: Option<f64>,
}

/// A network with the times of its operators.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacedNetwork {
    pub name: String,
    pub device: String,
    pub threads: i64,
    /// Operators of the network, one entry for each timed schedule.
    pub operators: Vec<Placed>,
    /// Time of one run of the network by the default schedules, if known.
    pub whole_ns: Option<f64>,
}

impl PlacedNetwork {
    /// Returns the operators with their default schedules.
    pub fn by_default(&self) -> impl Iterator<Item = &Placed> {
        self.operators.iter().filter(|one| one.is_default)
    }

    /// Returns the sum of the times of all operators in the network.
    pub fn in_place_ns(&self) -> f64 {
        self.by_default().map(|one| one.count * one.in_place_ns).sum()
    }

    /// Returns two sums over the operators that were also timed alone: of their times in the network, and alone.
    pub fn both_ns(&self) -> (f64, f64) {
        let known = self.by_default().filter_map(|one| Some((one.count * one.in_place_ns, one.count * one.alone_ns?)));
        known.fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    /// Returns the number of calls in one run.
    pub fn calls(&self) -> f64 {
        self.by_default().map(|one| one.count).sum()
    }
}
