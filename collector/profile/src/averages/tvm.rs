//! JSON, rows and table of the profiling report that TVM had until version 0.23.
//! A value is wrapped in the name of its unit, for example `{"microseconds": 12.5}`. Calls with the same hash (or
//! name), shapes and device form a row: durations, counts and percentages are summed, ratios averaged, and differing
//! texts become empty.

use crate::data::{Kind, Operator, Profile, Source, Span};
use report::{Table, number_column, text_column};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    Microseconds(f64),
    Count(i64),
    Percent(f64),
    Ratio(f64),
    String(String),
}

pub type Metrics = BTreeMap<String, Metric>;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TvmReport {
    pub calls: Vec<Metrics>,
    pub device_metrics: BTreeMap<String, Metrics>,
    pub configuration: BTreeMap<String, serde_json::Value>,
}

pub const CALLS: &str = "calls";
pub(crate) const NAME: &str = "Name";
pub(crate) const DURATION: &str = "Duration (us)";
pub(crate) const PERCENT: &str = "Percent";
pub(crate) const DEVICE: &str = "Device";
pub(crate) const COUNT: &str = "Count";
pub(crate) const SHAPES: &str = "Argument Shapes";
pub(crate) const HASH: &str = "Hash";
/// Columns that come first, in this order; all other columns follow alphabetically.
const FIRST: [&str; 6] = [NAME, DURATION, PERCENT, DEVICE, COUNT, SHAPES];
const HOST: &str = "cpu0";

impl Metric {
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Metric::Microseconds(value) | Metric::Percent(value) | Metric::Ratio(value) => Some(*value),
            Metric::Count(value) => Some(*value as f64),
            Metric::String(_) => None,
        }
    }

    pub fn as_text(&self) -> Option<&str> {
        if let Metric::String(text) = self { Some(text) } else { None }
    }

    fn exact_text(&self) -> String {
        self.as_number().map_or_else(|| self.to_string(), |number| number.to_string())
    }

    fn add_metric(&self, other: &Metric) -> Metric {
        match (self, other) {
            (Metric::Microseconds(one), Metric::Microseconds(two)) => Metric::Microseconds(one + two),
            (Metric::Count(one), Metric::Count(two)) => Metric::Count(one.saturating_add(*two)),
            (Metric::Percent(one), Metric::Percent(two)) => Metric::Percent(one + two),
            (Metric::String(one), Metric::String(two)) if one == two => self.clone(),
            _ => Metric::String(String::new()),
        }
    }
}

impl std::fmt::Display for Metric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Metric::Microseconds(value) | Metric::Percent(value) | Metric::Ratio(value) => write!(f, "{value:.2}"),
            Metric::Count(value) => write!(f, "{value}"),
            Metric::String(text) => f.write_str(text),
        }
    }
}

/// Converts a profile to TVM's report. Each span becomes a call whose duration is its self time.
pub fn tvm_report(profile: &Profile) -> TvmReport {
    let own = profile.self_ns();
    let mut totals: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for span in profile.spans.iter().filter(|span| span.kind != Kind::Task) {
        let total = totals.entry(device_name(profile, span)).or_insert((u64::MAX, 0));
        *total = (total.0.min(span.start_ns), total.1.max(span.end_ns()));
    }
    // The time between steps, for instance of unprofiled runs, must not count if nothing was recorded there.
    let steps_ns: u64 = profile.steps.iter().map(|step| step.duration_ns).sum();
    let runner = profile.spans.iter().find(|span| span.kind == Kind::Operator).map(|span| device_name(profile, span));
    let is_of_runner = |span: &&Span| Some(device_name(profile, span)) == runner;
    let mut recorded = profile.spans.iter().filter(|span| span.kind != Kind::Task).filter(is_of_runner);
    let is_in_steps = profile.source != Source::Imported || recorded.all(|span| span.step.is_some());
    let total = runner.as_ref().and_then(|runner| totals.get_mut(runner));
    if let Some(total) = total.filter(|_| is_in_steps && steps_ns > 0) {
        *total = (0, steps_ns);
    }
    let whole_us = |(start, end): &(u64, u64)| (end - start) as f64 / 1e3;
    let longest = totals.values().map(whole_us).fold(0.0, f64::max);
    let percent = |us: f64| Metric::Percent(if longest > 0.0 { us / longest * 100.0 } else { 0.0 });
    let mut counts: BTreeMap<u32, Metrics> = BTreeMap::new();
    for count in profile.counts.iter().filter(|count| profile.spans[count.span as usize].kind != Kind::Task) {
        let metrics = counts.entry(profile.spans[count.span as usize].operator).or_default();
        let value = Metric::Count(i64::try_from(count.value).unwrap_or(i64::MAX));
        let name = &profile.counters[count.counter as usize].name;
        let sum = metrics.get(name).map_or_else(|| value.clone(), |known| known.add_metric(&value));
        metrics.insert(name.clone(), sum);
    }
    let mut sums: BTreeMap<(u32, String), (u64, i64)> = BTreeMap::new();
    for (span, own) in profile.spans.iter().zip(own).filter(|(span, _)| span.kind != Kind::Task) {
        let sum = sums.entry((span.operator, device_name(profile, span))).or_default();
        *sum = (sum.0 + own, sum.1 + 1);
    }
    let calls = sums.into_iter().map(|((operator, device), (ns, count))| {
        let counts = counts.remove(&operator).unwrap_or_default();
        let operator = &profile.operators[operator as usize];
        let mut call = counts;
        let us = ns as f64 / 1e3;
        call.insert(NAME.to_owned(), Metric::String(operator.name.clone()));
        call.insert(DURATION.to_owned(), Metric::Microseconds(us));
        call.insert(PERCENT.to_owned(), percent(us));
        call.insert(DEVICE.to_owned(), Metric::String(device));
        call.insert(COUNT.to_owned(), Metric::Count(count));
        call.insert(SHAPES.to_owned(), Metric::String(argument_shapes(operator)));
        call.extend(operator.task.clone().map(|task| (HASH.to_owned(), Metric::String(task))));
        call.extend(operator.layout.clone().map(|layout| ("layout".to_owned(), Metric::String(layout))));
        call
    });
    let calls = calls.collect();
    let device_metrics = totals.iter().map(|(name, total)| {
        let us = whole_us(total);
        let device = Metric::String(name.clone());
        let metrics = [(DURATION, Metric::Microseconds(us)), (PERCENT, percent(us)), (DEVICE, device)];
        (name.clone(), metrics.map(|(name, value)| (name.to_owned(), value)).into())
    });
    let device_metrics = device_metrics.collect();
    TvmReport { calls, device_metrics, configuration: BTreeMap::new() }
}

fn device_name(profile: &Profile, span: &Span) -> String {
    let track = &profile.tracks[span.track as usize];
    if track.is_device { track.name.clone() } else { HOST.to_owned() }
}

/// Formats shapes like `float32[1, 64], int64[2]`: inputs, then outputs, whose element types are unknown.
fn argument_shapes(operator: &Operator) -> String {
    let list = |shape: &[i64]| shape.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    let inputs = operator.input_shapes.iter().zip(&operator.input_dtypes);
    let inputs = inputs.map(|(shape, dtype)| format!("{dtype}[{}]", list(shape)));
    let outputs = operator.output_shapes.iter().map(|shape| format!("[{}]", list(shape)));
    inputs.chain(outputs).collect::<Vec<_>>().join(", ")
}

impl TvmReport {
    /// Groups the calls by hash, shapes and device, sorted by decreasing duration.
    pub fn grouped_rows(&self) -> Vec<Metrics> {
        let text = |call: &Metrics, name: &str| call.get(name).and_then(Metric::as_text).unwrap_or_default().to_owned();
        let mut rows: Vec<(Metrics, usize)> = Vec::new();
        let mut places = BTreeMap::new();
        for call in &self.calls {
            let name = if call.contains_key(HASH) { text(call, HASH) } else { text(call, NAME) };
            let place = *places.entry((name, text(call, SHAPES), text(call, DEVICE))).or_insert(rows.len());
            match rows.get_mut(place) {
                None => rows.push((call.clone(), 1)),
                Some((row, calls)) => {
                    *calls += 1;
                    for (name, value) in call {
                        let sum = match (row.get(name), value) {
                            // Incremental mean over all calls.
                            (Some(Metric::Ratio(mean)), Metric::Ratio(value)) => {
                                Metric::Ratio(mean + (value - mean) / *calls as f64)
                            }
                            (Some(known), value) => known.add_metric(value),
                            (None, value) => value.clone(),
                        };
                        row.insert(name.clone(), sum);
                    }
                }
            }
        }
        let mut rows: Vec<Metrics> = rows.into_iter().map(|(row, _)| row).collect();
        rows.sort_by(|left, right| row_duration(right).total_cmp(&row_duration(left)));
        rows
    }

    fn column_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = FIRST.to_vec();
        let others: BTreeSet<&str> = self.calls.iter().flatten().map(|(name, _)| name.as_str()).collect();
        names.extend(others.into_iter().filter(|name| !FIRST.contains(name)));
        names
    }

    pub fn to_csv(&self) -> Result<Vec<u8>, csv::Error> {
        let names = self.column_names();
        let mut table = csv::Writer::from_writer(Vec::new());
        table.write_record(&names)?;
        for row in self.grouped_rows() {
            table.write_record(names.iter().map(|name| row.get(*name).map(Metric::exact_text).unwrap_or_default()))?;
        }
        table.into_inner().map_err(|error| error.into_error().into())
    }

    pub fn to_table(&self, limit: usize) -> Table {
        let names = self.column_names();
        let is_words = |name: &str| [NAME, DEVICE, SHAPES, HASH].contains(&name);
        let columns = names.iter().map(|name| if is_words(name) { text_column(*name) } else { number_column(*name) });
        let mut table = Table::new(columns);
        let rows = self.grouped_rows();
        let mut add = |row: &Metrics| {
            table.add_row(names.iter().map(|name| row.get(*name).map(Metric::to_string).unwrap_or_default()))
        };
        rows.iter().take(limit).for_each(&mut add);
        add(&sum_rows(&rows));
        for (device, metrics) in &self.device_metrics {
            let mut total = metrics.clone();
            total.insert(NAME.to_owned(), Metric::String("Total".to_owned()));
            total.entry(DEVICE.to_owned()).or_insert_with(|| Metric::String(device.clone()));
            add(&total);
        }
        table
    }
}

fn row_duration(row: &Metrics) -> f64 {
    row.get(DURATION).and_then(Metric::as_number).unwrap_or(0.0)
}

fn sum_rows(rows: &[Metrics]) -> Metrics {
    let mut sum = Metrics::from([(NAME.to_owned(), Metric::String("Sum".to_owned()))]);
    for row in rows {
        for (name, value) in row.iter().filter(|(_, value)| !matches!(value, Metric::String(_) | Metric::Ratio(_))) {
            let value = sum.get(name).map_or_else(|| value.clone(), |known| known.add_metric(value));
            sum.insert(name.clone(), value);
        }
    }
    sum
}
