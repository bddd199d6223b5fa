//! Builds and measures again the candidates that trace files contain.

use super::trace_file::{self, RecordedCandidate, TraceFile};
use crate::campaign::config::Limits;
use crate::failure::Failure;
use crate::observer::Observer;
use crate::runs::reply_measurement;
use crate::{Result, machine};
use bench::{Bench, BenchWork, Build, Done};
use job::space::Schedule;
use job::{BuildJob, Measured, RunJob};
use measure::statistics::interpolate_percentile;
use measure::{Evaluator, Method};
use report::{Cell, Paper, Table, format_duration, format_number, number_column, or_unknown, text_column};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use targets::{HOST, Target};

/// Options of a replay of trace files.
#[derive(Clone, Debug)]
pub struct TraceReplayOptions {
    /// Method of the measurement.
    pub method: Method,
    /// Whether TVM's own evaluator also measures each artifact; requires a `method` with the evaluator's rule.
    pub compares_evaluator: bool,
    /// Number of threads.
    pub threads: usize,
    /// Number of builders; 0 means one per CPU.
    pub builders: usize,
    /// Whether candidates are built while other candidates run.
    pub overlap: bool,
    /// Largest number of candidates per file; None means all.
    pub limit: Option<usize>,
    /// Longest wait for another process that measures on the same CPUs, in seconds.
    pub wait_seconds: u64,
}

/// Result of the replay of one file.
#[derive(Debug, Serialize)]
pub struct FileReplay {
    /// Name of the operator in the file.
    pub operator: String,
    /// Number of candidates that were replayed.
    pub count: usize,
    /// Number of candidates for which a time was measured.
    pub ok_count: usize,
    /// Time spent waiting for builders.
    pub build_seconds: f64,
    /// Time spent waiting for the runner.
    pub run_seconds: f64,
    /// Number of candidates built and measured per minute.
    pub candidates_per_minute: f64,
    /// Ratio of the measured time to the time in the file; median over the candidates.
    pub over_recorded: Option<f64>,
    /// Absolute relative difference between this program's time and TVM's evaluator's; median over the candidates.
    pub evaluator_difference: Option<f64>,
    /// All candidates in the order of the file.
    pub candidates: Vec<CandidateTimes>,
}

/// Times of one candidate.
#[derive(Debug, Serialize)]
pub struct CandidateTimes {
    /// Number of the candidate in its file.
    pub i: i64,
    /// Time recorded in the file, in milliseconds.
    pub recorded_ms: f64,
    /// Time measured by this program, in ms: the median of the samples. With the evaluator's rule, a sample is a mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_ms: Option<f64>,
    /// Minimum of this program's samples, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_ms: Option<f64>,
    /// Number of this program's samples.
    pub n: u32,
    /// Median time measured by TVM's own evaluator, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tvm_evaluator_ms: Option<f64>,
    /// Reason why this program measured no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<String>,
}

/// Returns the method of TVM's evaluator with its three numbers, or the default sampling method if none are given.
pub fn evaluator_method(numbers: &[u32]) -> Result<Method> {
    let method = match *numbers {
        [] => Method::Sample(measure::Plan::default()),
        [number, repeat, min_repeat_ms] => {
            Method::Evaluate(Evaluator { number, repeat, min_repeat_ms, ..Evaluator::default() })
        }
        _ => return Err(Failure::usage("`--evaluator` takes three numbers: NUMBER,REPEAT,MIN_REPEAT_MS")),
    };
    method.check_settings().map_err(Failure::usage)?;
    Ok(method)
}

/// Builds and measures the candidates of trace files.
pub fn replay_traces(
    paths: &[PathBuf],
    replay: &TraceReplayOptions,
    observer: &dyn Observer,
) -> Result<Vec<FileReplay>> {
    let cpus = machine::select_cpus(Some(replay.threads), &machine::allowed_cpus()?, measure::host::OF_THIS_PROCESS)?;
    observer.receive_notes(&machine::shared_core_notes(&[cpus.len()], &cpus));
    let limits = Limits { builders: replay.builders, overlap: replay.overlap, ..Limits::default() };
    let mut workers = machine::create_workers(&limits)?;
    let target = machine::resolve_target(HOST, &mut workers)?;
    let _exclusive = machine::lock_cpus(replay.wait_seconds, observer)?;
    paths.iter().map(|path| replay_file(path, replay, (&target, &cpus), &mut workers)).collect()
}

fn replay_file(
    path: &Path,
    replay: &TraceReplayOptions,
    (target, cpus): (&Target, &[usize]),
    bench: &mut dyn Bench,
) -> Result<FileReplay> {
    let file = trace_file::read_trace(path, replay.limit)?;
    let start = Instant::now();
    let Replies { build_seconds, run_seconds, measured } = measure_candidates(&file, replay, (target, cpus), bench)?;
    let seconds = start.elapsed().as_secs_f64();
    let candidates: Vec<CandidateTimes> =
        file.candidates.iter().zip(measured).map(|(line, measured)| CandidateTimes::new(line, measured)).collect();
    let median = |of: &dyn Fn(&CandidateTimes) -> Option<f64>| -> Option<f64> {
        let mut ratios: Vec<f64> = candidates.iter().filter_map(of).collect();
        ratios.sort_by(f64::total_cmp);
        (!ratios.is_empty()).then(|| interpolate_percentile(&ratios, 0.5))
    };
    Ok(FileReplay {
        operator: file.operator,
        count: candidates.len(),
        ok_count: candidates.iter().filter(|candidate| candidate.loss.is_none()).count(),
        build_seconds,
        run_seconds,
        candidates_per_minute: 60.0 * candidates.len() as f64 / seconds,
        over_recorded: median(&|candidate| Some(candidate.run_ms? / candidate.recorded_ms)),
        evaluator_difference: median(&|candidate| Some((candidate.run_ms? / candidate.tvm_evaluator_ms? - 1.0).abs())),
        candidates,
    })
}

type Reply = std::result::Result<Box<Measured>, String>;

struct Replies {
    build_seconds: f64,
    run_seconds: f64,
    measured: Vec<Reply>,
}

fn measure_candidates(
    TraceFile { task, candidates, .. }: &TraceFile,
    replay: &TraceReplayOptions,
    (target, cpus): (&Target, &[usize]),
    bench: &mut dyn Bench,
) -> Result<Replies> {
    let task_json = serde_json::to_string(task).map_err(Failure::usage)?;
    let run = RunJob::library_run(task_json.clone(), cpus.to_vec(), replay.method.clone());
    let tvm_evaluator = match &replay.method {
        Method::Evaluate(rule) if replay.compares_evaluator => Some(rule.clone()),
        Method::Evaluate(_) | Method::Sample(_) => None,
    };
    let run = RunJob { tvm_evaluator, ..run };
    let slack = Duration::from_secs_f64(Limits::default().run_seconds);
    // TVM's evaluator may measure a second time by the same rule.
    let deadline = 2 * run.time_limit(task.work().map_or(0, |work| work.flops), slack);
    for (place, candidate) in (0..).zip(candidates) {
        let schedule = Schedule::Trace { trace: candidate.trace.clone() };
        bench.submit(place, BenchWork::Build(BuildJob::for_schedule(&task_json, target, &schedule)));
    }
    let (mut build_seconds, mut run_seconds) = (0.0, 0.0);
    let mut measured = BTreeMap::new();
    let mut waiting = Instant::now();
    while let Some((place, done)) = bench.next_result(&mut || true) {
        let seconds = waiting.elapsed().as_secs_f64();
        match done {
            Done::Built(build) => {
                build_seconds += seconds;
                match build {
                    Build::Built(artifact) => {
                        bench.submit(place, BenchWork::Run(run.clone().with_artifact(&artifact), deadline))
                    }
                    Build::Failed(why) | Build::Rejected(why) => drop(measured.insert(place, Err(why))),
                    Build::Fault(fault) => drop(measured.insert(place, Err(fault.to_string()))),
                }
            }
            Done::Ran(ran) => {
                run_seconds += seconds;
                measured.insert(place, reply_measurement(ran.reply));
            }
        }
        waiting = Instant::now();
    }
    Ok(Replies { build_seconds, run_seconds, measured: measured.into_values().collect() })
}

impl CandidateTimes {
    fn new(line: &RecordedCandidate, reply: Reply) -> CandidateTimes {
        let empty = CandidateTimes {
            i: line.i,
            recorded_ms: line.run_ms,
            run_ms: None,
            min_ms: None,
            n: 0,
            tvm_evaluator_ms: None,
            loss: None,
        };
        match reply {
            Ok(measured) => {
                let mut theirs = measured.tvm_seconds.clone();
                theirs.sort_by(f64::total_cmp);
                CandidateTimes {
                    run_ms: Some(measured.measurement.median_ns / 1e6),
                    min_ms: Some(measured.measurement.min_ns / 1e6),
                    n: measured.measurement.n,
                    tvm_evaluator_ms: (!theirs.is_empty()).then(|| interpolate_percentile(&theirs, 0.5) * 1e3),
                    ..empty
                }
            }
            Err(why) => CandidateTimes { loss: Some(why), ..empty },
        }
    }
}

/// Returns a table with one row per file.
pub fn format_table(replays: &[FileReplay], paper: &Paper) -> String {
    let mut table = Table::new([
        text_column("operator"),
        number_column("candidates"),
        number_column("lost"),
        number_column("building").drop_order(2),
        number_column("running").drop_order(1),
        number_column("candidates/min").drop_order(3),
        number_column("ours/recorded"),
        number_column("ours−TVM"),
    ]);
    for replay in replays {
        let lost = replay.count - replay.ok_count;
        let lost_cell = Cell::from(lost.to_string());
        table.add_row([
            replay.operator.as_str().into(),
            replay.count.to_string().into(),
            if lost > 0 { lost_cell.mark_bad() } else { lost_cell },
            format_duration(replay.build_seconds * 1e9).into(),
            format_duration(replay.run_seconds * 1e9).into(),
            format_number(replay.candidates_per_minute).into(),
            Cell::from(or_unknown(replay.over_recorded, format_number)),
            or_unknown(replay.evaluator_difference, |part| format!("{:.2} %", part * 100.0)).into(),
        ]);
    }
    table.format_for(paper)
}
