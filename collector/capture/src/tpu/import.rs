//! Conversion of a capture to dataset records, with the source `imported`: one per operator and core, or one per
//! command. Values from registers become features; values from counters become counters.

use super::chip::Engine;
use super::operators::{self, Operator, Runs};
use super::timeline::Timeline;
use datasets::limits::MAX_SAMPLES;
use datasets::{Json, Outcome, Record, RowError, Source, Target};
use serde_json::{Map, Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    Operator,
    Command,
}

#[derive(Clone, Debug)]
pub struct CaptureProvenance {
    pub taken_at_us: i64,
    pub host: String,
    pub run_id: String,
    pub program_version: String,
    pub capture_hash: String,
}

pub fn capture_hash(timeline: &Timeline) -> String {
    let mut hasher = blake3::Hasher::new();
    for (number, bytes) in timeline.cores.iter().map(|core| (core.id, &core.bytes)) {
        hasher.update(&number.to_le_bytes()).update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
    }
    for port in &timeline.ports {
        hasher.update(&port.number.to_le_bytes()).update(&(port.bytes.len() as u64).to_le_bytes()).update(&port.bytes);
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

pub fn to_records(timeline: &Timeline, provenance: &CaptureProvenance, per: Per) -> Result<Vec<Record>, RowError> {
    let row = |core: Option<u32>, operator: &Operator, runs: &Runs, number| {
        operator_record(timeline, provenance, core, operator, runs, number)
    };
    match per {
        Per::Operator => operators::operators_by_core(timeline)
            .iter()
            .map(|(core, operator, runs)| row(*core, operator, runs, None))
            .collect(),
        Per::Command => {
            let mut records = Vec::new();
            operators::visit_operators(timeline, &mut |event, operator| {
                let mut runs = Runs::default();
                runs.add_record(event);
                records.push(row(event.core, &operator, &runs, Some((event.engine, event.index))));
            });
            records.into_iter().collect()
        }
    }
}

fn operator_record(
    timeline: &Timeline,
    provenance: &CaptureProvenance,
    core: Option<u32>,
    operator: &Operator,
    runs: &Runs,
    number: Option<(Engine, usize)>,
) -> Result<Record, RowError> {
    let settings = &timeline.settings;
    let facts = settings.chip.facts();
    let mut plan = json!({ "capture": provenance.capture_hash });
    if let Some((engine, index)) = number {
        plan["command"] = json!([engine.name(), index]);
    }
    let mut record = Record {
        run_id: provenance.run_id.clone(),
        started_at_us: provenance.taken_at_us,
        model_source: Some("tpu".to_owned()),
        model_name: timeline.directory.file_name().map(|name| name.to_string_lossy().into_owned()),
        place: operator.place.clone(),
        op_kind: format!("tpu.{}", operator.engine.name().to_lowercase()),
        op_name: operator.name.trim().to_owned(),
        op_text: operator.format_text(),
        task_hash: blake3::hash(operator.format_text().as_bytes()).to_hex()[..32].to_owned(),
        dtype: (!operator.dtype.is_empty()).then(|| operator.dtype.to_lowercase()),
        input_shapes: input_shapes(operator)?,
        output_shape: operator
            .shape_of("res0_", "")
            .or(operator.shape_of("dst_", "size"))
            .map(|shape| Json::new(&shape))
            .transpose()?,
        flops: (runs.asked > 0).then(|| i64::try_from(runs.asked).unwrap_or(i64::MAX)),
        target: Target::Tpu,
        target_text: Some(format!("{} at {} MHz", facts.name, settings.tiu_mhz)),
        device: Some(facts.name.to_owned()),
        threads: Some(1),
        cpus: core.map(|core| Json::new(&[core])).transpose()?,
        host: provenance.host.clone(),
        host_class: format!("tpu-{}-{}mhz", facts.name.to_lowercase(), settings.tiu_mhz),
        source: Source::Imported,
        outcome: Outcome::Ok,
        features: Some(operator_features(core, operator, runs)?),
        counters: Some(mean_counters(settings.clock_mhz(operator.engine), facts, operator, runs)?),
        counter_source: Some("tpu-pmu".to_owned()),
        program_version: provenance.program_version.clone(),
        plan: Some(Json::from(plan)),
        ..Record::default()
    };
    if operator.engine != Engine::Tiu {
        let bytes = i64::try_from(runs.bytes / runs.times_ns.len().max(1) as u64).unwrap_or(i64::MAX);
        (record.bytes_in, record.bytes_out) = (Some(bytes), Some(bytes));
    }
    set_times(&mut record, &runs.times_ns);
    record.key = record.experiment_key();
    record.check()?;
    Ok(record)
}

fn input_shapes(operator: &Operator) -> Result<Option<Json>, RowError> {
    let inputs = [("opd0_", ""), ("opd1_", ""), ("src_", "size")];
    let shapes: Vec<_> = inputs.iter().filter_map(|(prefix, suffix)| operator.shape_of(prefix, suffix)).collect();
    if shapes.is_empty() { Ok(None) } else { Json::new(&shapes).map(Some) }
}

fn operator_features(core: Option<u32>, operator: &Operator, runs: &Runs) -> Result<Json, RowError> {
    let mut features = Map::new();
    features.insert("tpu_engine".to_owned(), operator.engine.report_id().into());
    if let Some(core) = core {
        features.insert("tpu_core".to_owned(), core.into());
    }
    for (name, value) in &operator.sizes {
        features.insert(format!("tpu_{name}"), Value::from(*value));
    }
    if runs.done > 0 {
        features.insert("tpu_array_operations".to_owned(), (runs.done as f64).into());
        features.insert("tpu_useful_fraction".to_owned(), (runs.asked as f64 / runs.done as f64).into());
    }
    Json::new(&features)
}

fn mean_counters(mhz: f64, facts: &super::chip::ChipFacts, operator: &Operator, runs: &Runs) -> Result<Json, RowError> {
    let count = runs.times_ns.len().max(1) as f64;
    let mut counters = Map::new();
    counters.insert("tpu_cycles".to_owned(), (runs.cycles as f64 / count).into());
    if operator.engine == Engine::Tiu {
        // Rate of the algorithm's operations.
        let seconds = runs.cycles as f64 / count / mhz / 1e6;
        if runs.asked > 0 && seconds > 0.0 {
            counters.insert("tpu_operations_per_s".to_owned(), (runs.asked as f64 / seconds).into());
        }
    } else {
        let total = runs.total_ns().max(1) as f64;
        let speed = runs.bytes as f64 / total;
        counters.insert("tpu_stall_cycles".to_owned(), (runs.stalls as f64 / count).into());
        counters.insert("tpu_bandwidth_gb_per_s".to_owned(), speed.into());
        let limit = match operator.direction {
            direction if direction.contains("DDR") => facts.ddr_gb_per_s,
            direction if direction.contains("L2") => facts.l2_gb_per_s,
            _ => 0.0,
        };
        if limit > 0.0 {
            counters.insert("tpu_bandwidth_utilisation".to_owned(), (speed / limit).into());
        }
    }
    Json::new(&counters)
}

fn set_times(record: &mut Record, times: &[i64]) {
    let samples: Vec<f64> = times.iter().map(|time| *time as f64).collect();
    record.first_run_ns = samples.first().copied();
    assert!(crate::times::fill_times(record, &samples, MAX_SAMPLES), "an operator ran at least once");
}
