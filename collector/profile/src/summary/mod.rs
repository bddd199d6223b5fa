//! Where the time went: spans of a profile put together by what a person asks for, and the whole that they are parts of.
//!
//! Sum, total and what no operator accounts for are always there. Times of rows are of single calls; where a row has several
//! operators, its rates are of all their work over all their typical times.

pub mod comma;
mod group;
pub mod simulated;
pub mod threads;

use crate::data::{Kind, MemoryEvent, Operator, Pool, Profile};
use crate::sort::SortBy;
use group::Group;
use measure::statistics::median;
use measure::{Ratio, ratio};
use models::Choice;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use threads::{Spread, parts};

/// What stands in one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupBy {
    /// What has one name.
    Name,
    /// What has one name and works on the same shapes.
    #[default]
    InputShape,
    /// What stands in the same place, by so many of the outermost names of modules.
    Scope(usize),
    /// Each call of a run.
    Call,
}

models::choice! {
    /// What is one row, by name.
    pub enum GroupName {
        /// Operators of one name
        Name = "name",
        /// Operators of one name on the same shapes
        InputShape = "input-shape",
        /// Operators at one place of the model's modules
        Scope = "scope",
        /// Each call of a run
        Call = "call",
    }
}

impl GroupBy {
    /// Returns the name of the grouping.
    pub fn name(self) -> &'static str {
        let name = match self {
            GroupBy::Name => GroupName::Name,
            GroupBy::InputShape => GroupName::InputShape,
            GroupBy::Scope(_) => GroupName::Scope,
            GroupBy::Call => GroupName::Call,
        };
        name.name()
    }
}

impl GroupName {
    /// Returns the grouping, with a number of the outermost names of modules.
    pub fn with_levels(self, levels: usize) -> GroupBy {
        match self {
            GroupName::Name => GroupBy::Name,
            GroupName::InputShape => GroupBy::InputShape,
            GroupName::Scope => GroupBy::Scope(levels),
            GroupName::Call => GroupBy::Call,
        }
    }
}

/// One row.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// What it does.
    pub name: String,
    /// The same with sizes, where the row has one task.
    pub text: String,
    /// Where it stands in the model; of several, what they have in common.
    pub scope: String,
    /// The hash of its task, where there is one.
    pub task: Option<String>,
    /// The hash of its schedule, where there is one.
    pub schedule: Option<String>,
    /// Shapes of its inputs, where all are the same.
    pub input_shapes: Vec<Vec<i64>>,
    /// Element types of its inputs, where all are the same.
    pub input_dtypes: Vec<String>,
    /// How its operands are stored, where that is the same.
    pub layout: Option<String>,
    /// Calls in all steps.
    pub calls: u64,
    /// Calls in one step.
    pub calls_per_step: f64,
    /// Time of all calls.
    pub total_ns: u64,
    /// Time of all calls that is not that of parts.
    pub self_total_ns: u64,
    /// The least call.
    pub min_ns: f64,
    /// The middle call.
    pub median_ns: f64,
    /// The 95 % interval of the middle call; nothing for few calls.
    pub median_interval_ns: Option<(f64, f64)>,
    /// The mean call.
    pub mean_ns: f64,
    /// The call that 95 in 100 are below.
    pub p95_ns: f64,
    /// Processor time of a mean call, of all threads in their parts of it, where it was counted.
    pub cpu_ns: Option<f64>,
    /// Its part of all that operators take.
    pub share: f64,
    /// Operations of a mean call.
    pub flops: Option<f64>,
    /// Bytes that a mean call moves at least.
    pub bytes: Option<f64>,
    /// Operations per second, in thousand millions.
    pub gflops_per_second: Option<f64>,
    /// Bytes per second, in thousand millions.
    pub gbytes_per_second: Option<f64>,
    /// The time it could take at best, over the time it takes.
    pub roofline_share: Option<f64>,
    /// Memory that a run's calls take for what they make, where that is known.
    pub allocated_bytes: Option<u64>,
    /// What its calls ask of a workspace at most, where that is known.
    pub workspace_bytes: Option<u64>,
    /// The most memory between operators that is taken during any of its calls.
    pub live_bytes: Option<u64>,
    /// Mean count per call of each counter that counted in any of its calls.
    pub counters: BTreeMap<String, f64>,
    /// What follows from counts.
    #[serde(flatten)]
    pub derived: Derived,
    /// How its parts were spread over threads.
    #[serde(flatten)]
    pub spread: Spread,
}

impl Row {
    /// What rows are ordered by, the largest first; equal ones stay as they are called.
    fn order(&self, by: SortBy) -> f64 {
        match by {
            SortBy::CpuTime => self.mean_ns,
            SortBy::CpuTimeTotal => self.total_ns as f64,
            SortBy::SelfCpuTimeTotal => self.self_total_ns as f64,
            SortBy::Count => self.calls as f64,
            SortBy::CpuMemoryUsage | SortBy::SelfCpuMemoryUsage => self.allocated_bytes.unwrap_or(0) as f64,
            SortBy::Order => 0.0,
            // Of calls nothing but times on the host is known here.
            SortBy::DeviceTime
            | SortBy::DeviceTimeTotal
            | SortBy::SelfDeviceTimeTotal
            | SortBy::DeviceMemoryUsage
            | SortBy::SelfDeviceMemoryUsage => 0.0,
        }
    }
}

/// What follows from counts, where all that it takes was counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Derived {
    /// Instructions per cycle.
    pub instructions_per_cycle: Option<f64>,
    /// Loads that missed the last cache, per 1000 operations.
    pub llc_misses_per_kflop: Option<f64>,
    /// Bytes that came from memory because the last cache missed them, in thousand millions per second.
    pub llc_gbytes_per_second: Option<f64>,
    /// Cycles per nanosecond of processor time.
    pub ghz: Option<f64>,
}

/// The whole that rows are parts of.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Steps.
    pub steps: usize,
    /// What operators take in all steps together.
    pub sum_ns: u64,
    /// All steps from begin to end.
    pub total_ns: u64,
    /// What of the steps no operator accounts for.
    pub not_attributed_ns: u64,
    /// The middle step.
    pub step_median_ns: f64,
    /// The least step.
    pub step_min_ns: f64,
    /// The middle of the runs nobody looked at.
    pub bare_median_ns: Option<f64>,
    /// Steps over the runs nobody looked at, each beside its own: what looking costs.
    pub profiler_slowdown: Option<Ratio>,
}

/// All rows, ordered.
pub fn rows(profile: &Profile, group_by: GroupBy, sort_by: SortBy) -> Vec<Row> {
    let own = profile.self_ns();
    let memory = memory(profile);
    let parts = parts(profile);
    let asked = profile.memory.iter().filter(|event| event.pool == Pool::Workspace && event.bytes >= 0);
    let workspace: BTreeMap<usize, u64> =
        asked.filter_map(|event| Some((event.span? as usize, event.live_bytes))).collect();
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let mut group_of: BTreeMap<u32, String> = BTreeMap::new();
    let mut counted: BTreeMap<(u32, u32), (f64, u64)> = BTreeMap::new();
    for count in &profile.counts {
        let sum = counted.entry((profile.spans[count.span as usize].operator, count.counter)).or_default();
        *sum = (sum.0 + count.value as f64, sum.1 + 1);
    }
    for (place, span) in profile.spans.iter().enumerate().filter(|(_, span)| span.kind == Kind::Operator) {
        let operator = &profile.operators[span.operator as usize];
        let key = group_of.entry(span.operator).or_insert_with(|| key(operator, span.operator, group_by));
        let group = groups.entry(key.clone()).or_insert_with(|| Group { first: place, ..Group::default() });
        group.operators.entry(span.operator).or_default().push(span.duration_ns as f64);
        group.total_ns += span.duration_ns;
        group.self_total_ns += own[place];
        group.parts.extend(parts.get(&place));
        group.workspace_bytes = group.workspace_bytes.max(workspace.get(&place).copied());
        if let Some((taken, live)) = memory.get(&place) {
            group.allocated_bytes = Some(group.allocated_bytes.unwrap_or(0) + taken);
            group.live_bytes = group.live_bytes.max(Some(*live));
        }
    }
    let sum_ns: u64 = groups.values().map(|group| group.self_total_ns).sum();
    let mut ordered: Vec<&Group> = groups.values().collect();
    ordered.sort_by_key(|group| group.first);
    let mut rows: Vec<Row> = ordered.iter().map(|group| group.row(profile, &counted, sum_ns, group_by)).collect();
    rows.sort_by(|left, right| right.order(sort_by).total_cmp(&left.order(sort_by)));
    rows
}

/// What each span takes of the memory between operators, and what is taken of it at most meanwhile. Of spans of steps without
/// events nothing is known.
fn memory(profile: &Profile) -> BTreeMap<usize, (u64, u64)> {
    let events = || profile.memory.iter().filter(|event| event.pool == Pool::Activations);
    let steps: BTreeSet<Option<u32>> =
        events().filter_map(|event| Some(profile.spans[event.span? as usize].step)).collect();
    let in_steps = profile.spans.iter().enumerate().filter(|(_, span)| steps.contains(&span.step));
    let mut before = events().peekable();
    let mut now = 0;
    let mut known: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    for (place, span) in in_steps {
        // What was taken before a span still is when it begins, and what it gives back it has until its end.
        let is_before = |event: &&MemoryEvent| match event.span {
            Some(own) => (own as usize) < place,
            None => event.at_ns < span.start_ns,
        };
        while let Some(event) = before.next_if(is_before) {
            now = event.live_bytes;
        }
        known.insert(place, (0, now));
    }
    for event in events() {
        let Some(span) = event.span.and_then(|span| known.get_mut(&(span as usize))) else { continue };
        span.0 += u64::try_from(event.bytes).unwrap_or(0);
        span.1 = span.1.max(event.live_bytes);
    }
    known
}

/// What of all steps is known.
pub fn totals(profile: &Profile) -> Totals {
    let own = profile.self_ns();
    let operators = profile.spans.iter().zip(own).filter(|(span, _)| span.kind == Kind::Operator);
    let sum_ns = operators.map(|(_, own)| own).sum();
    let total_ns = profile.steps.iter().map(|step| step.duration_ns).sum::<u64>();
    let steps: Vec<f64> = profile.steps.iter().map(|step| step.duration_ns as f64).collect();
    let bare: Vec<f64> = profile.bare_ns.iter().map(|&ns| ns as f64).collect();
    let is_beside = steps.len() == bare.len() && bare.iter().all(|&ns| ns > 0.0);
    let (steps_sorted, bare_sorted) = (sorted(&steps), sorted(&bare));
    Totals {
        steps: steps.len(),
        sum_ns,
        total_ns,
        not_attributed_ns: total_ns.saturating_sub(sum_ns),
        step_median_ns: if steps.is_empty() { 0.0 } else { median(&steps_sorted) },
        step_min_ns: steps_sorted.first().copied().unwrap_or(0.0),
        bare_median_ns: (!bare.is_empty()).then(|| median(&bare_sorted)),
        profiler_slowdown: is_beside.then(|| ratio(&steps, &bare)).flatten(),
    }
}

fn sorted(all: &[f64]) -> Vec<f64> {
    let mut all = all.to_vec();
    all.sort_by(f64::total_cmp);
    all
}

fn key(operator: &Operator, place: u32, group_by: GroupBy) -> String {
    match group_by {
        GroupBy::Name => operator.name.clone(),
        GroupBy::InputShape => {
            format!("{} {:?} {:?}", operator.name, operator.task, operator.input_shapes)
        }
        GroupBy::Scope(levels) => outermost(&operator.scope, levels).to_owned(),
        GroupBy::Call => place.to_string(),
    }
}

/// What stands between names of modules: a point in most formats, a slash in names of ONNX files.
const SEPARATORS: [char; 2] = ['.', '/'];

/// So many of the outermost names of a scope; none for all.
pub(crate) fn outermost(scope: &str, levels: usize) -> &str {
    let end = scope.match_indices(SEPARATORS).map(|(end, _)| end).nth(levels.wrapping_sub(1));
    end.filter(|_| levels > 0).map_or(scope, |end| &scope[..end])
}

/// What two scopes begin with, whole names only.
fn common<'a>(left: &'a str, right: &str) -> &'a str {
    let same = left.split(SEPARATORS).zip(right.split(SEPARATORS)).take_while(|(left, right)| left == right);
    let length = same.map(|(name, _)| name.len() + 1).sum::<usize>();
    &left[..length.saturating_sub(1)]
}

#[cfg(test)]
mod tests;
