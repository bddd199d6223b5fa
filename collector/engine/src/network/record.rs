//! The record of a whole model: a row of the same table as operators, with the columns that apply to a model.

use super::compare::Comparison;
use super::{BuiltModel, constant_bytes};
use crate::campaign::{ModelRequest, record};
use datasets::{CacheState, Json, NETWORK, Outcome, Record, RowError, ScheduleSource};
use job::RunReply;
use job::revision::Revisions;
use job::space::Schedule;
use measure::Method;
use models::stages::calls_hash;
use models::{Choice, Graph, Plan, StagePlan, TensorType, ValueId};
use std::collections::BTreeMap;
use targets::Target;
use worker::Fault;

/// A planned run of a whole model.
pub struct Attempt<'a> {
    /// The requested model.
    pub model: &'a ModelRequest,
    /// Graph from which the calls were cut.
    pub graph: &'a Graph,
    /// Calls of the graph.
    pub plan: &'a Plan,
    /// The schedule of each task.
    pub schedules: &'a [Schedule],
    /// Origin of the schedules.
    pub source: ScheduleSource,
    /// Target for which the code was compiled.
    pub target: &'a Target,
    /// CPUs of the threads, one thread on each.
    pub cpus: &'a [usize],
    /// Method of the measurement.
    pub method: &'a Method,
    /// Parallel plan of the calls, if there is one.
    pub stages: Option<&'a StagePlan>,
}

/// Returns a copy of the base record with all columns of the model that are known before the build.
pub fn model_record(attempt: &Attempt<'_>, base: &Record) -> Result<Record, RowError> {
    let Attempt { model, graph, plan, schedules, target, .. } = attempt;
    let types = |ids: &[ValueId]| ids.iter().map(|id| &graph.values[id.0 as usize].ty).collect::<Vec<&TensorType>>();
    let (inputs, outputs) = (types(&graph.inputs), types(&graph.outputs));
    let hashes: Vec<String> = plan.tasks.iter().map(|one| one.task.hash()).collect();
    let by_task: BTreeMap<&str, &Schedule> = hashes.iter().map(String::as_str).zip(*schedules).collect();
    let staged = attempt.stages.map(|stages| format!("{}\n", serde_json::json!(stages.stages)));
    let own = Revisions::embedded_table();
    let revisions: Vec<_> = plan
        .tasks
        .iter()
        .zip(*schedules)
        .map(|(one, schedule)| own.revision_of(&one.task, target.kind, schedule))
        .collect();
    let mut record = Record {
        model_source: Some(model.source.clone()),
        model_name: Some(model.label()),
        batch: model.batch,
        place_count: Some(1),
        task_hash: calls_hash(graph, plan),
        op_kind: NETWORK.to_owned(),
        op_name: NETWORK.to_owned(),
        op_text: describe_graph(graph, plan, &inputs, &outputs),
        input_shapes: Some(Json::new(&inputs.iter().map(|ty| ty.extents()).collect::<Vec<_>>())?),
        // A row has a single output, so the column stays empty for models with several.
        output_shape: if let [only] = outputs.as_slice() { Some(Json::new(&only.extents())?) } else { None },
        dtype: inputs.first().map(|ty| ty.dtype.name().to_owned()),
        schedule_hash: Some(schedules_hash(by_task.iter().map(|(task, schedule)| (*task, *schedule)), staged)),
        parallel_type: attempt.stages.map(|stages| stages.parallel.name().to_owned()),
        schedule_source: Some(attempt.source),
        schedule: Some(Json::new(&by_task)?),
        code_revision: Some(hash_lines(revisions.iter().map(|one| format!("{one}\n")))[..16].to_owned()),
        cache_state: Some(CacheState::Warm),
        plan: Some(Json::new(attempt.method)?),
        started_at_us: record::now_us(),
        ..base.clone()
    };
    let works = || plan.calls.iter().filter_map(|call| plan.tasks[call.task].task.work().ok());
    record.flops = to_count(works().map(|work| work.flops).fold(0, u64::saturating_add));
    record.macs = to_count(works().map(|work| work.macs).fold(0, u64::saturating_add));
    record.bytes_in = to_count(inputs.iter().filter_map(|ty| ty.size_bytes()).sum());
    record.bytes_out = to_count(outputs.iter().filter_map(|ty| ty.size_bytes()).sum());
    record::describe_cpus(&mut record, attempt.cpus)?;
    record.key = record.experiment_key();
    Ok(record)
}

/// Returns a stable hash of schedules, given in the order of their task hashes, and of the stages of a parallel plan.
pub fn schedules_hash<'a>(schedules: impl Iterator<Item = (&'a str, &'a Schedule)>, staged: Option<String>) -> String {
    hash_lines(schedules.map(|(task, schedule)| format!("{task} {}\n", schedule.stable_hash())).chain(staged))
}

fn hash_lines(lines: impl Iterator<Item = String>) -> String {
    let mut hasher = blake3::Hasher::new();
    for line in lines {
        hasher.update(line.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

fn describe_graph(graph: &Graph, plan: &Plan, inputs: &[&TensorType], outputs: &[&TensorType]) -> String {
    let types = |types: &[&TensorType]| types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let (calls, tasks) = (plan.calls.len(), plan.tasks.len());
    format!("{}: {calls} calls of {tasks} tasks, ({}) -> ({})", graph.name, types(inputs), types(outputs))
}

fn to_count(number: u64) -> Option<i64> {
    i64::try_from(number).ok()
}

/// Fills the columns of the built model.
pub fn describe_made(record: &mut Record, made: &BuiltModel) -> Result<(), RowError> {
    let BuiltModel { program, artifacts, .. } = made;
    let weights = constant_bytes(program);
    let moved = [record.bytes_in, record.bytes_out, to_count(weights)].into_iter().flatten().sum::<i64>();
    record.bytes_weights = to_count(weights);
    record.arithmetic_intensity = record.flops.filter(|_| moved > 0).map(|operations| operations as f64 / moved as f64);
    record.workspace_bytes = to_count(program.activation_bytes);
    record.code_bytes = to_count(artifacts.iter().map(|artifact| artifact.code_bytes).sum());
    let ms = artifacts.iter().map(|artifact| artifact.schedule_ms + artifact.lower_ms + artifact.codegen_ms);
    record.build_ms = Some(ms.fold(0.0, |sum, ms| sum + ms));
    record.features = Some(Json::new(&BTreeMap::from([
        ("calls", program.calls.len() as u64),
        ("tasks", program.called_codes() as u64),
        ("least_activation_bytes", program.least_activation_bytes),
    ]))?);
    Ok(())
}

/// Fills the columns of the result, and of the comparison of its outputs if there was one.
pub fn describe_run(
    record: &mut Record,
    reply: &Result<RunReply, Fault>,
    check: Option<Comparison>,
) -> Result<(), RowError> {
    match check {
        Some(wrong) if !wrong.is_right => {
            let Comparison { max_abs_error, largest_output, .. } = wrong;
            let why = format!("outputs differ from the reference by up to {max_abs_error:.3e} of {largest_output:.3e}");
            record::mark_failed(record, Outcome::WrongResult, why);
        }
        _ => record::describe_reply(record, reply)?,
    }
    record.max_abs_error = check.map(|check| check.max_abs_error).filter(|error| error.is_finite());
    Ok(())
}

/// Adds warnings to those of the measurement.
pub fn add_warnings(record: &mut Record, warnings: &[String]) -> Result<(), RowError> {
    if warnings.is_empty() {
        return Ok(());
    }
    let mut all: Vec<String> = record.warnings.as_ref().map(Json::parse_as).transpose()?.unwrap_or_default();
    all.extend_from_slice(warnings);
    record.warnings = Some(Json::new(&all)?);
    Ok(())
}
