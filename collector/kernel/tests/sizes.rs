//! Tests that TVM compiles tasks with symbolic sizes, and that the artifact agrees with the reference at every size.

mod common;

use bench::Build;
use bench::{Ability, Bench};
use common::{PATIENCE, open};
use job::space::{self, Schedule};
use job::symbols;
use job::{BuildJob, RunReply};
use measure::affinity;
use models::Task;

const SEED: u64 = 5;
const SCHEDULES: usize = 3;

#[track_caller]
fn check(texts: &[&str]) {
    let mut workers = common::workers();
    let cpus = &affinity::allowed_cpus().expect("the system tells the CPUs")[..1];
    let cpu = workers.capability(Ability::Build).expect("a builder starts")["cpu"].clone();
    let target = targets::llvm_target(&cpu, &["avx2".to_owned()], 1);
    let mut tried: Vec<(Task, BuildJob)> = Vec::new();
    for text in texts {
        let task = common::task(text);
        assert_eq!(symbols::find_refusal(&task), None, "{text}");
        let space = space::task_space(&task, &target.machine);
        for knobs in space::sample_points(&space, SEED, SCHEDULES) {
            tried.push((task.clone(), common::build_job(&task, &target, &Schedule::Template { knobs })));
        }
    }
    let jobs: Vec<BuildJob> = tried.iter().map(|(_, job)| job.clone()).collect();
    let built = workers.build_jobs(&jobs, &mut || {});
    let mut failures = Vec::new();
    for ((task, job), build) in tried.iter().zip(built) {
        let Build::Built(artifact) = build else {
            failures.push(format!("{}\n  {}\n  {build:?}", task.to_text(), job.schedule));
            continue;
        };
        for bound in open::at_sizes(task) {
            bound.check().expect("a task of these sizes");
            let mut job = common::run_job(&bound, artifact.object.clone(), cpus);
            job.packings.clone_from(&artifact.packings);
            match workers.run_job(&job, PATIENCE) {
                Ok(RunReply::Measured(measured)) if measured.check.is_some() => {}
                other => failures.push(format!("{}\n  {other:?}", bound.to_text())),
            }
        }
    }
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn products_of_any_size() {
    check(open::PRODUCTS);
}

#[test]
fn attention_of_any_length() {
    check(open::ATTENTION);
}

#[test]
fn rows_and_elements_of_any_number() {
    check(open::ROWS);
}
