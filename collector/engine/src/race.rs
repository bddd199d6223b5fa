//! Compares concurrent with sequential execution of a few operators with given schedules, in interleaved rounds.

use crate::campaign::config::Limits;
use crate::compare::{VISITS, over_visits};
use crate::failure::{Failure, format_chain};
use crate::observer::Observer;
use crate::{Result, machine};
use bench::{Bench, Build, Versions, Workers};
use job::space::{Schedule, task_space};
use job::{BuildJob, MemberWork, RaceJob, RaceLane, RunReply, TogetherJob, TogetherReply};
use measure::host::Facts;
use measure::{Ratio, RoundTimes, Together};
use models::{Fuse, Task, files};
use report::{Paper, Table, format_count, format_duration, number_column, text_column};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fmt;
use std::path::Path;
use std::time::Duration;
use targets::{HOST, Target};

const MAX_CHOICE_BYTES: u64 = 1 << 20;
const MAX_OPERATORS: usize = 16;

/// Two schemes for running a few operators, concurrent and sequential, as written by `oppredict cotune`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice {
    /// Total number of cores.
    threads: usize,
    /// Operators of the concurrent scheme, each on cores of its own.
    together: Vec<ChosenOperator>,
    /// Operators of the sequential scheme, each on all cores.
    #[serde(rename = "in_turns")]
    sequential: Vec<ChosenOperator>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChosenOperator {
    operator: OperatorForm,
    /// Schedule as JSON, in the format of records.
    schedule: Box<RawValue>,
    /// Number of cores of the operator in the concurrent scheme; 1 by default.
    #[serde(default)]
    cores: Option<usize>,
}

impl ChosenOperator {
    fn read_operator(&self) -> Result<(Task, Schedule)> {
        let task = self.operator.parse_task()?;
        let schedule = Schedule::from_json(self.schedule.get())
            .map_err(|error| Failure::usage(format!("`{}` has no valid schedule: {error}", self.operator)))?;
        Ok((task, schedule))
    }
}

/// An operator in its short text form, or a task as printed by `opcollect tasks --json`.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected an operator in its short form, or a task")]
enum OperatorForm {
    Short(String),
    Task(Box<Task>),
}

impl OperatorForm {
    fn parse_task(&self) -> Result<Task> {
        match self {
            OperatorForm::Short(text) => parse_operator(text),
            OperatorForm::Task(task) => {
                let wrong = |error: models::Error| {
                    Failure::usage(format!("cannot use a task of the choice file: {}", format_chain(&error)))
                };
                task.check().map_err(wrong)?;
                Ok((**task).clone())
            }
        }
    }
}

impl fmt::Display for OperatorForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OperatorForm::Short(text) => f.write_str(text),
            OperatorForm::Task(task) => f.write_str(&task.describe()),
        }
    }
}

/// Times of the concurrent and the sequential scheme.
#[derive(Debug, Serialize)]
pub struct RaceReport {
    /// Median time until all concurrent operators have ended, in nanoseconds.
    pub together_ns: f64,
    /// Median total time of the operators in sequence, in nanoseconds.
    #[serde(rename = "in_turns_ns")]
    pub sequential_ns: f64,
    /// Concurrent time divided by sequential time, compared within rounds; the interval is over visits.
    pub ratio: Option<Ratio>,
    /// Number of interleaved rounds.
    pub rounds: usize,
    /// Number of visits (fresh processes), among which the rounds are divided.
    pub visits: usize,
    /// Total number of cores.
    pub threads: usize,
    /// Class of the host.
    pub host_class: String,
}

/// Times concurrent and sequential execution of a file's operators. Waits up to `wait_seconds` for other processes.
pub fn run_race(path: &Path, rounds: u32, wait_seconds: u64, observer: &dyn Observer) -> Result<RaceReport> {
    let choice = read_choice(path)?;
    let cpus = machine::allowed_cpus()?;
    check_choice(&choice, cpus.len(), path)?;
    observer.receive_notes(&machine::shared_core_notes(&[choice.threads], &cpus));
    let mut workers = machine::create_workers(&Limits::default())?;
    let target = machine::resolve_target(HOST, &mut workers)?;
    machine::collect_versions(&target, Versions::new(), &mut workers)?;
    let (codes, flops) = build_operators(&choice, &target, &mut workers)?;
    let ways = variant_lanes(&choice, codes, &cpus);
    let _exclusive = machine::lock_cpus(wait_seconds, observer)?;
    let (visits, mut times) = (VISITS.min(rounds), [Vec::new(), Vec::new()]);
    let mut ratios = Vec::new();
    for visit in 0..visits {
        let rounds = rounds * (visit + 1) / visits - rounds * visit / visits;
        let rule = Together { rounds, phase_ns: 10_000_000, samples_min: 5, ..Together::default() };
        let job = TogetherJob::Race(RaceJob { ways: ways.clone(), seed: 0, rule });
        let deadline = job.time_limit(flops, Duration::from_secs_f64(Limits::default().run_seconds));
        let courses = run_lanes(job, deadline, &mut machine::create_workers(&Limits::default())?)?;
        let [together, alone] = courses.as_slice() else {
            return Err(Failure::environment("the operators did not run both concurrently and sequentially"));
        };
        ratios.extend(together.ratio_to(alone).map(|ratio| ratio.median));
        times[0].extend(&together.rounds_ns);
        times[1].extend(&alone.rounds_ns);
    }
    let [together, alone] = times.map(|rounds_ns| RoundTimes { rounds_ns });
    let (Some(together_ns), Some(sequential_ns)) = (together.median_ns(), alone.median_ns()) else {
        return Err(Failure::environment("the time limit ended the first round"));
    };
    Ok(RaceReport {
        together_ns,
        sequential_ns,
        ratio: over_visits(&ratios),
        rounds: together.rounds_ns.len(),
        visits: ratios.len(),
        threads: choice.threads,
        host_class: Facts::read_facts().host_class(),
    })
}

/// Builds all operators of a choice file. Returns their code, and their total floating-point operations.
fn build_operators(choice: &Choice, target: &Target, workers: &mut Workers) -> Result<(Vec<MemberWork>, u64)> {
    let operators: Vec<&ChosenOperator> = choice.together.iter().chain(&choice.sequential).collect();
    let (mut jobs, mut flops) = (Vec::new(), 0);
    for operator in &operators {
        let (task, schedule) = operator.read_operator()?;
        check_settings(&task, &schedule, target, &operator.operator)?;
        flops += task.work().map_or(0, |work| work.flops);
        jobs.push(BuildJob::for_schedule(
            &serde_json::to_string(&task).map_err(Failure::environment)?,
            target,
            &schedule,
        ));
    }
    let builds = workers.build_jobs(&jobs, &mut || ());
    let code = |((build, job), chosen): ((Build, &BuildJob), &&ChosenOperator)| match build {
        Build::Built(artifact) => Ok(MemberWork::built_code(&job.task, &artifact)),
        Build::Failed(why) | Build::Rejected(why) => {
            Err(Failure::usage(format!("cannot build `{}`: {why}", chosen.operator)))
        }
        Build::Fault(fault) => Err(Failure::environment(format!("cannot build `{}`: {fault}", chosen.operator))),
    };
    let codes = builds.into_iter().zip(&jobs).zip(&operators).map(code).collect::<Result<Vec<MemberWork>>>()?;
    Ok((codes, flops))
}

/// Refuses knobs whose settings are not in the operator's search space: code for them may be wrong.
fn check_settings(task: &Task, schedule: &Schedule, target: &Target, operator: &OperatorForm) -> Result<()> {
    let Schedule::Template { knobs } = schedule else { return Ok(()) };
    match task_space(task, &target.machine).foreign_knob(knobs) {
        None => Ok(()),
        Some((name, _, None)) => Err(Failure::usage(format!("`{operator}` has no knob `{name}` on this machine"))),
        Some((name, setting, Some(axis))) => {
            let known: Vec<String> = axis.settings.iter().map(ToString::to_string).collect();
            let known = known.join(", ");
            Err(Failure::usage(format!("`{operator}`: the knob `{name}` cannot be {setting}; known: {known}")))
        }
    }
}

fn variant_lanes(choice: &Choice, mut codes: Vec<MemberWork>, cpus: &[usize]) -> Vec<Vec<RaceLane>> {
    let sequential = codes.split_off(choice.together.len());
    let mut next = 0;
    let lane = |(what, operator): (MemberWork, &ChosenOperator)| {
        let cores = operator.cores.unwrap_or(1);
        next += cores;
        RaceLane { codes: vec![what], cpus: cpus[next - cores..next].to_vec() }
    };
    let together = codes.into_iter().zip(&choice.together).map(lane).collect();
    vec![together, vec![RaceLane { codes: sequential, cpus: cpus[..choice.threads].to_vec() }]]
}

fn run_lanes(job: TogetherJob, deadline: Duration, workers: &mut Workers) -> Result<Vec<RoundTimes>> {
    let failed = |why: String| Failure::environment(format!("the operators did not run: {why}"));
    match workers.run_together(job, deadline).reply {
        Ok(RunReply::Together(TogetherReply::Ways(courses))) => Ok(courses),
        Ok(RunReply::Failed(why)) => Err(failed(why)),
        Ok(other) => Err(failed(format!("{other:?}"))),
        Err(fault) => Err(failed(fault.to_string())),
    }
}

/// Reads the tasks and schedules of a choice file, and checks that `cpus` cores are enough.
pub fn read_jobs(path: &Path, cpus: usize) -> Result<Vec<(Task, Schedule)>> {
    let choice = read_choice(path)?;
    check_choice(&choice, cpus, path)?;
    choice.together.iter().chain(&choice.sequential).map(ChosenOperator::read_operator).collect()
}

fn read_choice(path: &Path) -> Result<Choice> {
    let wrong = |why: String| {
        Failure::usage(format!("cannot read the choice file `{}`: {why}", path.display()))
            .with_hint("`oppredict cotune --choice FILE` writes one")
    };
    let text = files::read_bounded(path, MAX_CHOICE_BYTES).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))
}

fn check_choice(choice: &Choice, cpus: usize, path: &Path) -> Result<()> {
    let wrong = |why: String| Err(Failure::usage(format!("the choice file `{}` cannot be run: {why}", path.display())));
    if choice.threads == 0 || choice.threads > cpus {
        return wrong(format!("it needs {} cores, but this process has {cpus}", choice.threads));
    }
    let counts = [choice.together.len(), choice.sequential.len()];
    if counts.iter().any(|count| !(1..=MAX_OPERATORS).contains(count)) {
        return wrong(format!(
            "its schemes have {} and {} operators; allowed are 1 to {MAX_OPERATORS}",
            counts[0], counts[1]
        ));
    }
    let cores = choice.together.iter().map(|operator| operator.cores.unwrap_or(1));
    let sum = cores.clone().fold(0usize, usize::saturating_add);
    if sum > choice.threads || cores.clone().any(|cores| cores == 0) {
        return wrong(format!(
            "its concurrent operators need {sum} of {} cores, and each needs at least one",
            choice.threads
        ));
    }
    // In sequence, every operator has all cores.
    if let Some(cores) = choice.sequential.iter().filter_map(|one| one.cores).find(|cores| *cores != choice.threads) {
        return wrong(format!("a sequential operator has {cores} of {} cores, but each has all", choice.threads));
    }
    let hashes = |operators: &[ChosenOperator]| -> Result<Vec<String>> {
        let mut hashes =
            operators.iter().map(|one| Ok(one.operator.parse_task()?.hash())).collect::<Result<Vec<String>>>()?;
        hashes.sort_unstable();
        Ok(hashes)
    };
    match hashes(&choice.together)? == hashes(&choice.sequential)? {
        true => Ok(()),
        false => wrong("its schemes have different operators".to_owned()),
    }
}

fn parse_operator(text: &str) -> Result<Task> {
    let wrong = |error: models::Error| Failure::usage(format!("cannot use `{text}`: {}", format_chain(&error)));
    let graph = passes::simplify_graph(&zoo::simple::build_operator(text).map_err(wrong)?).map_err(wrong)?;
    let mut tasks = models::distinct_tasks(&graph, Fuse::Epilogue).map_err(wrong)?;
    match tasks.len() {
        1 => Ok(tasks.remove(0).task),
        count => Err(Failure::usage(format!("`{text}` has {count} tasks instead of one"))),
    }
}

impl RaceReport {
    /// Formats the times as a table, with a sentence about the ratio.
    pub fn describe(&self, paper: &Paper) -> String {
        let mut table = Table::new([text_column("way"), number_column("median")]);
        table.add_row(["concurrent".to_owned(), format_duration(self.together_ns)]);
        table.add_row(["sequential".to_owned(), format_duration(self.sequential_ns)]);
        let ratio = self.ratio.map_or_else(String::new, |ratio| {
            let interval = ratio.interval.map_or_else(String::new, |(low, high)| format!(" ({low:.3} … {high:.3})"));
            format!(
                "\nconcurrent execution takes {:.3}{interval} times as long as sequential execution, in {} of {}",
                ratio.median,
                format_count(self.rounds, "round"),
                format_count(self.visits, "visit")
            )
        });
        format!("{}{ratio}", table.format_for(paper))
    }
}
