//! Data of a comparison: lines over nightly runs.

use super::sentinels::Aspect;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    Before,
    After,
}

/// Values of columns that may explain a difference, by column.
pub type LineFacts = BTreeMap<&'static str, BTreeSet<String>>;

/// A run of `opcollect night`, or all records from one noon to the next.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Night {
    pub label: String,
    pub side: Side,
    /// Start of the first record, in microseconds since 1970.
    pub first_us: i64,
    pub last_us: i64,
    pub records: usize,
    pub facts: LineFacts,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct LineIdentity {
    pub op_kind: String,
    pub task: String,
    pub task_hash: String,
    /// Hash of the schedule; `None` if the best schedule of each night is compared.
    pub schedule_hash: Option<String>,
    pub threads: Option<i64>,
    pub cache_state: Option<&'static str>,
    /// Hash of the network in which the operator was timed; None for times alone.
    pub network: Option<String>,
    /// Target, board, device, threading mode, and other columns that describe the conditions, as text.
    pub place: String,
    pub source: &'static str,
    /// Host, if each host has its own lines.
    pub host: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LinePoint {
    pub night: usize,
    /// Natural logarithm of the time in nanoseconds, averaged over repetitions.
    pub log_ns: f64,
    /// Standard error of `log_ns`.
    pub doubt: f64,
    pub count: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DriftLine {
    pub identity: LineIdentity,
    pub aspect: Option<Aspect>,
    /// Points in the order of nights; nights without a measurement are absent.
    pub points: Vec<LinePoint>,
    /// Variance of repeated measurements within a night, and its degrees of freedom.
    pub looks: (f64, f64),
    pub facts: BTreeMap<Side, LineFacts>,
    /// Number of failed attempts on each side.
    pub losses: BTreeMap<Side, usize>,
}

impl DriftLine {
    pub fn points_of_side<'a>(&'a self, nights: &'a [Night], side: Side) -> impl Iterator<Item = &'a LinePoint> {
        self.points.iter().filter(move |point| nights[point.night].side == side)
    }

    /// Returns the place of the first night of the side `After` in which the line has a time.
    pub fn first_night_after(&self, nights: &[Night]) -> Option<usize> {
        self.points_of_side(nights, Side::After).next().map(|point| point.night)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct History {
    /// Nights of the side `Before`, then of the side `After`, each in chronological order.
    pub nights: Vec<Night>,
    pub lines: Vec<DriftLine>,
    /// Variance of `log_ns` between repetitions within a night, estimated from sentinels.
    pub unrest: Option<f64>,
    pub notes: Vec<String>,
}

impl History {
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
