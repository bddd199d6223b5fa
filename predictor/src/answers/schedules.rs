//! Schedules of an operator, ranked by what a predictor expects of them.

use crate::error::{Error, Result};
use crate::queries::{self, AssumedThreads, Setting};
use learn::cross_validation::CrossValidatedError;
use learn::predictor::{Predictor, Query};
use models::Task;
use samples::records::{add_figures, of_knobs, of_schedule};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// Schedules of an operator, the fastest first.
#[derive(Clone, Debug, Serialize)]
pub struct RankedSchedules {
    /// The operator as a person reads it.
    pub operator: String,
    /// The schedules.
    pub best: Vec<RankedSchedule>,
    /// How many threads times are for.
    pub threads: AssumedThreads,
    /// The error of such answers for held-out shapes, where it is recorded.
    pub held_out: Option<CrossValidatedError>,
}

/// A schedule and its time.
#[derive(Clone, Debug, Serialize)]
pub struct RankedSchedule {
    /// The predicted time.
    pub time_ns: f64,
    /// Its knobs.
    pub knobs: Value,
}

/// Ranks the schedules of an operator that a file lists, what `opcollect space` printed or the plan of `opcollect build`.
pub fn rank_schedules(predictor: &Predictor, path: &Path, op: &str, setting: &Setting) -> Result<RankedSchedules> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::io("read", path, error))?;
    // A plan is one document, a list of spaces the last line of what was printed.
    let last = || serde_json::from_str(text.lines().last().unwrap_or_default());
    let listed: Listed = serde_json::from_str(&text).or_else(|_| last()).map_err(|_| {
        let either = "it is neither what `opcollect space --sample N --json` prints nor the plan of `opcollect build`";
        Error::table(path, either)
    })?;
    let operator = queries::operator(op, None)?;
    let schedules = listed
        .schedules(&operator.text)
        .ok_or_else(|| Error::table(path, format!("it has no schedule of `{}`", operator.text)))?;
    let device = queries::device(predictor, setting)?;
    let threads = queries::assumed_threads(predictor, setting, None)?;
    let mut best = Vec::new();
    let mut held_out = None;
    for (knobs, extras) in schedules {
        let threads = Some(threads.count);
        let query = Query { operator: &operator.name, work: &operator.work, device, threads, extras: &extras };
        let prediction = predictor.predict(&query)?;
        held_out = prediction.held_out;
        best.push(RankedSchedule { time_ns: prediction.time_ns, knobs });
    }
    best.sort_by(|one, two| one.time_ns.total_cmp(&two.time_ns));
    Ok(RankedSchedules { operator: operator.text, best, threads, held_out })
}

/// Schedules to choose from.
#[derive(Deserialize)]
#[serde(untagged)]
enum Listed {
    /// As `opcollect space` prints them: knobs.
    Spaces(Vec<Space>),
    /// As `opcollect build` leaves them: knobs, and figures of the code.
    Plan(Built),
}

/// What is needed of a space.
#[derive(Deserialize)]
struct Space {
    text: String,
    #[serde(default)]
    sample: Vec<Map<String, Value>>,
}

/// What is needed of the plan of a folder of artifacts.
#[derive(Deserialize)]
struct Built {
    tasks: Vec<BuiltTask>,
    builds: Vec<BuiltSchedule>,
}

#[derive(Deserialize)]
struct BuiltTask {
    task: Task,
}

#[derive(Deserialize)]
struct BuiltSchedule {
    task: usize,
    schedule: String,
    failure: Option<String>,
    #[serde(default)]
    code_bytes: f64,
    #[serde(default)]
    features: Value,
}

/// A schedule as it is shown, and its features.
type Named = (Value, BTreeMap<String, f64>);

impl Listed {
    /// The schedules of an operator; nothing where there are none.
    fn schedules(self, text: &str) -> Option<Vec<Named>> {
        let found: Vec<Named> = match self {
            Listed::Spaces(spaces) => {
                let space = spaces.into_iter().find(|space| space.text == text)?;
                space.sample.into_iter().map(|knobs| (knobs.clone().into(), of_knobs(&knobs))).collect()
            }
            Listed::Plan(Built { tasks, builds }) => {
                let is_wanted = |task: usize| tasks.get(task).is_some_and(|found| found.task.describe() == text);
                let built = builds.into_iter().filter(|build| build.failure.is_none() && is_wanted(build.task));
                built.filter_map(|build| build.named()).collect()
            }
        };
        (!found.is_empty()).then_some(found)
    }
}

impl BuiltSchedule {
    fn named(&self) -> Option<Named> {
        let schedule: Value = serde_json::from_str(&self.schedule).ok()?;
        let mut extras = of_schedule(&schedule);
        add_figures(&self.features, &mut extras);
        if !self.features.is_null() {
            extras.insert("code.bytes".to_owned(), self.code_bytes);
        }
        Some((schedule.get("knobs").cloned().unwrap_or(schedule), extras))
    }
}
