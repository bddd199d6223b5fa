//! Dataset records of an imported profile (source `imported`): one per operator with its shapes and scope, and one per
//! device kernel. Their times are total times of calls; self time and device time are counters.

use crate::averages::device_times;
use crate::averages::tvm::{COUNT, DEVICE, DURATION, HASH, Metric, Metrics, NAME, PERCENT, SHAPES, TvmReport};
use crate::data::{Kind, Operator, Profile};
use datasets::limits::MAX_SAMPLES;
use datasets::{Json, Outcome, Record, RowError, Source, Target};
use serde_json::{Map, json};
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
pub struct Provenance {
    /// Time at which the trace was recorded or, if unknown, its file was written, in microseconds since 1970.
    pub taken_at_us: i64,
    pub host: String,
    pub threads: Option<i64>,
    pub model: String,
    pub run_id: String,
    pub program_version: String,
    pub trace_hash: String,
}

#[derive(Default)]
struct OperatorCalls {
    times_ns: Vec<u64>,
    self_ns: u64,
    device_ns: u64,
}

pub fn to_records(profile: &Profile, provenance: &Provenance) -> Result<Vec<Record>, RowError> {
    let (own, devices) = (profile.self_ns(), device_times(profile));
    let mut calls: BTreeMap<(Kind, u32), OperatorCalls> = BTreeMap::new();
    for (place, span) in profile.spans.iter().enumerate() {
        if !matches!(span.kind, Kind::Operator | Kind::Kernel | Kind::Copy) {
            continue;
        }
        let one = calls.entry((span.kind, span.operator)).or_default();
        one.times_ns.push(span.duration_ns);
        one.self_ns += own[place];
        one.device_ns += devices[place].1;
    }
    let row = |((kind, operator), calls): (&(Kind, u32), &OperatorCalls)| {
        call_record(profile, &profile.operators[*operator as usize], *kind, calls, provenance)
    };
    calls.iter().map(row).collect()
}

/// Converts a report to records. Only mean times of calls are known, because a report contains totals and call counts.
pub fn report_records(report: &TvmReport, provenance: &Provenance) -> Result<Vec<Record>, RowError> {
    report.grouped_rows().iter().filter_map(|row| report_row_record(row, provenance).transpose()).collect()
}

/// Converts a row of a report to a record; `None` for operators without time or calls.
fn report_row_record(row: &Metrics, provenance: &Provenance) -> Result<Option<Record>, RowError> {
    const FORMAT: &str = "tvm";
    let number =
        |name: &str| row.get(name).and_then(Metric::as_number).filter(|number| *number > 0.0 && number.is_finite());
    let text = |name: &str| row.get(name).and_then(Metric::as_text).unwrap_or_default();
    let (Some(total_us), Some(count)) = (number(DURATION), number(COUNT)) else { return Ok(None) };
    let (name, shapes, device) = (name_or_placeholder(text(NAME)), text(SHAPES), text(DEVICE));
    let mean_ns = total_us * 1e3 / count;
    let own = [NAME, DURATION, PERCENT, DEVICE, COUNT, SHAPES, HASH];
    let others = row.iter().filter(|(name, _)| !own.contains(&name.as_str()));
    let mut counters: Map<String, serde_json::Value> = others
        .filter_map(|(name, value)| match value {
            // Counts are totals over all calls and are divided; ratios are kept.
            Metric::Count(sum) => Some((name.clone(), (*sum as f64 / count).into())),
            Metric::Ratio(value) => Some((name.clone(), (*value).into())),
            Metric::Microseconds(_) | Metric::Percent(_) | Metric::String(_) => None,
        })
        .collect();
    counters.insert("self_time_ns".to_owned(), mean_ns.into());
    let op_text = if shapes.is_empty() { name.to_owned() } else { format!("{name} {shapes}") };
    let mut record = Record {
        target: if device.starts_with("cuda") { Target::Cuda } else { Target::Other },
        target_text: Some(format!("{FORMAT} {device}")),
        threads: provenance.threads,
        counters: Some(Json::new(&counters)?),
        plan: Some(Json::from(json!({ "trace": provenance.trace_hash, "hash": text(HASH), "calls": count }))),
        ..imported_record(provenance, FORMAT, name, op_text)
    };
    // The mean is the only known value, so it is the single sample.
    assert!(capture::times::fill_times(&mut record, &[mean_ns], 1), "a row has at least one call");
    record.key = record.experiment_key();
    record.check()?;
    Ok(Some(record))
}

fn call_record(
    profile: &Profile,
    operator: &Operator,
    kind: Kind,
    calls: &OperatorCalls,
    provenance: &Provenance,
) -> Result<Record, RowError> {
    let is_device = kind != Kind::Operator;
    let list = |shapes: &[Vec<i64>]| if shapes.is_empty() { Ok(None) } else { Json::new(shapes).map(Some) };
    let mut record = Record {
        place: Some(operator.scope.clone()).filter(|scope| !scope.is_empty()),
        dtype: operator.input_dtypes.first().filter(|dtype| !dtype.is_empty()).cloned(),
        input_shapes: list(&operator.input_shapes)?,
        output_shape: operator.output_shapes.first().map(Json::new).transpose()?,
        target: match (is_device, profile.format.as_str()) {
            (true, _) => Target::Cuda,
            (false, "torch.profiler") => Target::Torch,
            (false, _) => Target::Other,
        },
        target_text: Some(profile.format.clone()),
        threads: provenance.threads.filter(|_| !is_device),
        counters: Some(counter_json(calls, is_device)?),
        plan: Some(Json::from(json!({ "trace": provenance.trace_hash, "place": operator.scope }))),
        ..imported_record(provenance, &profile.format, name_or_placeholder(&operator.name), operator_text(operator))
    };
    set_times(&mut record, &calls.times_ns);
    record.key = record.experiment_key();
    record.check()?;
    Ok(record)
}

/// Returns a record with the fields that do not depend on the kind of import.
fn imported_record(provenance: &Provenance, format: &str, name: &str, op_text: String) -> Record {
    Record {
        run_id: provenance.run_id.clone(),
        started_at_us: provenance.taken_at_us,
        model_source: Some("trace".to_owned()),
        model_name: Some(provenance.model.clone()),
        op_kind: format!("{format}.{name}"),
        op_name: name.to_owned(),
        task_hash: blake3::hash(op_text.as_bytes()).to_hex()[..32].to_owned(),
        op_text,
        network_hash: Some(provenance.trace_hash.clone()),
        host: provenance.host.clone(),
        host_class: format!("{format} on {}", provenance.host),
        source: Source::Imported,
        outcome: Outcome::Ok,
        counter_source: Some("trace".to_owned()),
        program_version: provenance.program_version.clone(),
        ..Record::default()
    }
}

fn name_or_placeholder(name: &str) -> &str {
    if name.is_empty() { "unnamed" } else { name }
}

/// Formats an operator like `aten::mm f32[2,10] f32[10,5]`.
fn operator_text(operator: &Operator) -> String {
    let mut text = name_or_placeholder(&operator.name).to_owned();
    for (shape, dtype) in operator.input_shapes.iter().zip(&operator.input_dtypes) {
        let sizes: Vec<String> = shape.iter().map(i64::to_string).collect();
        text += &format!(" {dtype}[{}]", sizes.join(","));
    }
    text
}

fn counter_json(calls: &OperatorCalls, is_device: bool) -> Result<Json, RowError> {
    let count = calls.times_ns.len().max(1) as f64;
    let mut counters = Map::new();
    if !is_device {
        counters.insert("self_time_ns".to_owned(), (calls.self_ns as f64 / count).into());
        if calls.device_ns > 0 {
            counters.insert("device_time_ns".to_owned(), (calls.device_ns as f64 / count).into());
        }
    } else {
        counters.insert("device_time_ns".to_owned(), (calls.times_ns.iter().sum::<u64>() as f64 / count).into());
    }
    Json::new(&counters)
}

fn set_times(record: &mut Record, times: &[u64]) {
    let samples: Vec<f64> = times.iter().map(|time| *time as f64).collect();
    record.first_run_ns = samples.first().copied();
    assert!(capture::times::fill_times(record, &samples, MAX_SAMPLES), "a row has at least one call");
}
