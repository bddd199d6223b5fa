//! Parts of a planned campaign: tasks, attempts and planning errors.

use super::config::ModelRequest;
use super::module::{ModuleError, PlannedModule};
use datasets::{CacheState, Key, Record, ScheduleSource};
use job::revision::Revisions;
use job::space::Schedule;
use measure::Method;
use models::Task;
use models::symbolic::{Family, Sizes};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A task of the campaign, with its occurrences in models.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlannedTask {
    /// Operator with its fused epilogue, shapes and element types.
    pub task: Task,
    /// The task as JSON.
    pub json: String,
    /// The first model that contains the task.
    pub model: ModelRequest,
    /// Names of the task's calls in `model`.
    pub places: Vec<String>,
    /// Number of the task's calls in each model that contains it, as pairs of model index and count.
    pub counts: Vec<(usize, usize)>,
    /// Partner library that computes the task instead of the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partner: Option<String>,
    /// The task with symbolic sizes that is compiled in place of this task, if several sizes share a build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbolic: Option<Symbolic>,
    /// Reason why the task is compiled for its own size, although one build for several sizes was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_because: Option<String>,
}

/// A symbolic task with the values of its symbols for one size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Symbolic {
    /// The symbolic task.
    pub task: Task,
    /// The symbolic task as JSON.
    pub json: String,
    /// Value of each symbol for this size.
    pub sizes: Sizes,
}

impl Symbolic {
    /// Creates the symbolic task of a family, with the symbol values of the size at index `place`.
    pub(super) fn from_family(family: &Family, place: usize) -> Symbolic {
        Symbolic { task: family.task.clone(), json: task_json(&family.task), sizes: family.sizes[place].clone() }
    }
}

pub(super) fn task_json(task: &Task) -> String {
    serde_json::to_string(task).expect("a task holds only JSON values")
}

/// A planned measurement.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Index of the task. Whole programs (modules) have the indices that follow those of the tasks.
    pub task: usize,
    /// Index of the first of the tasks that share a build; equal to `task` if the task is compiled alone.
    pub family: usize,
    /// Code or library that computes the task.
    pub code: Code,
    /// CPUs of the threads, one thread on each.
    pub cpus: Vec<usize>,
    /// Method of the measurement, with its stopping rule.
    pub method: Method,
    /// Key that identifies the experiment in stores.
    pub key: Key,
    /// Record with the task's columns. All attempts of the task share it, because records are large and attempts many.
    pub(super) with_task: Arc<Record>,
    pub(super) state: CacheState,
    /// Index of the visit (a repetition of the experiment in a fresh process), counted from 0.
    pub visit: u32,
    /// Whether this is the experiment's first visit in this run; only its output is checked against the reference.
    pub is_first: bool,
    /// Number that identifies the runner process; consecutive visits of an experiment have different numbers.
    pub process: u32,
}

/// The implementation of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum Code {
    /// Code that is compiled with a schedule.
    Compiled {
        /// Schedule with which the task is compiled.
        schedule: Arc<Schedule>,
        /// Origin of the schedule.
        source: ScheduleSource,
        /// Code revision, which changes when a program version generates different code for such tasks.
        revision: Arc<str>,
    },
    /// A library; nothing is built.
    Library,
    /// A whole program that PyTorch's library runs.
    Module(Arc<PlannedModule>),
}

/// Base records with the columns of host, target and run; each attempt's record extends one of them.
#[derive(Clone, Debug)]
pub struct Bases {
    /// Base record of compiled code.
    pub compiled: Record,
    /// Base record of tasks that a library computes.
    pub library: Record,
    /// Revisions of the code generators of the building program.
    pub revisions: Revisions,
}

impl Attempt {
    /// Returns the attempt for the experiment's next visit (a measurement at another time), or None after the last one.
    pub fn next_visit(&self) -> Option<Attempt> {
        let next = Attempt { visit: self.visit + 1, is_first: false, ..self.clone() };
        (next.visit < self.method.visit_count()).then_some(next)
    }

    /// Returns the number of visits left, including this one.
    pub fn visits_left(&self) -> usize {
        self.method.visit_count().saturating_sub(self.visit) as usize
    }

    /// Returns whether both attempts run the same build.
    pub fn shares_build_with(&self, other: &Attempt) -> bool {
        self.family == other.family && self.code == other.code
    }
}

/// Reason why attempts cannot be planned.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum PlanningError {
    #[error("cannot use model `{name}`")]
    Model { name: String, source: models::Error },
    #[error(
        "unknown model source `{0}`; this version has `local`, `simple`, `onnx`, `remoteonnx`, `tflite`, `torch` and \
         `transformers`"
    )]
    UnknownSource(String),
    #[error("`{0}` is remote, and this program downloads nothing; fetch it and give the file's path")]
    NotLocal(String),
    #[error(
        "`{name}` {}, independent of `--batchsize`{}; remove `--batchsize`, or give `--shape` for dynamic \
         dimensions", describe_batch(*has), format_reason(why.as_deref())
    )]
    Batch { name: String, has: Option<i64>, why: Option<String> },
    #[error("cannot run `{name}` as a whole")]
    Module { name: String, source: ModuleError },
    #[error("cannot describe the attempt")]
    Record(#[from] datasets::RowError),
}

fn format_reason(why: Option<&str>) -> String {
    why.map_or_else(String::new, |why| format!(" ({why})"))
}

fn describe_batch(batch: Option<i64>) -> String {
    match batch {
        Some(batch) => format!("runs with a batch of {batch}"),
        None => "has inputs with different first extents, so it has no batch size".to_owned(),
    }
}
