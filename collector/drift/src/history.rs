//! Lines over nights, as plain data.

use super::sentinels::Aspect;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Which of two sides a night belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// What is compared with.
    Before,
    /// What is asked about.
    After,
}

/// What may differ besides the time: name of a column to the values that were seen.
pub type Facts = BTreeMap<&'static str, BTreeSet<String>>;

/// A stretch of measuring: a night of `opcollect night`, or what was measured from one noon to the next.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Night {
    /// Its name.
    pub label: String,
    /// Its side.
    pub side: Side,
    /// When its first record was begun, in microseconds since 1970.
    pub first_us: i64,
    /// When its last one was.
    pub last_us: i64,
    /// Records of it that have a time.
    pub records: usize,
    /// Versions, settings and hosts of its records.
    pub facts: Facts,
}

/// What is the same at all points of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Identity {
    /// Kind of the anchor operator.
    pub op_kind: String,
    /// The task for a reader.
    pub task: String,
    /// Its hash.
    pub task_hash: String,
    /// Hash of the schedule; nothing where the best schedule of each night counts.
    pub schedule_hash: Option<String>,
    /// Threads.
    pub threads: Option<i64>,
    /// State of the caches.
    pub cache_state: Option<&'static str>,
    /// Hash of the network that ran around it, where it was timed in its place.
    pub network: Option<String>,
    /// Target, device and way of running beside others, as one text.
    pub place: String,
    /// How the times came about.
    pub source: &'static str,
    /// The host, where several are looked at on one side.
    pub host: Option<String>,
}

/// What is known of a line in one night.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Place of the night.
    pub night: usize,
    /// The logarithm of its time in nanoseconds, the mean over repetitions.
    pub log_ns: f64,
    /// Standard error of that.
    pub doubt: f64,
    /// Repetitions.
    pub count: usize,
}

/// One task by one schedule over nights.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// What it is.
    pub identity: Identity,
    /// What it tests, where it is a sentinel.
    pub aspect: Option<Aspect>,
    /// One point for each night that has it, in the order of nights.
    pub points: Vec<Point>,
    /// The variance of a look among those of the same night, and its degrees of freedom.
    pub looks: (f64, f64),
    /// What may differ besides the time, by side.
    pub facts: BTreeMap<Side, Facts>,
    /// How attempts ended that gave no time, by side.
    pub losses: BTreeMap<Side, usize>,
}

impl Line {
    /// Its points of a side.
    pub fn of_side<'a>(&'a self, nights: &'a [Night], side: Side) -> impl Iterator<Item = &'a Point> {
        self.points.iter().filter(move |point| nights[point.night].side == side)
    }
}

/// Everything that was gathered.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct History {
    /// Nights, those before the others, each side by time.
    pub nights: Vec<Night>,
    /// Lines, sentinels among them.
    pub lines: Vec<Line>,
    /// How much a median moves from one repetition to the next within a night, as a variance of logarithms; from sentinels.
    pub unrest: Option<f64>,
    /// What to know of the records.
    pub notes: Vec<String>,
}

impl History {
    /// Leaves out all nights before but the last ones.
    pub fn keep_last(&mut self, nights: usize) {
        let before = self.nights.iter().filter(|night| night.side == Side::Before).count();
        let left_out = before.saturating_sub(nights);
        self.nights.drain(..left_out);
        for line in &mut self.lines {
            line.points.retain(|point| point.night >= left_out);
            line.points.iter_mut().for_each(|point| point.night -= left_out);
        }
    }
}
