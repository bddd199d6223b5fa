//! `race`: operators side by side by some schedules, and one after the other by others, in turns, which says what is faster.

use super::{DONE, Result, paper, print, print_json, tell};
use bench::{Bench, Build, Versions};
use clap::Args;
use engine::campaign::config::Limits;
use engine::failure::{Failure, chain};
use engine::machine;
use job::space::Schedule;
use job::{BuildJob, Lane, RaceJob, RunReply, TogetherJob, TogetherReply, What};
use measure::{Ratio, Together};
use models::{Fuse, Task};
use report::{Table, duration, figures, words};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Two ways to run a few operators.
#[derive(Debug, Args)]
pub struct RaceRun {
    /// A choice, as `oppredict cotune --choice FILE` writes it
    #[arg(value_name = "FILE")]
    pub choice: PathBuf,
    /// How many rounds; six are the least that give an interval
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Wait so long when another process measures on the same CPUs, instead of refusing
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub wait: u64,
    /// Print one JSON document as the last line of stdout
    #[arg(long)]
    pub json: bool,
}

/// More than a few operators take.
const BYTES_MAX: u64 = 1 << 20;
/// Operators of each way at most.
const OPERATORS_MOST: usize = 16;

/// What is to be run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice {
    /// Cores in all.
    threads: usize,
    /// Side by side, each on cores of its own.
    together: Vec<Runner>,
    /// One after the other, each on all cores.
    in_turns: Vec<Runner>,
}

/// An operator by a schedule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Runner {
    /// An operator in its short form, or a task as `opcollect tasks --json` has it.
    operator: Operator,
    /// As records have it.
    schedule: Box<RawValue>,
    /// On how many cores; all of them where left out.
    #[serde(default)]
    cores: Option<usize>,
}

impl Runner {
    fn read(&self) -> Result<(Task, Schedule)> {
        let task = self.operator.task()?;
        let schedule = Schedule::from_json(self.schedule.get())
            .map_err(|error| Failure::usage(format!("`{}` has no schedule of ours: {error}", self.operator)))?;
        Ok((task, schedule))
    }
}

/// What is run, in either form.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected an operator in its short form, or a task")]
enum Operator {
    Short(String),
    Task(Box<Task>),
}

impl Operator {
    fn task(&self) -> Result<Task> {
        match self {
            Operator::Short(text) => task(text),
            Operator::Task(task) => {
                let wrong = |error: models::Error| {
                    Failure::usage(format!("cannot use a task of the choice: {}", chain(&error)))
                };
                task.check().map_err(wrong)?;
                Ok((**task).clone())
            }
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operator::Short(text) => f.write_str(text),
            Operator::Task(task) => f.write_str(&task.describe()),
        }
    }
}

/// What was seen.
#[derive(Serialize)]
struct Seen {
    together_ns: f64,
    in_turns_ns: f64,
    /// Side by side over one after the other.
    ratio: Option<Ratio>,
    rounds: usize,
    threads: usize,
    host_class: String,
}

/// Runs both ways.
pub fn run(arguments: &RaceRun) -> Result<u8> {
    let choice = read(&arguments.choice)?;
    let cpus = machine::allowed_cpus()?;
    check(&choice, cpus.len(), &arguments.choice)?;
    tell(&machine::shared_core_notes(&[choice.threads], &cpus));
    let mut workers = machine::workers(&Limits::default())?;
    let target = machine::target("llvm", &mut workers)?;
    machine::prepare(&target, Versions::new(), &mut workers)?;
    let runners: Vec<&Runner> = choice.together.iter().chain(&choice.in_turns).collect();
    let (mut jobs, mut flops) = (Vec::new(), 0);
    for runner in &runners {
        let (task, schedule) = runner.read()?;
        flops += task.work().map_or(0, |work| work.flops);
        jobs.push(BuildJob::new(&serde_json::to_string(&task).map_err(Failure::environment)?, &target, &schedule));
    }
    let mut codes = Vec::new();
    for ((build, job), runner) in workers.build(&jobs, &mut || ()).into_iter().zip(&jobs).zip(&runners) {
        match build {
            Build::Built(artifact) => codes.push(What::code(&job.task, &artifact)),
            Build::Failed(why) | Build::Rejected(why) => {
                return Err(Failure::usage(format!("cannot build `{}`: {why}", runner.operator)));
            }
            Build::Fault(fault) => {
                return Err(Failure::environment(format!("cannot build `{}`: {fault}", runner.operator)));
            }
        }
    }
    let in_turns = codes.split_off(choice.together.len());
    let mut next = 0;
    let lane = |(what, runner): (What, &Runner)| {
        let cores = runner.cores.unwrap_or(1);
        next += cores;
        Lane { codes: vec![what], cpus: cpus[next - cores..next].to_vec() }
    };
    let together = codes.into_iter().zip(&choice.together).map(lane).collect();
    let alone = vec![Lane { codes: in_turns, cpus: cpus[..choice.threads].to_vec() }];
    let rule = Together { rounds: arguments.rounds, phase_ns: 10_000_000, samples_min: 5, ..Together::default() };
    let job = TogetherJob::Race(RaceJob { ways: vec![together, alone], seed: 0, rule });
    let deadline = job.deadline(flops, Duration::from_secs_f64(Limits::default().run_seconds));
    let _exclusive = crate::exclusive(arguments.wait)?;
    let courses = match workers.run_together(job, deadline).reply {
        Ok(RunReply::Together(TogetherReply::Ways(courses))) => courses,
        Ok(RunReply::Failed(why)) => return Err(Failure::environment(format!("the operators did not run: {why}"))),
        Ok(other) => return Err(Failure::environment(format!("the operators did not run: {other:?}"))),
        Err(fault) => return Err(Failure::environment(format!("the operators did not run: {fault}"))),
    };
    let [together, alone] = courses.as_slice() else {
        return Err(Failure::environment("the operators did not run in both ways"));
    };
    let (Some(together_ns), Some(in_turns_ns)) = (together.median_ns(), alone.median_ns()) else {
        return Err(Failure::environment("the time limit ended the first round"));
    };
    let seen = Seen {
        together_ns,
        in_turns_ns,
        ratio: together.over(alone),
        rounds: together.rounds_ns.len(),
        threads: choice.threads,
        host_class: measure::host::Facts::read().host_class(),
    };
    if arguments.json {
        print_json(&seen)?
    } else {
        print(&describe(&seen))?
    }
    Ok(DONE)
}

/// Reads the tasks and schedules of a choice for a machine with so many cores.
pub fn read_jobs(path: &Path, cpus: usize) -> Result<Vec<(Task, Schedule)>> {
    let choice = read(path)?;
    check(&choice, cpus, path)?;
    choice.together.iter().chain(&choice.in_turns).map(Runner::read).collect()
}

fn read(path: &Path) -> Result<Choice> {
    let wrong = |why: String| {
        Failure::usage(format!("cannot read the choice `{}`: {why}", path.display()))
            .with_hint("`oppredict cotune --choice FILE` writes one")
    };
    let mut text = Vec::new();
    let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
    file.take(BYTES_MAX + 1).read_to_end(&mut text).map_err(|error| wrong(error.to_string()))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(wrong(format!("it is larger than {BYTES_MAX} bytes")));
    }
    serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))
}

fn check(choice: &Choice, cpus: usize, path: &Path) -> Result<()> {
    let wrong = |why: String| Err(Failure::usage(format!("the choice `{}` cannot be run: {why}", path.display())));
    if choice.threads == 0 || choice.threads > cpus {
        return wrong(format!("it is for {} cores, and this process has {cpus}", choice.threads));
    }
    let counts = [choice.together.len(), choice.in_turns.len()];
    if counts.iter().any(|count| !(1..=OPERATORS_MOST).contains(count)) {
        return wrong(format!("it has {} and {} operators; 1 to {OPERATORS_MOST} run together", counts[0], counts[1]));
    }
    let cores = choice.together.iter().map(|runner| runner.cores.unwrap_or(1));
    let sum = cores.clone().fold(0usize, usize::saturating_add);
    if sum > choice.threads || cores.clone().any(|cores| cores == 0) {
        return wrong(format!("its operators take {sum} cores of {}, each at least one", choice.threads));
    }
    Ok(())
}

fn task(text: &str) -> Result<Task> {
    let wrong = |error: models::Error| Failure::usage(format!("cannot use `{text}`: {}", chain(&error)));
    let graph = passes::simplify(&zoo::simple::build(text).map_err(wrong)?).map_err(wrong)?;
    let mut tasks = models::tasks(&graph, Fuse::Epilogue).map_err(wrong)?;
    match tasks.len() {
        1 => Ok(tasks.remove(0).task),
        count => Err(Failure::usage(format!("`{text}` makes {count} tasks, not one"))),
    }
}

fn describe(seen: &Seen) -> String {
    let mut table = Table::new([words("way"), figures("median")]);
    table.row(["side by side".to_owned(), duration(seen.together_ns)]);
    table.row(["one after the other".to_owned(), duration(seen.in_turns_ns)]);
    let ratio = seen.ratio.map_or_else(String::new, |ratio| {
        let interval = ratio.interval.map_or_else(String::new, |(low, high)| format!(" ({low:.3} … {high:.3})"));
        format!("\nside by side takes {:.3}{interval} times as long, in {} rounds", ratio.median, seen.rounds)
    });
    format!("{}{ratio}", table.on(&paper()))
}
