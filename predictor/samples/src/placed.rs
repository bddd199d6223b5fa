//! Networks whose operators were timed individually while the whole network ran.

use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperatorInNetwork {
    pub operator: String,
    pub text: String,
    pub task: String,
    pub count: f64,
    /// Whether the default schedule was used; sums over a network include only default schedules.
    pub is_default: bool,
    pub in_place_ns: f64,
    /// Isolated time per call with the same schedule, if known.
    pub alone_ns: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacedNetwork {
    pub name: String,
    pub device: String,
    pub threads: i64,
    pub operators: Vec<OperatorInNetwork>,
    /// Time of one run of the whole network with default schedules, if known.
    pub whole_ns: Option<f64>,
}

impl PlacedNetwork {
    pub fn by_default(&self) -> impl Iterator<Item = &OperatorInNetwork> {
        self.operators.iter().filter(|one| one.is_default)
    }

    pub fn in_place_ns(&self) -> f64 {
        self.by_default().map(|one| one.count * one.in_place_ns).sum()
    }

    /// Sums the times of operators that were timed both ways: in the network and in isolation.
    pub fn both_ns(&self) -> (f64, f64) {
        let known = self.by_default().filter_map(|one| Some((one.count * one.in_place_ns, one.count * one.alone_ns?)));
        known.fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    pub fn total_calls(&self) -> f64 {
        self.by_default().map(|one| one.count).sum()
    }
}
