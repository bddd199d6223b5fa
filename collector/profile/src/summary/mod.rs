//! Operator table of a profile, grouped by a selectable key, and its totals.
//! The totals always include the sum of all operators, the duration of all steps and the unattributed rest. Times of a
//! row refer to single calls. For a row with several operators, rates are its total work over its total typical time.

pub mod csv;
mod group;
pub mod simulated;
pub mod threads;
pub mod visits;

use crate::data::{Kind, MemoryEvent, Operator, Pool, Profile, Source};
use crate::sort::SortBy;
use group::{SpanGroup, Sums};
use measure::statistics::{CONFIDENCE, median_interval, median_of_sorted};
use measure::{Ratio, paired_ratio};
use models::Choice;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use threads::{Spread, task_parts};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupBy {
    Name,
    #[default]
    InputShape,
    /// Operators in the same module, where scopes are cut to this number of outermost module names.
    Scope(usize),
    Call,
}

models::choice! {
    /// Grouping key of table rows
    pub enum GroupName {
        /// Operators with the same name
        Name = "name",
        /// Operators with the same name and input shapes
        InputShape = "input-shape",
        /// Operators with the same scope in the model
        Scope = "scope",
        /// Single calls of a run
        Call = "call",
    }
}

impl GroupBy {
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
    pub fn with_levels(self, levels: usize) -> GroupBy {
        match self {
            GroupName::Name => GroupBy::Name,
            GroupName::InputShape => GroupBy::InputShape,
            GroupName::Scope => GroupBy::Scope(levels),
            GroupName::Call => GroupBy::Call,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    pub name: String,
    /// Operators of the row, as indices in the profile.
    #[serde(skip)]
    pub operators: Vec<u32>,
    /// Description with sizes; empty unless the row has a single task.
    pub text: String,
    /// Scope in the model; the common prefix if there are several scopes.
    pub scope: String,
    /// Hash of the task; None unless the row has a single task.
    pub task: Option<String>,
    pub schedule: Option<String>,
    /// Shapes of the inputs, if all calls agree.
    pub input_shapes: Vec<Vec<i64>>,
    /// Whether calls differ in their input shapes, so that their times are not comparable.
    pub has_mixed_shapes: bool,
    pub input_dtypes: Vec<String>,
    pub layout: Option<String>,
    pub calls: u64,
    pub calls_per_step: f64,
    pub total_ns: u64,
    pub self_total_ns: u64,
    pub min_ns: f64,
    pub median_ns: f64,
    /// 95 % confidence interval of the median within the recorded process; `None` for too few calls.
    pub median_interval_ns: Option<(f64, f64)>,
    pub mean_ns: f64,
    pub p95_ns: f64,
    /// Mean processor time of a call, summed over threads, if it was counted.
    pub cpu_ns: Option<f64>,
    /// Median self time of a call times the calls of a run, summed over operators.
    pub typical_ns: f64,
    /// Share of the typical time of all operators, which is robust to single disturbed calls.
    pub share: f64,
    pub total_share: f64,
    /// Typical time of all calls of a run in each visit (process), the recorded one first; empty for profiles of a single visit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub visits_ns: Vec<f64>,
    pub flops: Option<f64>,
    /// Minimum number of bytes that an average call moves.
    pub bytes: Option<f64>,
    pub gflops_per_second: Option<f64>,
    pub gbytes_per_second: Option<f64>,
    /// Ratio of the roofline bound to the measured time.
    pub roofline_share: Option<f64>,
    /// Bytes allocated for results by the calls of one run, if known.
    pub allocated_bytes: Option<u64>,
    pub workspace_bytes: Option<u64>,
    /// Peak bytes in use by tensors that operators pass on, during any of the calls.
    pub live_bytes: Option<u64>,
    /// Mean count per call of each counter with data.
    pub counters: BTreeMap<String, f64>,
    #[serde(flatten)]
    pub derived: Derived,
    #[serde(flatten)]
    pub spread: Spread,
}

impl Row {
    /// Returns the description with sizes, or the name if there is none.
    pub fn title(&self) -> &str {
        if self.text.is_empty() { &self.name } else { &self.text }
    }

    /// Returns whether the rate exceeds the roofline by so much that tables show more than 100 %.
    pub fn is_above_roofline(&self) -> bool {
        self.roofline_share.is_some_and(|share| share >= 1.005)
    }

    /// Returns the sort key. The largest value comes first; equal rows stay in call order.
    fn sort_key(&self, by: SortBy) -> f64 {
        match by {
            SortBy::Share => self.typical_ns,
            SortBy::CpuTime => self.mean_ns,
            SortBy::CpuTimeTotal => self.total_ns as f64,
            SortBy::SelfCpuTimeTotal => self.self_total_ns as f64,
            SortBy::Count => self.calls as f64,
            SortBy::CpuMemoryUsage | SortBy::SelfCpuMemoryUsage => self.allocated_bytes.unwrap_or(0) as f64,
            SortBy::Order => 0.0,
            // The summary covers host times only.
            SortBy::DeviceTime
            | SortBy::DeviceTimeTotal
            | SortBy::SelfDeviceTimeTotal
            | SortBy::DeviceMemoryUsage
            | SortBy::SelfDeviceMemoryUsage => 0.0,
        }
    }
}

/// Metrics derived from counters; each is None unless all required counters are present.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Derived {
    pub instructions_per_cycle: Option<f64>,
    pub llc_misses_per_kflop: Option<f64>,
    /// Memory traffic due to last-level cache misses in 10⁹ bytes per second.
    pub llc_gbytes_per_second: Option<f64>,
    /// Clock rate: cycles per nanosecond of processor time.
    pub ghz: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    pub steps: usize,
    pub sum_ns: u64,
    pub total_ns: u64,
    pub not_attributed_ns: u64,
    pub step_median_ns: f64,
    /// 95 % confidence interval of the median; `None` for too few steps.
    pub step_interval_ns: Option<(f64, f64)>,
    pub step_min_ns: f64,
    /// Time of a step by the medians of its operators, if most steps took much longer: single disturbances lengthen a
    /// step, but not these medians.
    pub typical: Option<TypicalStep>,
    pub bare_median_ns: Option<f64>,
    /// Ratio of each step to its paired unprofiled run: the overhead of profiling.
    pub profiler_slowdown: Option<Ratio>,
}

/// Sum of the medians of a step's operators and of the mean gaps between them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TypicalStep {
    pub time_ns: f64,
    /// 95 % confidence interval, unless a median has none.
    pub interval_ns: Option<(f64, f64)>,
}

pub fn summary_rows(profile: &Profile, group_by: GroupBy, sort_by: SortBy) -> Vec<Row> {
    let own = profile.self_ns();
    let memory = span_memory(profile);
    let parts = task_parts(profile);
    let asked = profile.memory.iter().filter(|event| event.pool == Pool::Workspace && event.bytes >= 0);
    let workspace: BTreeMap<usize, u64> =
        asked.filter_map(|event| Some((event.span? as usize, event.live_bytes))).collect();
    let mut groups: BTreeMap<String, SpanGroup> = BTreeMap::new();
    let mut group_of: BTreeMap<u32, String> = BTreeMap::new();
    let mut counted: BTreeMap<(u32, u32), (f64, u64)> = BTreeMap::new();
    for count in &profile.counts {
        let sum = counted.entry((profile.spans[count.span as usize].operator, count.counter)).or_default();
        *sum = (sum.0 + count.value as f64, sum.1 + 1);
    }
    for (place, span) in profile.spans.iter().enumerate().filter(|(_, span)| span.kind == Kind::Operator) {
        let operator = &profile.operators[span.operator as usize];
        let key = group_of.entry(span.operator).or_insert_with(|| group_key(operator, span.operator, group_by));
        let group = groups.entry(key.clone()).or_insert_with(|| SpanGroup { first: place, ..SpanGroup::default() });
        group.operators.entry(span.operator).or_default().push(span.duration_ns as f64);
        group.own.entry(span.operator).or_default().push(own[place] as f64);
        group.total_ns += span.duration_ns;
        group.self_total_ns += own[place];
        group.parts.extend(parts.get(&place));
        group.workspace_bytes = group.workspace_bytes.max(workspace.get(&place).copied());
        if let Some((taken, live)) = memory.get(&place) {
            group.allocated_bytes = Some(group.allocated_bytes.unwrap_or(0) + taken);
            group.live_bytes = group.live_bytes.max(Some(*live));
        }
    }
    let sums = Sums {
        total_ns: groups.values().map(|group| group.self_total_ns).sum(),
        typical_ns: groups.values().map(|group| group.typical_ns(profile)).sum(),
    };
    let mut ordered: Vec<&SpanGroup> = groups.values().collect();
    ordered.sort_by_key(|group| group.first);
    let mut rows: Vec<Row> = ordered.iter().map(|group| group.build_row(profile, &counted, &sums, group_by)).collect();
    rows.sort_by(|left, right| right.sort_key(sort_by).total_cmp(&left.sort_key(sort_by)));
    rows
}

/// Returns, for spans in steps with memory events, the bytes allocated for tensors between operators, and their peak.
fn span_memory(profile: &Profile) -> BTreeMap<usize, (u64, u64)> {
    let events = || profile.memory.iter().filter(|event| event.pool == Pool::Activations);
    let steps: BTreeSet<Option<u32>> =
        events().filter_map(|event| Some(profile.spans[event.span? as usize].step)).collect();
    let in_steps = profile.spans.iter().enumerate().filter(|(_, span)| steps.contains(&span.step));
    let mut before = events().peekable();
    let mut now = 0;
    let mut known: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
    for (place, span) in in_steps {
        // A span starts with everything that earlier spans allocated, and keeps what it frees until its end.
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

/// Ratio of the operators' medians to the median step below which most steps count as disturbed.
const MOSTLY_UNDISTURBED: f64 = 0.8;

pub fn compute_totals(profile: &Profile) -> Totals {
    let own = profile.self_ns();
    let operators = profile.spans.iter().zip(own).filter(|(span, _)| span.kind == Kind::Operator);
    let sum_ns = operators.map(|(_, own)| own).sum();
    let total_ns = profile.steps.iter().map(|step| step.duration_ns).sum::<u64>();
    let steps: Vec<f64> = profile.steps.iter().map(|step| step.duration_ns as f64).collect();
    let bare: Vec<f64> = profile.bare_ns.iter().map(|&ns| ns as f64).collect();
    let is_beside = steps.len() == bare.len() && bare.iter().all(|&ns| ns > 0.0);
    let (steps_sorted, bare_sorted) = (sorted_copy(&steps), sorted_copy(&bare));
    let step_median_ns = if steps.is_empty() { 0.0 } else { median_of_sorted(&steps_sorted) };
    Totals {
        steps: steps.len(),
        sum_ns,
        total_ns,
        not_attributed_ns: total_ns.saturating_sub(sum_ns),
        step_median_ns,
        step_interval_ns: median_interval(&steps_sorted, CONFIDENCE),
        step_min_ns: steps_sorted.first().copied().unwrap_or(0.0),
        typical: typical_step(profile, total_ns.saturating_sub(sum_ns))
            .filter(|typical| typical.time_ns < MOSTLY_UNDISTURBED * step_median_ns),
        bare_median_ns: (!bare.is_empty()).then(|| median_of_sorted(&bare_sorted)),
        profiler_slowdown: is_beside.then(|| paired_ratio(&steps, &bare)).flatten(),
    }
}

/// Returns the time of a step whose operators take their median times, with its share of the time between operators.
fn typical_step(profile: &Profile, not_attributed_ns: u64) -> Option<TypicalStep> {
    if profile.source == Source::Imported || profile.steps.is_empty() {
        return None;
    }
    let steps = profile.steps.len() as f64;
    let mut time_ns = not_attributed_ns as f64 / steps;
    // Squares of the distances from the medians to the ends of their intervals, which add as those of standard errors.
    let mut squares = Some((0.0, 0.0));
    for times in visits::own_times(profile).into_iter().filter(|times| !times.is_empty()) {
        let (times, calls) = (sorted_copy(&times), times.len() as f64 / steps);
        let median_ns = median_of_sorted(&times);
        time_ns += median_ns * calls;
        let square = |end_ns: f64| ((median_ns - end_ns) * calls).powi(2);
        squares = squares
            .zip(median_interval(&times, CONFIDENCE))
            .map(|((below, above), (low, high))| (below + square(low), above + square(high)));
    }
    let interval_ns = squares.map(|(below, above)| (time_ns - below.sqrt(), time_ns + above.sqrt()));
    Some(TypicalStep { time_ns, interval_ns })
}

fn sorted_copy(all: &[f64]) -> Vec<f64> {
    let mut all = all.to_vec();
    all.sort_by(f64::total_cmp);
    all
}

fn group_key(operator: &Operator, place: u32, group_by: GroupBy) -> String {
    match group_by {
        GroupBy::Name => operator.name.clone(),
        GroupBy::InputShape => {
            format!("{} {:?} {:?}", operator.name, operator.task, operator.input_shapes)
        }
        GroupBy::Scope(levels) => outermost_names(&operator.scope, levels).to_owned(),
        GroupBy::Call => place.to_string(),
    }
}

/// Separators of module names: a dot in most formats, a slash in ONNX files.
const SEPARATORS: [char; 2] = ['.', '/'];

/// Returns the outermost `levels` module names of a scope, or the whole scope for 0 levels.
pub(crate) fn outermost_names(scope: &str, levels: usize) -> &str {
    let end = scope.match_indices(SEPARATORS).map(|(end, _)| end).nth(levels.wrapping_sub(1));
    end.filter(|_| levels > 0).map_or(scope, |end| &scope[..end])
}

/// Returns the common prefix of two scopes, in whole module names.
fn common_scope<'a>(left: &'a str, right: &str) -> &'a str {
    let same = left.split(SEPARATORS).zip(right.split(SEPARATORS)).take_while(|(left, right)| left == right);
    let length = same.map(|(name, _)| name.len() + 1).sum::<usize>();
    &left[..length.saturating_sub(1)]
}

#[cfg(test)]
mod tests;
