//! `replay`: built and measured again. Either one record of a store, or the candidates of a saved run of TVM's tuner.

use super::{DONE, DONE_WITH_LOSSES, Result, paper, print, print_json, tell, tell_damage};
use bench::{Bench, Build, Done, Remembering, Work};
use clap::Args;
use datasets::{Choose, EXPERIMENT, Key, Record, RowError};
use engine::bases::bases;
use engine::campaign::collect::{Outside, claim_all};
use engine::campaign::config::{Limits, ModelRequest, SIMPLE};
use engine::campaign::graphs::LoadedModels;
use engine::campaign::settings::SweepSettings;
use engine::campaign::{Attempt, Campaign, Code, Settings, Sweep, Told, collect};
use engine::failure::{Failure, chain};
use engine::machine;
use engine::stores::{failed, open};
use job::space::{Moves, Schedule};
use job::target::Target;
use job::{BuildJob, Measured, RunJob, RunReply};
use measure::counters::{self, CounterRequest};
use measure::host::Facts;
use measure::statistics::percentile;
use measure::{Evaluator, Method, Plan};
use models::Task;
use report::{Cell, Table, duration, figures, number, or_unknown, words};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use worker::Fault;

/// What is built and measured again.
#[derive(Clone, Debug, Args)]
pub struct Replay {
    /// Trace files: a header line, then one candidate a line
    #[arg(long, value_name = "FILE", num_args = 1.., required_unless_present = "key")]
    pub traces: Vec<PathBuf>,
    /// The record with this key: its task, schedule, threads and measuring plan; nothing is stored
    #[arg(long, value_name = "HEX", conflicts_with = "traces")]
    pub key: Option<String>,
    /// The store of the record
    #[arg(long, value_name = "DIR", default_value = "opcollect-data", requires = "key")]
    pub store: PathBuf,
    /// Measure by the rule of TVM's evaluator: NUMBER,REPEAT,MIN_REPEAT_MS; without it by our own stopping rule
    #[arg(long, value_name = "N,R,MS", value_delimiter = ',', num_args = 1)]
    pub evaluator: Vec<u32>,
    /// Also measure each artifact with TVM's own evaluator, by the same rule
    #[arg(long, requires = "evaluator")]
    pub compare_evaluator: bool,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,
    /// Builders at work at once [default: one per CPU]
    #[arg(long, value_name = "N")]
    pub builders: Option<usize>,
    /// Build nothing while a candidate runs
    #[arg(long)]
    pub no_overlap: bool,
    /// Only the first candidates
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Wait so long when another process measures on the same CPUs, instead of refusing
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub wait: u64,
    /// Print one JSON document as the last line of stdout instead of a table
    #[arg(long)]
    pub json: bool,
}

/// More than a candidate takes. JSON values may take a hundred times the memory of their text.
const LINE_BYTES_MAX: u64 = 2 << 20;

/// First line of a trace file.
#[derive(Deserialize)]
struct Header {
    op: String,
}

/// A candidate of a trace file.
#[derive(Deserialize)]
struct Line {
    i: i64,
    run_ms: f64,
    trace: Moves,
}

/// What a replay of one file gave.
#[derive(Serialize)]
struct Replayed {
    operator: String,
    count: usize,
    ok_count: usize,
    /// Waiting for builders.
    build_seconds: f64,
    /// Waiting for the runner.
    run_seconds: f64,
    candidates_per_minute: f64,
    /// Median over candidates of our time over the time in the file.
    over_recorded: Option<f64>,
    /// Median over candidates of |ours over TVM's evaluator on the same artifact − 1|.
    evaluator_difference: Option<f64>,
    candidates: Vec<Candidate>,
}

#[derive(Serialize)]
struct Candidate {
    i: i64,
    recorded_ms: f64,
    /// Median of the samples; the mean of the only one under the evaluator's rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_ms: Option<f64>,
    n: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tvm_evaluator_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    loss: Option<String>,
}

/// Replays a record or every file.
pub fn run(arguments: &Replay) -> Result<u8> {
    match &arguments.key {
        Some(key) => replay_record(key, arguments),
        None => replay_files(arguments),
    }
}

/// Builds and measures one record again, exactly as it says.
fn replay_record(key: &str, arguments: &Replay) -> Result<u8> {
    let wanted: Key = key.parse().map_err(|_| {
        Failure::usage(format!("`{key}` is not a key"))
            .with_hint("a key has 32 hexadecimal digits; see the column `key`")
    })?;
    let recorded = find(&arguments.store, wanted)?;
    let replayed = ReplayedRecord::new(&recorded, &measure_again(&recorded, arguments.wait)?);
    if arguments.json {
        print_json(&replayed)?;
    } else {
        print(&replayed.describe())?;
    }
    Ok(if replayed.median_ns.is_some() { DONE } else { DONE_WITH_LOSSES })
}

/// The record of a key. What cannot be read may be the one, so it is told.
fn find(store: &Path, wanted: Key) -> Result<Record> {
    let mut records = open(store)?.records(Choose::Middle).map_err(failed)?;
    for record in records.by_ref() {
        let record = record.map_err(failed)?;
        if record.key == wanted {
            return Ok(record);
        }
    }
    let left_out = tell_damage(records.damage()) != DONE;
    let failure = Failure::usage(format!("`{}` has no record {wanted} that can be read", store.display()));
    Err(if left_out {
        failure.with_hint("part of the store is damaged; see `opcollect dataset verify`")
    } else {
        failure
    })
}

/// A campaign of one attempt; its record.
fn measure_again(recorded: &Record, wait_seconds: u64) -> Result<Record> {
    let facts = Facts::read();
    let told = Told::of(recorded, machine::guess("llvm")?)
        .map_err(|error| Failure::usage(format!("the record {} cannot be replayed: {error}", recorded.key)))?;
    refuse_foreign_cpus(&told.cpus)?;
    let raw = Settings {
        sweep: SweepSettings { seed: Some(told.seed), ..SweepSettings::default() },
        counters: CounterRequest { backend: counters::Backend::None, ..CounterRequest::default() },
        limits: Limits { builders: 1, spin_count: told.spin_count, ..Limits::default() },
        ..Settings::default()
    };
    let config = raw.check(machine::allowed_cpus()?.len()).map_err(Failure::usage)?;
    let mut workers = machine::workers(&config.limits)?;
    let tasks = [told.task.clone()];
    let library = machine::library_versions(&tasks, &[], &mut workers)?;
    let versions = machine::prepare(&told.target, library, &mut workers)?;
    let bases = bases(&config, &told.target, &facts, &versions)?;
    let base = if told.code == Code::Library { &bases.library } else { &bases.compiled };
    let attempt = told.attempt(base).map_err(|error| Failure::usage(chain(&error)))?;
    let campaign = Campaign { tasks: &tasks, modules: &[], target: &told.target, config: &config };
    let _exclusive = crate::exclusive(wait_seconds)?;
    only(attempt, &campaign, &mut workers)
}

/// Makes all visits of one attempt.
fn only(attempt: Attempt, campaign: &Campaign<'_>, bench: &mut dyn Bench) -> Result<Record> {
    let mut made: Vec<Record> = Vec::new();
    let mut sink = |record: &Record| -> std::result::Result<(), RowError> {
        made.push(record.clone());
        Ok(())
    };
    let mut outside = Outside { sink: &mut sink, listener: &mut |_| (), should_stop: &|| false, claim: &mut claim_all };
    let outcomes = collect(&mut Sweep::new(vec![attempt]), campaign, &mut Remembering::new(bench), &mut outside);
    let broken = outcomes.map_err(Failure::environment)?.broken;
    datasets::choose(made, Choose::Middle).pop().ok_or_else(|| {
        let why = broken.unwrap_or_else(|| "it was not made".to_owned());
        Failure::environment(format!("cannot start a worker: {why}")).with_hint(machine::SETUP_HINT)
    })
}

fn refuse_foreign_cpus(cpus: &[usize]) -> Result<()> {
    let allowed = machine::allowed_cpus()?;
    let foreign: Vec<String> = cpus.iter().filter(|cpu| !allowed.contains(cpu)).map(usize::to_string).collect();
    if cpus.is_empty() || !foreign.is_empty() {
        let problem = format!("the record ran on CPUs that this process may not use: {}", foreign.join(", "));
        return Err(Failure::environment(problem).with_hint("replay it on the machine it comes from"));
    }
    Ok(())
}

/// A record and what its candidate gave now.
#[derive(Serialize)]
struct ReplayedRecord {
    key: String,
    task: String,
    schedule: String,
    threads: usize,
    recorded_median_ns: Option<f64>,
    median_ns: Option<f64>,
    median_interval_ns: Option<f64>,
    ratio: Option<f64>,
    loss: Option<String>,
    /// Columns that make the two different experiments.
    differs_in: Vec<&'static str>,
}

impl ReplayedRecord {
    fn new(recorded: &Record, now: &Record) -> ReplayedRecord {
        let schedule = now.schedule.as_ref().and_then(|text| Schedule::from_json(text.text()).ok());
        let differs = EXPERIMENT.iter().filter(|&&id| recorded.cell(id) != now.cell(id));
        ReplayedRecord {
            key: recorded.key.hex(),
            task: now.op_text.clone(),
            schedule: schedule.map_or_else(|| "library".to_owned(), |schedule| schedule.describe()),
            threads: now.threads.and_then(|threads| usize::try_from(threads).ok()).unwrap_or(0),
            recorded_median_ns: recorded.median_ns,
            median_ns: now.median_ns,
            median_interval_ns: now.median_interval_ns,
            ratio: now.median_ns.zip(recorded.median_ns).map(|(now, then)| now / then),
            loss: now.reason.as_ref().map(|why| format!("{}: {why}", now.outcome)),
            differs_in: differs.map(|id| id.name()).collect(),
        }
    }

    fn describe(&self) -> String {
        let time = |ns: Option<f64>| ns.map(duration).unwrap_or_else(|| "no time".to_owned());
        let mut text = format!(
            "{}\n{} · {} threads\nrecorded {}, now {}",
            self.task,
            self.schedule,
            self.threads,
            time(self.recorded_median_ns),
            time(self.median_ns)
        );
        if let Some(ratio) = self.ratio {
            text.push_str(&format!(", ratio {ratio:.3}"));
        }
        if let Some(loss) = &self.loss {
            text.push_str(&format!("\n{loss}"));
        }
        if !self.differs_in.is_empty() {
            text.push_str(&format!("\nanother experiment than the recorded one, by {}", self.differs_in.join(", ")));
        }
        text
    }
}

fn replay_files(arguments: &Replay) -> Result<u8> {
    let cpus = machine::cpus_of(Some(arguments.threads), &machine::allowed_cpus()?, "this machine")?;
    tell(&machine::shared_core_notes(&[cpus.len()], &cpus));
    let method = method(arguments)?;
    let builders = arguments.builders.unwrap_or(0);
    let limits = Limits { builders, overlap: !arguments.no_overlap, ..Limits::default() };
    let mut workers = machine::workers(&limits)?;
    let target = machine::target("llvm", &mut workers)?;
    let tvm_evaluator = match &method {
        Method::Evaluate(rule) if arguments.compare_evaluator => Some(rule.clone()),
        Method::Evaluate(_) | Method::Sample(_) => None,
    };
    let setting = Setting { method, cpus, tvm_evaluator };
    let _exclusive = crate::exclusive(arguments.wait)?;
    let mut all = Vec::new();
    for path in &arguments.traces {
        all.push(replay(path, arguments.limit, &target, &setting, &mut workers)?);
    }
    let has_losses = all.iter().any(|replayed| replayed.ok_count < replayed.count);
    if arguments.json {
        print_json(&all)?;
    } else {
        print(&table(&all))?;
    }
    Ok(if has_losses { DONE_WITH_LOSSES } else { DONE })
}

/// How a candidate is measured.
struct Setting {
    method: Method,
    cpus: Vec<usize>,
    tvm_evaluator: Option<Evaluator>,
}

fn method(arguments: &Replay) -> Result<Method> {
    let method = match arguments.evaluator.as_slice() {
        [] => Method::Sample(Plan::default()),
        [number, repeat, min_repeat_ms] => Method::Evaluate(Evaluator {
            number: *number,
            repeat: *repeat,
            min_repeat_ms: *min_repeat_ms,
            ..Evaluator::default()
        }),
        _ => return Err(Failure::usage("`--evaluator` takes three numbers: NUMBER,REPEAT,MIN_REPEAT_MS")),
    };
    method.check().map_err(Failure::usage)?;
    Ok(method)
}

fn replay(
    path: &Path,
    limit: Option<usize>,
    target: &Target,
    setting: &Setting,
    bench: &mut dyn Bench,
) -> Result<Replayed> {
    let (task, op, lines) = read(path, limit)?;
    let task_json = serde_json::to_string(&task).map_err(Failure::usage)?;
    // TVM's evaluator measures by the same rule once more.
    let run = RunJob::new(task_json.clone(), setting.cpus.clone(), setting.method.clone());
    let run = RunJob { tvm_evaluator: setting.tvm_evaluator.clone(), ..run };
    let slack = Duration::from_secs_f64(Limits::default().run_seconds);
    let deadline = 2 * run.deadline(task.work().map_or(0, |work| work.flops), slack);
    let start = Instant::now();
    let (mut build_seconds, mut run_seconds) = (0.0, 0.0);
    for (place, line) in (0..).zip(&lines) {
        let schedule = Schedule::Trace { trace: line.trace.clone() };
        bench.submit(place, Work::Build(BuildJob::new(&task_json, target, &schedule)));
    }
    let mut measured = BTreeMap::new();
    let mut waiting = Instant::now();
    while let Some((place, done)) = bench.next(&mut || true) {
        let seconds = waiting.elapsed().as_secs_f64();
        match done {
            Done::Built(build) => {
                build_seconds += seconds;
                match build {
                    Build::Built(artifact) => bench.submit(place, Work::Run(run.clone().of(&artifact), deadline)),
                    Build::Failed(why) | Build::Rejected(why) => drop(measured.insert(place, Err(why))),
                    Build::Fault(fault) => drop(measured.insert(place, Err(fault.to_string()))),
                }
            }
            Done::Ran(ran) => {
                run_seconds += seconds;
                measured.insert(place, time(ran.reply));
            }
        }
        waiting = Instant::now();
    }
    let seconds = start.elapsed().as_secs_f64();
    let results: Vec<Candidate> =
        lines.iter().zip(measured.into_values()).map(|(line, measured)| candidate(line, measured)).collect();
    let ratio = |of: &dyn Fn(&Candidate) -> Option<f64>| -> Option<f64> {
        let mut ratios: Vec<f64> = results.iter().filter_map(of).collect();
        ratios.sort_by(f64::total_cmp);
        (!ratios.is_empty()).then(|| percentile(&ratios, 0.5))
    };
    Ok(Replayed {
        operator: op,
        count: results.len(),
        ok_count: results.iter().filter(|candidate| candidate.loss.is_none()).count(),
        build_seconds,
        run_seconds,
        candidates_per_minute: 60.0 * results.len() as f64 / seconds,
        over_recorded: ratio(&|candidate| Some(candidate.run_ms? / candidate.recorded_ms)),
        evaluator_difference: ratio(&|candidate| Some((candidate.run_ms? / candidate.tvm_evaluator_ms? - 1.0).abs())),
        candidates: results,
    })
}

/// What was measured; the text says why there is no time.
fn time(reply: std::result::Result<RunReply, Fault>) -> std::result::Result<Box<Measured>, String> {
    match reply {
        Ok(RunReply::Measured(measured)) => Ok(measured),
        Ok(RunReply::WrongResult(check)) => Err(format!("wrong result, off by {:.3e}", check.max_abs_error)),
        Ok(RunReply::Failed(why) | RunReply::Unsupported(why)) => Err(why),
        Ok(RunReply::Profiled(_)) => Err("only its operators were looked at".to_owned()),
        Ok(RunReply::Together(_)) => Err("it ran beside others".to_owned()),
        Ok(RunReply::Simulated(_)) => Err("it was simulated, not measured".to_owned()),
        Err(fault) => Err(fault.to_string()),
    }
}

fn candidate(line: &Line, measured: std::result::Result<Box<Measured>, String>) -> Candidate {
    let empty = Candidate {
        i: line.i,
        recorded_ms: line.run_ms,
        run_ms: None,
        min_ms: None,
        n: 0,
        tvm_evaluator_ms: None,
        loss: None,
    };
    match measured {
        Ok(measured) => {
            let mut theirs = measured.tvm_seconds.clone();
            theirs.sort_by(f64::total_cmp);
            Candidate {
                run_ms: Some(measured.measurement.median_ns / 1e6),
                min_ms: Some(measured.measurement.min_ns / 1e6),
                n: measured.measurement.n,
                tvm_evaluator_ms: (!theirs.is_empty()).then(|| percentile(&theirs, 0.5) * 1e3),
                ..empty
            }
        }
        Err(why) => Candidate { loss: Some(why), ..empty },
    }
}

/// Reads the task and the moves of all candidates of a trace file.
pub fn read_moves(path: &Path) -> Result<(Task, Vec<Moves>)> {
    let (task, _, lines) = read(path, None)?;
    Ok((task, lines.into_iter().map(|line| line.trace).collect()))
}

/// The task, the operator's name and the candidates of a file.
fn read(path: &Path, limit: Option<usize>) -> Result<(Task, String, Vec<Line>)> {
    let at = |line: usize, error: &dyn std::fmt::Display| {
        Failure::usage(format!("`{}`, line {line}: {error}", path.display()))
            .with_hint("a trace file has a header with `op`, then lines with `i`, `run_ms` and `trace`")
    };
    let file = std::fs::File::open(path)
        .map_err(|error| Failure::usage(format!("cannot read `{}`: {error}", path.display())))?;
    let mut lines = Vec::new();
    let mut header: Option<Header> = None;
    let mut file = BufReader::new(file);
    for index in 0.. {
        let mut text = String::new();
        let read = (&mut file).take(LINE_BYTES_MAX + 1).read_line(&mut text).map_err(|error| at(index + 1, &error))?;
        match read as u64 {
            0 => break,
            1..=LINE_BYTES_MAX => {}
            _ => return Err(at(index + 1, &format!("it is longer than {LINE_BYTES_MAX} bytes"))),
        }
        if header.is_none() {
            header = Some(serde_json::from_str(&text).map_err(|error| at(1, &error))?);
        } else if limit.is_none_or(|limit| lines.len() < limit) {
            lines.push(serde_json::from_str(&text).map_err(|error| at(index + 1, &error))?);
        }
    }
    let header = header.ok_or_else(|| at(1, &"the file is empty"))?;
    let task = task_of(&header.op).map_err(|failure| at(1, &failure))?;
    Ok((task, header.op, lines))
}

/// The task of an operator's short name, such as `matmul512` or `conv2d_64x56_k3`, or of a `simple` text.
fn task_of(op: &str) -> Result<Task> {
    let text = if op.contains(':') { op.to_owned() } else { simple_text(op).ok_or_else(|| unknown(op))? };
    let request = ModelRequest { source: SIMPLE.to_owned(), name: text, ..ModelRequest::default() };
    let model = LoadedModels::default().load(&request).map_err(|error| Failure::usage(chain(&error)))?;
    let tasks = models::fuse::tasks(&model.graph, models::fuse::Fuse::Epilogue);
    let tasks = tasks.map_err(|error| Failure::usage(chain(&error)))?;
    tasks.into_iter().next().map(|found| found.task).ok_or_else(|| unknown(op))
}

fn unknown(op: &str) -> Failure {
    Failure::usage(format!(
        "unknown operator `{op}`; known are `matmulN`, `conv2d_CxHW_kK`, `dwconv_CxHW_kK` and simple texts"
    ))
}

fn simple_text(op: &str) -> Option<String> {
    if let Some(size) = op.strip_prefix("matmul") {
        let size: u32 = size.parse().ok()?;
        return Some(format!("matmul:m={size},n={size},k={size}"));
    }
    let (kind, rest) = op.split_once('_')?;
    let (shape, kernel) = rest.split_once("_k")?;
    let (channels, extent) = shape.split_once('x')?;
    let [channels, extent, kernel] = [channels, extent, kernel].map(|text| text.parse::<u32>().ok());
    let (channels, extent, kernel) = (channels?, extent?, kernel?);
    let groups = match kind {
        "conv2d" => 1,
        "dwconv" => channels,
        _ => return None,
    };
    let pad = kernel / 2;
    Some(format!("conv2d:n=1,ci={channels},hw={extent},co={channels},k={kernel},s=1,p={pad},g={groups}"))
}

fn table(all: &[Replayed]) -> String {
    let mut table = Table::new([
        words("operator"),
        figures("candidates"),
        figures("lost"),
        figures("building").drops(2),
        figures("running").drops(1),
        figures("candidates/min").drops(3),
        figures("ours/recorded"),
        figures("ours−TVM"),
    ]);
    for replayed in all {
        let lost = replayed.count - replayed.ok_count;
        let lost_cell = Cell::from(lost.to_string());
        table.row([
            replayed.operator.as_str().into(),
            replayed.count.to_string().into(),
            if lost > 0 { lost_cell.bad() } else { lost_cell },
            duration(replayed.build_seconds * 1e9).into(),
            duration(replayed.run_seconds * 1e9).into(),
            number(replayed.candidates_per_minute).into(),
            Cell::from(or_unknown(replayed.over_recorded, number)),
            or_unknown(replayed.evaluator_difference, |part| format!("{:.2} %", part * 100.0)).into(),
        ]);
    }
    table.on(&paper())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(content: &[u8]) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        read(file.path(), None).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn long_lines_are_not_read() {
        let line = " ".repeat(usize::try_from(LINE_BYTES_MAX).unwrap() + 1);
        assert!(refusal(line.as_bytes()).contains("line 1: it is longer than 2097152 bytes"));
        let later = format!("{{\"op\":\"matmul16\"}}\n{line}\n");
        assert!(refusal(later.as_bytes()).contains("line 2: it is longer"));
        assert!(refusal(b"").contains("the file is empty"));
    }
}
