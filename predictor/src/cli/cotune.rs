//! `oppredict cotune`.

use super::arguments::CotuneOf;
use super::plan::Known;
use super::{paper, print};
use crate::error::{Error, Result};
use crate::planning::times::{Time, demand};
use models::{Fuse, TaskUse};
use planners::cotune::{Cotuned, cotune};
use report::{Table, duration, figures, words};
use serde_json::json;

/// Chooses schedules of a few operators that run together.
pub fn run(arguments: &CotuneOf) -> Result<u8> {
    let cores = arguments.threads as usize;
    if !(2..=4).contains(&arguments.op.len()) {
        let problem = format!("{} operators; two to four run together, each as --op", arguments.op.len());
        return Err(Error::Query(problem));
    }
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
        demands.push(found.iter().map(|(_, times)| demand(&task, times, &machine, &crowding)).collect());
        schedules.push(found);
    }
    let found = cotune(&machine, &demands).map_err(|error| Error::Query(error.to_string()))?;
    print(&describe(&arguments.op, &schedules, &found))?;
    if arguments.json {
        let texts = |chosen: &[usize]| -> Vec<serde_json::Value> {
            let text = |(schedules, one): (&Vec<(String, Vec<Time>)>, &usize)| {
                serde_json::from_str(&schedules[*one].0).unwrap_or(serde_json::Value::Null)
            };
            schedules.iter().zip(chosen).map(text).collect()
        };
        let report = json!({
            "operators": arguments.op, "cotuned": found,
            "schedules_together": texts(&found.together.schedules), "schedules_in_turns": texts(&found.in_turns),
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

fn describe(operators: &[String], schedules: &[Vec<(String, Vec<Time>)>], found: &Cotuned) -> String {
    let mut table = Table::new([
        words("operator"),
        figures("cores"),
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
            found.together.cores[place].to_string(),
            duration(found.together.ends_ns[place]),
            knobs(&schedules[place][beside].0),
            if alone == beside { "the same".to_owned() } else { knobs(&schedules[place][alone].0) },
        ]);
    }
    let (better, gain) = match found.is_together {
        true => ("side by side", found.gain),
        false => ("one after the other", 1.0 / found.gain),
    };
    format!(
        "{}\nside by side {}, one after the other on all cores {}: {better} is {gain:.3} times as fast\n{} combinations tried{}",
        table.on(&paper()),
        duration(found.together.time_ns),
        duration(found.in_turns_ns),
        found.tried,
        if found.is_exact { ", which are all" } else { ", by changes from three beginnings" }
    )
}
