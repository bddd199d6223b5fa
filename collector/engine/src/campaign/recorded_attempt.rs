//! Reconstructs the attempt that produced a record, to repeat it: its task, code, threads and measurement plan.

use super::attempt::create_attempt;
use super::config::{Limits, ModelRequest};
use super::planned::{Attempt, Code, PlannedTask, PlanningError, Symbolic};
use super::record;
use datasets::{CacheState, Json, Record, RowError, ScheduleSource, Source};
use job::revision::Revisions;
use job::space::Schedule;
use measure::Method;
use models::Task;
use models::partner::CPU_VENDOR;
use std::sync::Arc;
use targets::{Machine, Target};

/// An attempt that was reconstructed from a record.
#[derive(Clone, Debug)]
pub struct RecordedAttempt {
    /// The measured task.
    pub task: PlannedTask,
    /// The target for which the code was compiled.
    pub target: Target,
    /// The code or library that computed the task.
    pub code: Code,
    /// CPUs on which the threads run, one thread per CPU.
    pub cpus: Vec<usize>,
    /// Method of measurement, with its stopping rule.
    pub method: Method,
    /// State of the caches before a run.
    pub state: CacheState,
    /// Seed of the random input values.
    pub seed: u64,
    /// Number of polls of an idle thread before it sleeps.
    pub spin_count: u32,
}

/// Reason why a record's attempt cannot be repeated.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum RepeatError {
    #[error("its time has the source `{0}`, so this program did not measure it")]
    Source(Source),
    #[error("this program cannot run code for its target `{0}`")]
    Target(datasets::Target),
    #[error(
        "it describes a whole model file, whose path is not recorded; collect the file again with `--backend torch`"
    )]
    Module,
    #[error("it describes a whole model; use `opcollect model run --store` to repeat it")]
    Network,
    #[error("it was timed inside a running model; use `opcollect profile --store` to repeat it")]
    Inside,
    #[error("it ran concurrently with other operators; use `opcollect corun` to repeat it")]
    Beside,
    #[error("its column `{0}` is empty")]
    Missing(&'static str),
    #[error("its column `{column}` is invalid: {why}")]
    Unusable { column: &'static str, why: String },
}

fn unusable_column<E: std::fmt::Display>(column: &'static str) -> impl Fn(E) -> RepeatError {
    move |error| RepeatError::Unusable { column, why: error.to_string() }
}

impl RecordedAttempt {
    /// Reconstructs the attempt of a record. `machine` describes the hardware from which schedule spaces are derived.
    pub fn from_record(record: &Record, machine: Machine) -> Result<RecordedAttempt, RepeatError> {
        if record.is_network() {
            return Err(RepeatError::Network);
        }
        if record.co_run.is_some() {
            return Err(RepeatError::Beside);
        }
        if !record.is_alone() {
            return Err(RepeatError::Inside);
        }
        if record.source != Source::Measured {
            return Err(RepeatError::Source(record.source));
        }
        let method: Method = parse_column(record.plan.as_ref(), "plan")?;
        method.check_settings().map_err(unusable_column("plan"))?;
        let target = target_of(record, machine)?;
        let task = task_of(record, &target)?;
        let polls = record.spin_count.unwrap_or(Limits::default().spin_count.into());
        Ok(RecordedAttempt {
            code: code_of(record, &task, &target)?,
            task,
            target,
            cpus: parse_column(record.cpus.as_ref(), "cpus")?,
            method,
            state: record.cache_state.unwrap_or_default(),
            seed: u64::try_from(record.seed.unwrap_or(0)).map_err(unusable_column("seed"))?,
            spin_count: u32::try_from(polls).map_err(unusable_column("spin_count"))?,
        })
    }

    /// Returns the attempt for the machine and the program version that the base record `base` describes.
    pub fn plan_attempt(&self, base: &Record) -> Result<Attempt, PlanningError> {
        let with_task = Arc::new(record::task_record(&self.task, base)?);
        let run = (self.state, self.method.clone(), self.cpus.len());
        create_attempt((0, 0), self.code.clone(), run, &with_task, &self.cpus)
    }
}

fn parse_column<T: serde::de::DeserializeOwned>(value: Option<&Json>, column: &'static str) -> Result<T, RepeatError> {
    value
        .ok_or(RepeatError::Missing(column))?
        .parse_as()
        .map_err(|error: RowError| unusable_column(column)(error.problem))
}

fn target_of(record: &Record, machine: Machine) -> Result<Target, RepeatError> {
    let text = record.target_text.as_deref().ok_or(RepeatError::Missing("target_text"))?;
    let read = targets::kind_of_record(record).and_then(|kind| kind.read_record(text, machine));
    read.ok_or(RepeatError::Target(record.target))?.map_err(unusable_column("target_text"))
}

fn code_of(record: &Record, planned: &PlannedTask, target: &Target) -> Result<Code, RepeatError> {
    if target.kind.is_library() {
        return Ok(Code::Library);
    }
    let text = record.schedule.as_ref().ok_or(RepeatError::Missing("schedule"))?.as_text();
    let schedule = Schedule::from_json(text).map_err(unusable_column("schedule"))?;
    let source = record.schedule_source.unwrap_or(ScheduleSource::Template);
    let revision = Revisions::embedded_table().revision_of(planned.scheduled_task(), target.kind, &schedule);
    Ok(Code::Compiled { schedule: Arc::new(schedule), source, revision })
}

fn task_of(record: &Record, target: &Target) -> Result<PlannedTask, RepeatError> {
    if record.task.is_none() && record.op_kind == "module" {
        return Err(RepeatError::Module);
    }
    let task: Task = parse_column(record.task.as_ref(), "task")?;
    task.check().map_err(unusable_column("task"))?;
    let symbolic = record.symbolic_task.as_deref().map(|text| parse_symbolic(text, record)).transpose()?;
    Ok(PlannedTask {
        json: super::planned::task_json(&task),
        task,
        model: ModelRequest {
            source: record.model_source.clone().unwrap_or_default(),
            name: record.model_name.clone().unwrap_or_default(),
            batch: record.batch,
            ..ModelRequest::default()
        },
        places: record.places.as_ref().and_then(|places| places.parse_as().ok()).unwrap_or_default(),
        counts: Vec::new(),
        partner: target.kind.is_library().then(|| CPU_VENDOR.to_owned()),
        symbolic,
        bound_because: None,
    })
}

fn parse_symbolic(text: &str, record: &Record) -> Result<Symbolic, RepeatError> {
    let task = Task::from_text(text).map_err(unusable_column("symbolic_task"))?;
    Ok(Symbolic { json: super::planned::task_json(&task), task, sizes: parse_column(record.sizes.as_ref(), "sizes")? })
}
