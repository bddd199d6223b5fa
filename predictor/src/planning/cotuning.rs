//! Chooses schedules and core counts for a few operators that run concurrently.

use super::demand::{Time, task_demand};
use super::known_times::KnownTimes;
use crate::error::{Error, Result};
use crate::probe::RaceResult;
use models::{Fuse, Task};
use planners::cotune::{Cotuned, cotune};
use planners::interference::Demand;
use report::format_count;
use serde::Serialize;
use serde_json::{Value, json};

pub const TOGETHER: &str = "concurrent";
pub const IN_TURNS: &str = "sequential";

pub struct CotuningQuestion {
    operators: Vec<(String, Task)>,
    cores: usize,
    most_schedules: usize,
}

pub struct Cotuning {
    pub operators: Vec<String>,
    pub schedules: Vec<Vec<(String, Vec<Time>)>>,
    /// The chosen schedules, as indices into `schedules`.
    pub cotuned: Cotuned,
    pub promised: PredictedChoice,
    cores: usize,
}

impl CotuningQuestion {
    pub fn new(operators: &[String], cores: usize, most_schedules: usize) -> Result<CotuningQuestion> {
        if !(2..=4).contains(&operators.len()) {
            let given = format_count(operators.len(), "operator");
            let problem = format!("{given}; give two to four, each with --op");
            return Err(Error::Query(problem));
        }
        let read = |text: &String| Ok((text.clone(), parse_single_task(text)?));
        Ok(CotuningQuestion { operators: operators.iter().map(read).collect::<Result<_>>()?, cores, most_schedules })
    }

    pub fn choose_schedules(self, known: &KnownTimes) -> Result<Cotuning> {
        let CotuningQuestion { operators, cores, most_schedules } = self;
        let Some(host) = known.measured_host() else {
            return Err(Error::Query("schedules are read from records: give --data STORE".to_owned()));
        };
        let (machine, crowding) = (known.shared_machine(cores)?, host.crowding_factors(cores));
        let mut schedules: Vec<Vec<(String, Vec<Time>)>> = Vec::new();
        let mut demands = Vec::new();
        for (text, task) in &operators {
            let found = host.measured_schedules(task, cores, most_schedules);
            if found.is_empty() {
                let threads = (1..=cores).map(|threads| threads.to_string()).collect::<Vec<_>>().join(",");
                return Err(Error::Query(format!(
                    "no schedule of `{text}` has times on every number of threads up to {cores}; measure some with `opcollect \
                     --modelsource simple --modelname {text} --threads {threads}{}`",
                    host.store_flag()
                )));
            }
            let profile = host.task_profile(task);
            let demand = |(_, times): &(String, Vec<Time>)| Demand {
                profile: profile.clone(),
                ..task_demand(task, times, &machine, &crowding)
            };
            demands.push(found.iter().map(demand).collect());
            schedules.push(found);
        }
        let cotuned = cotune(&machine, &demands).map_err(|error| Error::Query(error.to_string()))?;
        let promised = PredictedChoice::from_cotuned(&cotuned, &schedules, cores);
        let operators = operators.into_iter().map(|(text, _)| text).collect();
        Ok(Cotuning { operators, schedules, cotuned, promised, cores })
    }
}

fn parse_single_task(text: &str) -> Result<Task> {
    let refused = |error: models::Error| Error::Query(format!("cannot read the operator `{text}`: {error}"));
    let graph = zoo::simple::build_operator(text).map_err(refused)?;
    let graph = passes::simplify_graph(&graph).map_err(refused)?;
    let mut tasks = models::distinct_tasks(&graph, Fuse::Epilogue).map_err(refused)?;
    match tasks.len() {
        1 => Ok(tasks.remove(0).task),
        count => Err(Error::Query(format!("`{text}` describes {count} tasks, expected one"))),
    }
}

impl Cotuning {
    /// Returns the concurrent and the sequential choice in the input format of `opcollect race`.
    pub fn both_choices(&self) -> Value {
        let Cotuning { operators, schedules, cotuned, cores, .. } = self;
        let way = |chosen: &[usize], own: &dyn Fn(usize) -> usize| -> Vec<Value> {
            let one = |(place, operator): (usize, &String)| {
                let schedule: Value = serde_json::from_str(&schedules[place][chosen[place]].0).unwrap_or(Value::Null);
                json!({ "operator": operator, "schedule": schedule, "cores": own(place) })
            };
            operators.iter().enumerate().map(one).collect()
        };
        json!({
            "threads": cores,
            "together": way(&cotuned.together.schedules, &|place| cotuned.together.cores[place]),
            "in_turns": way(&cotuned.in_turns, &|_| *cores),
        })
    }
}

#[derive(Serialize)]
pub struct PredictedChoice {
    pub time_ns: f64,
    /// Lower end of the 90 % interval of the time.
    pub low_ns: f64,
    /// Upper end of the 90 % interval of the time.
    pub high_ns: f64,
    /// Cores of each operator in the concurrent choice, numbered from 0 among the given cores.
    pub affinity: Vec<Vec<usize>>,
}

impl PredictedChoice {
    /// Predicts the faster choice with its interval. Errors of sequential operators are independent; for concurrent
    /// operators, the largest half-width is used, because the last operator to end determines the time.
    fn from_cotuned(found: &Cotuned, schedules: &[Vec<(String, Vec<Time>)>], cores: usize) -> PredictedChoice {
        let off = |half_width: fn(&Time) -> f64| -> f64 {
            let operators = schedules.iter().enumerate();
            match found.is_together {
                true => operators
                    .map(|(place, all)| {
                        half_width(&all[found.together.schedules[place]].1[found.together.cores[place] - 1])
                    })
                    .fold(0.0, f64::max),
                false => operators
                    .map(|(place, all)| half_width(&all[found.in_turns[place]].1[cores - 1]).powi(2))
                    .sum::<f64>()
                    .sqrt(),
            }
        };
        let time_ns = if found.is_together { found.together.time_ns } else { found.in_turns_ns };
        let (below, above) = (off(|time| time.time_ns - time.low_ns), off(|time| time.high_ns - time.time_ns));
        let mut next = 0;
        let own = found.together.cores.iter().map(|cores| {
            next += cores;
            (next - cores..next).collect()
        });
        PredictedChoice {
            time_ns,
            low_ns: (time_ns - below).max(0.0),
            high_ns: time_ns + above,
            affinity: own.collect(),
        }
    }
}

#[derive(Serialize)]
pub struct MeasuredChoice {
    #[serde(flatten)]
    pub raced: RaceResult,
    pub kept: &'static str,
    /// Excess time of the choice over the faster alternative, as a share; 0 if the choice is the faster one.
    pub regret: f64,
}

impl MeasuredChoice {
    pub fn new(cotuned: &Cotuned, raced: RaceResult) -> MeasuredChoice {
        let is_together = raced.ratio.median < 1.0;
        let regret = match (cotuned.is_together, is_together) {
            (true, false) => raced.ratio.median - 1.0,
            (false, true) => 1.0 / raced.ratio.median - 1.0,
            (true, true) | (false, false) => 0.0,
        };
        MeasuredChoice { raced, kept: if is_together { TOGETHER } else { IN_TURNS }, regret }
    }
}
