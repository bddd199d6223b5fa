//! Measures operators with the program `opcollect` in a child process.
//!
//! The child process has a deadline. Its output is only used to explain a failure.

use crate::error::{Error, Result};
use datasets::{Choose, Outcome, PeaksMeasured, Record, Source, Store};
use measure::host::parent::bind_child;
use samples::records::{device_name, uncertainty};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Clone, Debug, PartialEq)]
pub struct OperatorMeasurement {
    pub time_ns: f64,
    pub cv: Option<f64>,
    pub uncertainty: Option<f64>,
    pub device: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TimedOperator {
    pub operator: String,
    pub threads: u32,
    pub time_ns: f64,
    /// Half-width of the median's 95 % confidence interval, relative to the median, if known.
    pub uncertainty: Option<f64>,
}

/// Measures an operator in short form, such as `dense:m=1,n=1000,k=1024`, with its default schedule.
pub fn measure_operator(
    program: &Path,
    operator: &str,
    threads: u32,
    deadline: Duration,
) -> Result<OperatorMeasurement> {
    let MeasuredOperators { records, said, .. } = measure_all(program, &[operator], &[threads], deadline)?;
    let record = records.iter().find(is_measured).ok_or_else(|| {
        Error::Probe(format!("`{operator}` was not measured with {threads} threads: {}", last_line(&said)))
    })?;
    let time_ns = record.median_ns.filter(|time| *time > 0.0);
    Ok(OperatorMeasurement {
        time_ns: time_ns.ok_or_else(|| Error::Probe(format!("the record of `{operator}` has no time")))?,
        cv: record.cv,
        uncertainty: uncertainty(record),
        device: device_name(record),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct RaceResult {
    pub together_ns: f64,
    pub in_turns_ns: f64,
    pub ratio: Ratio,
    pub rounds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Ratio {
    pub median: f64,
    /// 95 % confidence interval of the ratio over visits (fresh processes); None for too few visits.
    pub interval: Option<(f64, f64)>,
}

/// Measures the concurrent and the sequential choice in interleaved rounds, with `opcollect race`.
pub fn race_choices(program: &Path, choice: &Value, rounds: u32, deadline: Duration) -> Result<RaceResult> {
    let folder = tempfile::tempdir().map_err(|error| Error::io_error("make", &std::env::temp_dir(), error))?;
    let (file, answer) = (folder.path().join("choice.json"), folder.path().join("answer.json"));
    std::fs::write(&file, choice.to_string()).map_err(|error| Error::io_error("write", &file, error))?;
    let output = File::create(&answer).map_err(|error| Error::io_error("write", &answer, error))?;
    let mut command = Command::new(program);
    let wait = deadline.as_secs().to_string();
    bind_child(&mut command).arg("race").arg(&file).args(["--json", "--rounds", &rounds.to_string(), "--wait", &wait]);
    let command = command.stdin(Stdio::null()).stdout(Stdio::from(output)).stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| Error::io_error("start", program, error))?;
    let failed = |problem: String| Error::Probe(format!("`{}` could not run the choice: {problem}", program.display()));
    wait_for_output(child, deadline).map_err(failed)?;
    let text = std::fs::read_to_string(&answer).map_err(|error| Error::io_error("read", &answer, error))?;
    serde_json::from_str(text.lines().last().unwrap_or_default())
        .map_err(|error| failed(format!("the output is invalid JSON: {error}")))
}

/// The records of some operators, and the peak rates that were measured along with them.
#[derive(Clone, Debug, Default)]
pub struct MeasuredOperators {
    pub records: Vec<Record>,
    pub peaks: Vec<PeaksMeasured>,
    /// Output of the program.
    said: String,
}

impl MeasuredOperators {
    /// Returns the times of all operators; failed measurements are left out.
    pub fn timed_operators(&self) -> Vec<TimedOperator> {
        let timed = |record: &Record| {
            let threads = record.threads.and_then(|threads| u32::try_from(threads).ok())?;
            let time_ns = record.median_ns.filter(|time| *time > 0.0)?;
            let operator = record.model_name.clone()?;
            Some(TimedOperator { operator, threads, time_ns, uncertainty: uncertainty(record) })
        };
        self.records.iter().filter(is_measured).filter_map(timed).collect()
    }
}

fn is_measured(record: &&Record) -> bool {
    record.outcome == Outcome::Ok && record.source == Source::Measured
}

/// Measures operators with their default schedules on each number of threads.
pub fn measure_all(
    program: &Path,
    operators: &[&str],
    threads: &[u32],
    deadline: Duration,
) -> Result<MeasuredOperators> {
    let folder = tempfile::tempdir().map_err(|error| Error::io_error("make", &std::env::temp_dir(), error))?;
    let store = folder.path().join("store");
    let counts = threads.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let mut command = Command::new(program);
    bind_child(&mut command).args([
        "--modelsource",
        "simple",
        "--schedules",
        "1",
        "--counters",
        "none",
        "--threads",
        &counts,
    ]);
    command.args(operators.iter().flat_map(|operator| ["--modelname", *operator]));
    command
        .args(["--budget", &deadline.as_secs().max(1).to_string(), "--store"])
        .arg(&store)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let child = command.spawn().map_err(|error| Error::io_error("start", program, error))?;
    let said = wait_for_output(child, deadline).map_err(|problem| {
        let operators = operators.join("`, `");
        Error::Probe(format!("`{}` could not measure `{operators}` on {counts} threads: {problem}", program.display()))
    })?;
    let store = Store::open(&store)?;
    let records = store.select_records(Choose::Middle)?.collect::<datasets::Result<Vec<_>>>()?;
    Ok(MeasuredOperators { records, peaks: store.peaks()?, said })
}

/// Waits for a child and returns its output; kills it after the deadline.
fn wait_for_output(mut child: Child, deadline: Duration) -> std::result::Result<String, String> {
    const MOST_BYTES: u64 = 64 << 10;
    let end = Instant::now() + deadline;
    let mut pipe = child.stderr.take().expect("standard error is piped");
    let reader = std::thread::spawn(move || {
        let mut said = Vec::new();
        let _ = pipe.by_ref().take(MOST_BYTES).read_to_end(&mut said);
        // The rest of the output is read and discarded, because a full pipe would block the child.
        let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        String::from_utf8_lossy(&said).into_owned()
    });
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() > end => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("the process exceeded the limit of {} s", deadline.as_secs_f64()));
            }
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => return Err(format!("cannot wait for the process: {error}")),
        }
    };
    let said = reader.join().unwrap_or_default();
    match status.code() {
        // Exit code 1 means partial success; the store shows whether there is a time.
        Some(0 | 1) => Ok(said),
        _ => Err(format!("the process ended with {status}: {}", last_line(&said))),
    }
}

fn last_line(said: &str) -> &str {
    let is_error = |line: &&str| line.starts_with("error");
    said.lines().find(is_error).or_else(|| said.lines().last()).unwrap_or("no output")
}
