//! What a campaign consists of: tasks, attempts, and what can be wrong with them.

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

/// A task of the campaign with where it was found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlannedTask {
    /// The task.
    pub task: Task,
    /// Its text.
    pub json: String,
    /// The model it was first found in.
    pub model: ModelRequest,
    /// Its places in that model.
    pub places: Vec<String>,
    /// Places in all models of the campaign, by index of the model.
    pub counts: Vec<(usize, usize)>,
    /// The library that would compute it, when it is not the target's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partner: Option<String>,
    /// The task it is compiled as, when that serves other sizes too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbolic: Option<Symbolic>,
    /// Why it is compiled for its own size although several were to be served at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_because: Option<String>,
}

/// A task with symbols, and what they stand for in one of its sizes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Symbolic {
    /// The task with symbols.
    pub task: Task,
    /// Its text.
    pub json: String,
    /// The numbers of this size.
    pub sizes: Sizes,
}

impl Symbolic {
    /// One size of a family.
    pub(super) fn of(family: &Family, place: usize) -> Symbolic {
        Symbolic { task: family.task.clone(), json: json(&family.task), sizes: family.sizes[place].clone() }
    }
}

pub(super) fn json(task: &Task) -> String {
    serde_json::to_string(task).expect("a task holds only JSON values")
}

/// One thing to be measured.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Index of the task; modules are counted after the tasks.
    pub task: usize,
    /// Index of the first task that is compiled together with it.
    pub family: usize,
    /// What computes it.
    pub code: Code,
    /// One thread on each of these CPUs.
    pub cpus: Vec<usize>,
    /// How to measure.
    pub method: Method,
    /// The key of the experiment.
    pub key: Key,
    /// What all attempts of the task share. A campaign has many attempts, and a record is large.
    pub(super) with_task: Arc<Record>,
    /// What caches hold.
    pub(super) state: CacheState,
    /// Which of the visits that its method asks for, counted from 0.
    pub visit: u32,
    /// Whether this run of the program made none before, so that the result is compared with the reference.
    pub is_first: bool,
    /// The runner process that it asks for: another one than the visit before had.
    pub process: u32,
}

/// What computes a task.
#[derive(Clone, Debug, PartialEq)]
pub enum Code {
    /// Code that is built by a schedule.
    Compiled {
        /// The schedule.
        schedule: Arc<Schedule>,
        /// What proposed it.
        source: ScheduleSource,
        /// Which code it makes of the task.
        revision: Arc<str>,
    },
    /// A library; nothing is built.
    Library,
    /// A program of the library's own.
    Module(Arc<PlannedModule>),
}

/// Records with the columns of host, target and run filled, from which those of attempts are made.
#[derive(Clone, Debug)]
pub struct Bases {
    /// For code that is built.
    pub compiled: Record,
    /// For tasks of a library.
    pub library: Record,
    /// Which code the program makes that builds.
    pub revisions: Revisions,
}

impl Attempt {
    /// Its next visit, if there is one.
    pub fn next_visit(&self) -> Option<Attempt> {
        let next = Attempt { visit: self.visit + 1, is_first: false, ..self.clone() };
        (next.visit < self.method.visits()).then_some(next)
    }

    /// How many visits are left, this one included.
    pub fn visits_left(&self) -> usize {
        self.method.visits().saturating_sub(self.visit) as usize
    }

    /// Whether one build serves both.
    pub fn shares_build_with(&self, other: &Attempt) -> bool {
        self.family == other.family && self.code == other.code
    }
}

/// What cannot be turned into attempts.
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
    #[error(
        "`{0}` would have to be downloaded, which this program does not do; fetch it first and give the file's path"
    )]
    NotLocal(String),
    #[error("`{name}` {}, whatever batch size is asked for; leave it out, or give `--shape` where the file leaves dimensions open", fixed(*has))]
    Batch { name: String, has: Option<i64> },
    #[error("cannot run `{name}` as a whole")]
    Module { name: String, source: ModuleError },
    #[error("cannot describe the attempt")]
    Record(#[from] datasets::RowError),
}

fn fixed(batch: Option<i64>) -> String {
    match batch {
        Some(batch) => format!("runs with a batch of {batch}"),
        None => "has inputs whose first extents are not one batch size".to_owned(),
    }
}
