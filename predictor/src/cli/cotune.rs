//! `oppredict cotune`.

use super::arguments::CotuneOf;
use super::plan::Known;
use super::{begin, finish, paper, print};
use crate::error::{Error, Result};
use crate::planning::times::{Time, demand};
use crate::probe::{self, Raced};
use models::{Fuse, TaskUse};
use planners::cotune::{Cotuned, cotune};
use planners::interference::Demand;
use report::{Table, between, duration, figures, words};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Chooses schedules of a few operators that run together.
pub fn run(arguments: &CotuneOf) -> Result<u8> {
    let cores = arguments.threads as usize;
    if !(2..=4).contains(&arguments.op.len()) {
        let problem = format!("{} operators; two to four run together, each as --op", arguments.op.len());
        return Err(Error::Query(problem));
    }
    let file = begin(arguments.choice.as_deref())?;
    let known = Known::read(&arguments.times, true)?;
    let Some(host) = &known.host else {
        return Err(Error::Query("schedules come from records: give --data STORE".to_owned()));
    };
    let (machine, crowding) = (known.machine(cores)?, host.crowding(cores));
    let mut schedules: Vec<Vec<(String, Vec<Time>)>> = Vec::new();
    let mut demands = Vec::new();
    for text in &arguments.op {
        let task = task(text)?.task;
        let found = host.schedules(&task, cores, arguments.schedules);
        if found.is_empty() {
            let threads = (1..=cores).map(|threads| threads.to_string()).collect::<Vec<_>>().join(",");
            return Err(Error::Query(format!(
                "no schedule of `{text}` has times on every number of threads up to {cores}; measure some with `opcollect \
                 --modelsource simple --modelname {text} --threads {threads}`"
            )));
        }
        let profile = host.profile(&task);
        let of = |(_, times): &(String, Vec<Time>)| Demand {
            profile: profile.clone(),
            ..demand(&task, times, &machine, &crowding)
        };
        demands.push(found.iter().map(of).collect());
        schedules.push(found);
    }
    let found = cotune(&machine, &demands).map_err(|error| Error::Query(error.to_string()))?;
    let promised = Promised::of(&found, &schedules, cores);
    print(&describe(&arguments.op, &schedules, &found, &promised))?;
    let choice = choice(&arguments.op, &schedules, &found, cores);
    finish(file, || choice.to_string().into_bytes())?;
    let measured = match arguments.measure {
        true => {
            let program = arguments.opcollect.clone().unwrap_or_else(probe::collector);
            let raced = probe::race(&program, &choice, arguments.rounds, Duration::from_secs(arguments.deadline))?;
            Some(Measured::of(&found, raced))
        }
        false => None,
    };
    if let Some(measured) = &measured {
        print(&measured.describe())?;
    }
    if arguments.json {
        let texts = |way: &str| -> Vec<Value> {
            choice[way].as_array().into_iter().flatten().map(|one| one["schedule"].clone()).collect()
        };
        let report = json!({
            "operators": arguments.op, "cotuned": found, "promised": promised, "measured": measured,
            "schedules_together": texts("together"), "schedules_in_turns": texts("in_turns"),
        });
        print(&report.to_string())?;
    }
    Ok(0)
}

fn task(text: &str) -> Result<TaskUse> {
    let refused = |error: models::Error| Error::Query(format!("cannot read the operator `{text}`: {error}"));
    let graph = zoo::simple::build(text).map_err(refused)?;
    let graph = passes::simplify(&graph).map_err(refused)?;
    let mut tasks = models::tasks(&graph, Fuse::Epilogue).map_err(refused)?;
    match tasks.len() {
        1 => Ok(tasks.remove(0)),
        count => Err(Error::Query(format!("`{text}` makes {count} tasks, not one"))),
    }
}

/// The better way, how long it takes, and on which cores each operator is.
#[derive(Serialize)]
struct Promised {
    time_ns: f64,
    low_ns: f64,
    high_ns: f64,
    /// Cores of each operator side by side, counted from 0 among those that are given.
    affinity: Vec<Vec<usize>>,
}

impl Promised {
    /// Errors of different schedules are apart; side by side the last to end says when all have.
    fn of(found: &Cotuned, schedules: &[Vec<(String, Vec<Time>)>], cores: usize) -> Promised {
        let off = |of: fn(&Time) -> f64| -> f64 {
            let operators = schedules.iter().enumerate();
            match found.is_together {
                true => operators
                    .map(|(place, all)| of(&all[found.together.schedules[place]].1[found.together.cores[place] - 1]))
                    .fold(0.0, f64::max),
                false => operators
                    .map(|(place, all)| of(&all[found.in_turns[place]].1[cores - 1]).powi(2))
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
        Promised { time_ns, low_ns: (time_ns - below).max(0.0), high_ns: time_ns + above, affinity: own.collect() }
    }
}

/// What was seen of both ways.
#[derive(Serialize)]
struct Measured {
    #[serde(flatten)]
    raced: Raced,
    /// What is kept: the faster one.
    kept: &'static str,
    /// What the choice takes more than the faster one, over that; 0 where the choice was it.
    regret: f64,
}

impl Measured {
    fn of(found: &Cotuned, raced: Raced) -> Measured {
        let is_together = raced.ratio.median < 1.0;
        let regret = match (found.is_together, is_together) {
            (true, false) => raced.ratio.median - 1.0,
            (false, true) => 1.0 / raced.ratio.median - 1.0,
            (true, true) | (false, false) => 0.0,
        };
        Measured { raced, kept: if is_together { TOGETHER } else { IN_TURNS }, regret }
    }

    fn describe(&self) -> String {
        let Raced { together_ns, in_turns_ns, ratio, rounds } = &self.raced;
        let interval = ratio.interval.map_or_else(String::new, |(low, high)| format!(" ({low:.3} … {high:.3})"));
        format!(
            "measured in {rounds} rounds: {TOGETHER} {}, {IN_TURNS} {}, ratio {:.3}{interval}; kept: {}; regret of the choice {:.1} %",
            duration(*together_ns),
            duration(*in_turns_ns),
            ratio.median,
            self.kept,
            100.0 * self.regret
        )
    }
}

const TOGETHER: &str = "side by side";
const IN_TURNS: &str = "one after the other";

/// Both ways, as `opcollect race` reads them.
fn choice(operators: &[String], schedules: &[Vec<(String, Vec<Time>)>], found: &Cotuned, cores: usize) -> Value {
    let way = |chosen: &[usize], own: &dyn Fn(usize) -> usize| -> Vec<Value> {
        let one = |(place, operator): (usize, &String)| {
            let schedule: Value = serde_json::from_str(&schedules[place][chosen[place]].0).unwrap_or(Value::Null);
            json!({ "operator": operator, "schedule": schedule, "cores": own(place) })
        };
        operators.iter().enumerate().map(one).collect()
    };
    json!({
        "threads": cores,
        "together": way(&found.together.schedules, &|place| found.together.cores[place]),
        "in_turns": way(&found.in_turns, &|_| cores),
    })
}

fn describe(
    operators: &[String],
    schedules: &[Vec<(String, Vec<Time>)>],
    found: &Cotuned,
    promised: &Promised,
) -> String {
    let mut table = Table::new([
        words("operator"),
        figures("on cores"),
        figures("ends"),
        words("schedule beside others"),
        words("schedule in turns"),
    ]);
    let knobs = |text: &str| -> String {
        let read = serde_json::from_str::<serde_json::Value>(text).unwrap_or_default();
        read.get("knobs").map_or_else(|| text.to_owned(), ToString::to_string)
    };
    for (place, operator) in operators.iter().enumerate() {
        let (beside, alone) = (found.together.schedules[place], found.in_turns[place]);
        table.row([
            operator.clone(),
            promised.affinity[place].iter().map(usize::to_string).collect::<Vec<_>>().join(","),
            duration(found.together.ends_ns[place]),
            knobs(&schedules[place][beside].0),
            if alone == beside { "the same".to_owned() } else { knobs(&schedules[place][alone].0) },
        ]);
    }
    let (better, gain) = match found.is_together {
        true => (TOGETHER, found.gain),
        false => (IN_TURNS, 1.0 / found.gain),
    };
    format!(
        "{}\nside by side {}, one after the other on all cores {}: {better} is {gain:.3} times as fast\nchosen: {better}, {} expected ({})\n{} combinations tried{}",
        table.on(&paper()),
        duration(found.together.time_ns),
        duration(found.in_turns_ns),
        duration(promised.time_ns),
        between(promised.low_ns, promised.high_ns),
        found.tried,
        if found.is_exact { ", which are all" } else { ", by changes from three beginnings" }
    )
}
