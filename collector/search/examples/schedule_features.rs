//! Prints, for `scripts/bench/defaults`, the features of recorded schedules that are known before a build, and whether
//! each is its task's default. Reads one JSON object per line: `task`, `schedule`, `target_text` and `threads`.
#![allow(clippy::print_stdout)]

use job::space::Schedule;
use models::Task;
use search::features::{self, View};
use search::{Features, Problem};
use serde_json::{Value as Json, json};
use std::io::BufRead;
use targets::Machine;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    for line in std::io::stdin().lock().lines() {
        println!("{}", describe_record(&serde_json::from_str(&line?)?)?);
    }
    Ok(())
}

fn describe_record(record: &Json) -> Outcome<Json> {
    let text = |column: &str| record[column].as_str().ok_or(format!("a record lacks `{column}`"));
    let task: Task = serde_json::from_str(text("task")?)?;
    let Schedule::Template { knobs } = Schedule::from_json(text("schedule")?)? else {
        return Err("a schedule is not a point of a template".into());
    };
    let description = text("target_text")?;
    let kind = targets::find_kind(description).ok_or(format!("unknown target {description}"))?;
    let target = kind.parse(description)?;
    let threads = usize::try_from(record["threads"].as_u64().unwrap_or(1))?;
    let problem = Problem::of_task(&task, &target, threads);
    let described = features::point_features(&problem, &knobs, View::Loops);
    let mut named: Features = described.iter_named().map(|(name, value)| (name.to_owned(), value)).collect();
    named.extend(features::problem_features(&problem));
    if let Machine::Cpu(cpu) = &target.machine {
        named.extend([
            ("machine.lanes".to_owned(), (cpu.vector_lanes as f64).log2()),
            ("machine.registers".to_owned(), (cpu.vector_registers as f64).log2()),
        ]);
    }
    Ok(json!({ "is_default": knobs == problem.space.default, "features": named }))
}
