//! Networks whose operators were timed in their places.

use serde::Serialize;

/// An operator in its place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Placed {
    /// Its kind.
    pub operator: String,
    /// What it does, with sizes.
    pub text: String,
    /// The hash of its task.
    pub task: String,
    /// How often the network runs it.
    pub count: f64,
    /// Whether it ran by its default schedule: a network is summed by those, whatever else was tried in its places.
    pub is_default: bool,
    /// One call in its place.
    pub in_place_ns: f64,
    /// One call alone, by the same schedule, where that is known.
    pub alone_ns: Option<f64>,
}

/// A network whose operators were timed in their places.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacedNetwork {
    /// Its name.
    pub name: String,
    /// The device.
    pub device: String,
    /// Threads.
    pub threads: i64,
    /// Its operators, by each schedule that was timed.
    pub operators: Vec<Placed>,
    /// One run of the whole by the default schedules, where that is known.
    pub whole_ns: Option<f64>,
}

impl PlacedNetwork {
    /// The operators by their default schedules.
    pub fn by_default(&self) -> impl Iterator<Item = &Placed> {
        self.operators.iter().filter(|one| one.is_default)
    }

    /// All of those in their places.
    pub fn in_place_ns(&self) -> f64 {
        self.by_default().map(|one| one.count * one.in_place_ns).sum()
    }

    /// Those that are known alone: in their places, and alone.
    pub fn both_ns(&self) -> (f64, f64) {
        let known = self.by_default().filter_map(|one| Some((one.count * one.in_place_ns, one.count * one.alone_ns?)));
        known.fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    /// Calls of one run.
    pub fn calls(&self) -> f64 {
        self.by_default().map(|one| one.count).sum()
    }
}
