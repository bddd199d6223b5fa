//! Averages as in torch.profiler's `key_averages()`, per name or per name and input shapes. Percentages refer to the
//! sum of all self times. Device work has its own row and also counts in the device time of the call that launched it.
//! As in torch.profiler, memory allocated on any thread during a call counts for that call.

mod memory;
pub mod style;
pub mod tvm;

use crate::data::{Kind, Profile, Span};
use crate::sort::SortBy;
use crate::summary::{GroupBy, outermost_names};
use memory::Memory;
use serde::Serialize;
use std::collections::HashMap;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grouping {
    pub by_input_shape: bool,
    /// Number of outermost module names of a scope that distinguish rows; 0 for whole scopes, None to ignore scopes.
    pub by_scope: Option<usize>,
}

impl From<GroupBy> for Grouping {
    fn from(group_by: GroupBy) -> Grouping {
        let by_scope = match group_by {
            GroupBy::Scope(levels) => Some(levels),
            GroupBy::Call => Some(0),
            GroupBy::Name | GroupBy::InputShape => None,
        };
        Grouping { by_input_shape: group_by == GroupBy::InputShape, by_scope }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AverageRow {
    pub name: String,
    /// Scope of the calls; None unless rows are grouped by scope.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Shapes of the inputs; None unless rows are grouped by shape.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_shapes: Option<Vec<Vec<i64>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_dtypes: Option<Vec<String>>,
    pub kind: Kind,
    pub count: u64,
    pub self_cpu_time_total_ns: u64,
    pub cpu_time_total_ns: u64,
    pub self_device_time_total_ns: u64,
    pub device_time_total_ns: u64,
    /// Net bytes allocated on the host by all calls, including child calls.
    pub cpu_memory_usage_bytes: i64,
    pub self_cpu_memory_usage_bytes: i64,
    pub device_memory_usage_bytes: i64,
    pub self_device_memory_usage_bytes: i64,
    pub min_ns: u64,
    /// Median time of a call; the lower of the two central times for an even number of calls.
    pub median_ns: u64,
    pub p95_ns: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Averages {
    /// Rows in the order of first calls, until they are sorted.
    pub rows: Vec<AverageRow>,
    pub self_cpu_time_total_ns: u64,
    pub self_device_time_total_ns: u64,
    pub has_memory: bool,
}

impl AverageRow {
    pub fn cpu_time_ns(&self) -> f64 {
        self.cpu_time_total_ns as f64 / self.count.max(1) as f64
    }

    pub fn device_time_ns(&self) -> f64 {
        self.device_time_total_ns as f64 / self.count.max(1) as f64
    }

    fn sort_key(&self, by: SortBy) -> f64 {
        match by {
            SortBy::CpuTime => self.cpu_time_ns(),
            SortBy::CpuTimeTotal => self.cpu_time_total_ns as f64,
            // Tables of other tools have no shares of typical times.
            SortBy::SelfCpuTimeTotal | SortBy::Share => self.self_cpu_time_total_ns as f64,
            SortBy::DeviceTime => self.device_time_ns(),
            SortBy::DeviceTimeTotal => self.device_time_total_ns as f64,
            SortBy::SelfDeviceTimeTotal => self.self_device_time_total_ns as f64,
            SortBy::CpuMemoryUsage => self.cpu_memory_usage_bytes as f64,
            SortBy::SelfCpuMemoryUsage => self.self_cpu_memory_usage_bytes as f64,
            SortBy::DeviceMemoryUsage => self.device_memory_usage_bytes as f64,
            SortBy::SelfDeviceMemoryUsage => self.self_device_memory_usage_bytes as f64,
            SortBy::Count => self.count as f64,
            // Rows are created in this order and the sort is stable.
            SortBy::Order => 0.0,
        }
    }
}

impl Averages {
    pub fn to_csv(&self) -> Result<Vec<u8>, csv::Error> {
        let mut table = csv::Writer::from_writer(Vec::new());
        table.write_record([
            "name",
            "kind",
            "scope",
            "input_shapes",
            "count",
            "self_cpu_time_total_ns",
            "cpu_time_total_ns",
            "self_device_time_total_ns",
            "device_time_total_ns",
            "cpu_memory_usage_bytes",
            "self_cpu_memory_usage_bytes",
            "device_memory_usage_bytes",
            "self_device_memory_usage_bytes",
            "min_ns",
            "median_ns",
            "p95_ns",
        ])?;
        for row in &self.rows {
            let shapes = row.input_shapes.as_ref().map(|shapes| format!("{shapes:?}")).unwrap_or_default();
            let times = [row.count, row.self_cpu_time_total_ns, row.cpu_time_total_ns, row.self_device_time_total_ns];
            let memory = [
                row.cpu_memory_usage_bytes,
                row.self_cpu_memory_usage_bytes,
                row.device_memory_usage_bytes,
                row.self_device_memory_usage_bytes,
            ];
            let scope = row.scope.clone().unwrap_or_default();
            let words = [row.name.clone(), format!("{:?}", row.kind).to_lowercase(), scope, shapes];
            let numbers = times.into_iter().chain([row.device_time_total_ns]).map(|value| value.to_string());
            let numbers = numbers.chain(memory.iter().map(i64::to_string));
            let calls = [row.min_ns, row.median_ns, row.p95_ns].map(|value| value.to_string());
            table.write_record(words.into_iter().chain(numbers).chain(calls))?;
        }
        table.into_inner().map_err(|error| error.into_error().into())
    }

    /// Sorts the rows. Stable: equal rows stay in the order of first calls.
    pub fn sort(&mut self, by: SortBy) {
        self.rows.sort_by(|left, right| right.sort_key(by).total_cmp(&left.sort_key(by)));
    }
}

pub fn compute_averages(profile: &Profile, grouping: Grouping) -> Averages {
    let own = profile.self_ns();
    let device = device_times(profile);
    let memory = Memory::from_profile(profile);
    let (groups, group_of) = group_calls(profile, grouping);
    let mut rows = groups;
    let mut times: Vec<Vec<u64>> = vec![Vec::new(); rows.len()];
    let mut used: Vec<[i64; 2]> = Vec::new();
    if memory.is_known() {
        used = profile.spans.iter().map(|span| memory.bytes_during(span)).collect();
    }
    for (place, span) in profile.spans.iter().enumerate() {
        let Some(group) = group_of(span) else { continue };
        let row = &mut rows[group];
        row.count += 1;
        times[group].push(span.duration_ns);
        if is_work_of_device(profile.external_kind(span)) {
            row.self_device_time_total_ns += span.duration_ns;
            row.device_time_total_ns += span.duration_ns;
            continue;
        }
        row.self_cpu_time_total_ns += own[place];
        row.cpu_time_total_ns += span.duration_ns;
        row.self_device_time_total_ns += device[place].0;
        // Device work counts in every enclosing call.
        row.device_time_total_ns = row.device_time_total_ns.saturating_add(device[place].1);
        if let Some([host, other]) = used.get(place) {
            let add = |sum: &mut i64, bytes: i64| *sum = sum.saturating_add(bytes);
            add(&mut row.cpu_memory_usage_bytes, *host);
            add(&mut row.self_cpu_memory_usage_bytes, *host);
            add(&mut row.device_memory_usage_bytes, *other);
            add(&mut row.self_device_memory_usage_bytes, *other);
            if let Some(whole) = span.parent.and_then(|parent| group_of(&profile.spans[parent as usize])) {
                add(&mut rows[whole].self_cpu_memory_usage_bytes, -host);
                add(&mut rows[whole].self_device_memory_usage_bytes, -other);
            }
        }
    }
    for (row, times) in rows.iter_mut().zip(&mut times) {
        times.sort_unstable();
        let at = |share: f64| times[((times.len() as f64 * share).ceil() as usize).clamp(1, times.len()) - 1];
        (row.min_ns, row.median_ns, row.p95_ns) = (times[0], at(0.5), at(0.95));
    }
    rows.extend(memory.row_outside_calls(profile, grouping));
    let devices = rows.iter().filter(|row| is_work_of_device(row.kind));
    Averages {
        self_cpu_time_total_ns: rows.iter().map(|row| row.self_cpu_time_total_ns).sum(),
        self_device_time_total_ns: devices.map(|row| row.self_device_time_total_ns).sum(),
        has_memory: memory.is_known(),
        rows,
    }
}

fn is_work_of_device(kind: Kind) -> bool {
    matches!(kind, Kind::Kernel | Kind::Copy)
}

fn is_device(span: &Span) -> bool {
    is_work_of_device(span.kind)
}

type GroupKey<'a> = (Kind, &'a str, Option<&'a str>, Option<&'a [Vec<i64>]>);

/// Returns a row without times per group of calls, and a function from spans to rows (None for tasks on other threads).
fn group_calls(profile: &Profile, grouping: Grouping) -> (Vec<AverageRow>, impl Fn(&Span) -> Option<usize> + '_) {
    let mut rows: Vec<AverageRow> = Vec::new();
    let mut by_key: HashMap<GroupKey<'_>, usize> = HashMap::new();
    let mut by_operator: HashMap<(Kind, u32), usize> = HashMap::new();
    for span in profile.spans.iter().filter(|span| span.kind != Kind::Task) {
        let kind = profile.external_kind(span);
        by_operator.entry((kind, span.operator)).or_insert_with(|| {
            let operator = &profile.operators[span.operator as usize];
            let name = operator.name.as_str();
            let scope = grouping.by_scope.map(|levels| outermost_names(&operator.scope, levels));
            let shapes = grouping.by_input_shape.then_some((&operator.input_shapes[..], &operator.input_dtypes[..]));
            // Element types are no part of the key, as in torch.profiler.
            *by_key.entry((kind, name, scope, shapes.map(|(shapes, _)| shapes))).or_insert_with(|| {
                rows.push(AverageRow {
                    name: name.to_owned(),
                    kind,
                    scope: scope.map(str::to_owned),
                    input_shapes: shapes.map(|(shapes, _)| shapes.to_vec()),
                    input_dtypes: shapes.map(|(_, dtypes)| dtypes.to_vec()),
                    ..AverageRow::default()
                });
                rows.len() - 1
            })
        });
    }
    (rows, move |span: &Span| by_operator.get(&(profile.external_kind(span), span.operator)).copied())
}

/// Returns, for each span, the device time of the work that it launched, and the total including child calls.
pub(crate) fn device_times(profile: &Profile) -> Vec<(u64, u64)> {
    let mut times = vec![(0, 0); profile.spans.len()];
    // Children follow their parents, so in reverse order all children of a span precede it.
    for (place, span) in profile.spans.iter().enumerate().rev() {
        let Some(parent) = span.parent else { continue };
        let all = times[place].1;
        let whole: &mut (u64, u64) = &mut times[parent as usize];
        if is_device(span) {
            whole.0 += span.duration_ns;
            whole.1 += span.duration_ns;
        } else {
            whole.1 += all;
        }
    }
    times
}
