//! Helpers of tests with real workers: the workers, short measurements, and tasks parsed from text.
#![allow(dead_code, reason = "every test program uses a part of it")]

pub mod device;
pub mod open;

use bench::{WorkerLimits, Workers};
use job::space::Schedule;
use job::{BuildJob, RunJob};
use measure::{Method, Plan};
use models::Task;
use models::fuse::{Fuse, distinct_tasks};
use std::path::PathBuf;
use std::time::Duration;
use targets::Target;

/// Returns the worker program of this build: the one built with these tests, or the one next to the test program.
pub fn worker() -> PathBuf {
    match option_env!("CARGO_BIN_EXE_opcollect-worker") {
        Some(program) => PathBuf::from(program),
        None => {
            let test = std::env::current_exe().expect("a test is a program");
            test.ancestors().nth(2).expect("tests lie two folders deep").join("opcollect-worker")
        }
    }
}

/// Time limit of a job, for machines that are busy with other tests; no successful job takes as long.
pub const PATIENCE: Duration = Duration::from_secs(300);

const MIB: u64 = 1 << 20;

pub const FIRST_FUNCTIONS: &[&str] =
    &["relu", "sigmoid", "hard_sigmoid", "tanh", "silu", "hard_swish", "gelu", "exp", "log", "sqrt", "neg", "abs"];

pub const FURTHER_FUNCTIONS: &[&str] = &[
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "exp2",
    "expm1",
    "log2",
    "log10",
    "log1p",
    "rsqrt",
    "reciprocal",
    "square",
    "floor",
    "ceil",
    "round",
    "trunc",
    "sign",
    "selu",
    "softplus",
    "softsign",
    "mish",
    "gelu_tanh",
    "is_nan",
];

pub fn limits() -> WorkerLimits {
    WorkerLimits {
        builder_cpus: Vec::new(),
        overlap: true,
        wide_runs: 8,
        builders: 2,
        start_deadline: PATIENCE,
        build_deadline: PATIENCE,
        build_memory_bytes: 4096 * MIB,
        run_memory_bytes: 8192 * MIB,
        runner_jobs: 200,
        spin_count: 0,
    }
}

pub fn workers() -> Workers {
    Workers::new(&worker(), &limits())
}

pub fn one_run() -> Method {
    let plan = Plan {
        warm_up_time_ns: 0,
        warm_up_runs: 0,
        batch_precisions: 1,
        batch_runs_max: 1,
        samples_min: 1,
        samples_max: 1,
        sampling_time_min_ns: 0,
        time_budget_ns: 0,
        ..Plan::default()
    };
    plan.check_settings().expect("the plan makes sense");
    Method::Sample(plan)
}

pub fn run_job(task: &Task, object: Vec<u8>, cpus: &[usize]) -> RunJob {
    let text = serde_json::to_string(task).expect("a task holds only JSON values");
    let packings = vec![job::Packing::Plain; task.parameters.len() + 1];
    RunJob { seed: 7, object, packings, ..RunJob::library_run(text, cpus.to_vec(), one_run()) }
}

pub fn build_job(task: &Task, target: &Target, schedule: &Schedule) -> BuildJob {
    BuildJob {
        task: serde_json::to_string(task).expect("a task holds only JSON values"),
        target: target.text.clone(),
        schedule: schedule.to_json(),
        wants_trace: false,
        wants_listing: false,
    }
}

/// Parses a task from its long form, or builds it from a short form in the way that a campaign does.
#[track_caller]
pub fn task(text: &str) -> Task {
    if text.contains('(') {
        return Task::from_text(text).unwrap_or_else(|error| panic!("`{text}`: {error}"));
    }
    let graph = zoo::simple::build_operator(text).unwrap_or_else(|error| panic!("`{text}`: {error}"));
    let mut found = distinct_tasks(&graph, Fuse::Epilogue).unwrap_or_else(|error| panic!("`{text}`: {error}"));
    assert_eq!(found.len(), 1, "`{text}` is one task");
    found.remove(0).task
}
