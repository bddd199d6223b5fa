//! Tests that every operator, lowered, scheduled, compiled and run by real workers, computes what the reference does.
//! No tile or vector divides the extents. All tests share one set of workers, so they run one at a time.
#![allow(missing_docs, clippy::print_stderr)]

mod common;

use bench::Build;
use bench::{Ability, Bench};
use bench::{Build::Built, Workers};
use common::{PATIENCE, run_job, task};
use job::RunReply;
use job::space::axes::winograd_tile;
use job::space::{Knobs, Schedule, sample_points, task_space};
use measure::affinity;
use measure::host::Facts;
use models::Task;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::sync::{Mutex, OnceLock, PoisonError};
use targets::{Machine, Target};

#[derive(Clone, Copy)]
struct Effort {
    template: usize,
    metaschedule: usize,
}

const USUAL: Effort = Effort { template: 3, metaschedule: 0 };
const LITTLE: Effort = Effort { template: 2, metaschedule: 0 };
const BOTH: Effort = Effort { template: 3, metaschedule: 2 };

struct Rig {
    workers: Workers,
    target: Target,
    cpus: Vec<usize>,
}

fn bench() -> &'static Mutex<Rig> {
    static BENCH: OnceLock<Mutex<Rig>> = OnceLock::new();
    BENCH.get_or_init(|| {
        let mut workers = common::workers();
        let versions = workers.capability(Ability::Build).unwrap_or_else(|fault| panic!("no builder: {fault}"));
        let cpus = affinity::allowed_cpus().expect("the system tells the CPUs");
        let target = targets::llvm_target(&versions["cpu"], &Facts::read_facts().vector_extensions, cpus.len());
        Mutex::new(Rig { workers, target, cpus })
    })
}

#[track_caller]
fn check(effort: Effort, texts: &[&str]) {
    let tasks: Vec<(String, Task)> = texts.iter().map(|text| ((*text).to_owned(), task(text))).collect();
    check_tasks(effort, &tasks);
}

#[track_caller]
fn check_tasks(effort: Effort, tasks: &[(String, Task)]) {
    check_tasks_for(&native_target(), effort, tasks);
}

#[track_caller]
fn check_tasks_for(target: &Target, effort: Effort, tasks: &[(String, Task)]) {
    let all = tasks.iter().enumerate();
    let candidates: Vec<(usize, Schedule)> = all
        .flat_map(|(place, (_, task))| schedules(task, target, effort).into_iter().map(move |one| (place, one)))
        .collect();
    check_candidates_for(target, tasks, &candidates);
}

fn native_target() -> Target {
    bench().lock().unwrap_or_else(PoisonError::into_inner).target.clone()
}

#[track_caller]
fn check_candidates(tasks: &[(String, Task)], candidates: &[(usize, Schedule)]) {
    check_candidates_for(&native_target(), tasks, candidates);
}

/// Builds and runs pairs of a task's index and a schedule; reports all failures together at the end.
#[track_caller]
fn check_candidates_for(target: &Target, tasks: &[(String, Task)], candidates: &[(usize, Schedule)]) {
    let mut bench = bench().lock().unwrap_or_else(PoisonError::into_inner);
    let Rig { workers, cpus, .. } = &mut *bench;
    let job = |(place, schedule): &(usize, Schedule)| common::build_job(&tasks[*place].1, target, schedule);
    let jobs: Vec<_> = candidates.iter().map(job).collect();
    let is_draw = |schedule: &Schedule| matches!(schedule, Schedule::MetaSchedule { .. });
    let mut failures = Vec::new();
    let has_draws = |place: usize| candidates.iter().any(|(of, schedule)| *of == place && is_draw(schedule));
    let mut is_drawn: Vec<bool> = (0..tasks.len()).map(|place| !has_draws(place)).collect();
    for (number, ((place, schedule), build)) in candidates.iter().zip(workers.build_jobs(&jobs, &mut || ())).enumerate()
    {
        let (text, task) = &tasks[*place];
        // In turns on one thread and on all.
        let cpus = if number % 2 == 0 { &cpus[..1] } else { &cpus[..] };
        let is_draw = is_draw(schedule);
        is_drawn[*place] |= is_draw && matches!(build, Built(_));
        if let Err(why) = judge(workers, task, build, cpus, is_draw) {
            failures.push(format!("{text}\n  {}\n  {why}", schedule.describe_knobs()));
        }
    }
    for ((text, _), _) in tasks.iter().zip(is_drawn).filter(|(_, is_drawn)| !is_drawn) {
        failures.push(format!("{text}\n  all draws of TVM's space were rejected"));
    }
    assert!(failures.is_empty(), "{} failures of {} candidates\n{}", failures.len(), jobs.len(), failures.join("\n"));
}

fn schedules(task: &Task, target: &Target, effort: Effort) -> Vec<Schedule> {
    let points = sample_points(&task_space(task, &target.machine), 11, effort.template);
    let ours = points.into_iter().map(|knobs| Schedule::Template { knobs });
    let draws =
        (0..effort.metaschedule).map(|draw| Schedule::MetaSchedule { space: draw, seed: 1 + draw as i64, trace: None });
    ours.chain(draws).collect()
}

/// Checks that a built candidate runs and computes the right result. A draw (random sample) may also be rejected.
fn judge(workers: &mut Workers, task: &Task, build: Build, cpus: &[usize], is_draw: bool) -> Result<(), String> {
    let artifact = match build {
        Build::Built(artifact) => artifact,
        Build::Rejected(_) if is_draw => return Ok(()),
        Build::Rejected(why) => return Err(format!("rejected: {why}")),
        Build::Failed(why) => return Err(format!("build failed: {why}")),
        Build::Fault(fault) => return Err(format!("builder: {fault}")),
    };
    let mut job = run_job(task, artifact.object, cpus);
    job.packings = artifact.packings;
    match workers.run_job(&job, PATIENCE) {
        Ok(RunReply::Measured(measured)) => {
            measured.check.map(|_| ()).ok_or_else(|| "was not compared with the reference".to_owned())
        }
        Ok(RunReply::WrongResult(check)) => Err(format!("wrong result: {check:?}")),
        Ok(RunReply::Failed(why) | RunReply::Unsupported(why)) => Err(format!("run failed: {why}")),
        Ok(RunReply::Profiled(_) | RunReply::Together(_)) => unreachable!("one operator alone was asked for"),
        Ok(RunReply::Simulated(_)) => unreachable!("workers measure"),
        Err(fault) => Err(format!("runner: {fault}")),
    }
}

#[test]
fn convolutions() {
    check(
        USUAL,
        &[
            "conv1d:ci=3,size=17,co=7,k=3,p=1",
            "conv1d:n=2,ci=4,size=31,co=8,k=5,s=2,d=2,p=3",
            "conv1d:ci=6,size=10,co=6,k=3,g=3",
            "conv2d:ci=1,hw=1,co=1,k=1",
            "conv2d:n=2,ci=10,hw=10,co=17,k=1",
            "conv2d:ci=7,size=1x10,co=13,k=1x3,p=0x1",
            "conv2d:ci=4,hw=11,co=4,k=5,d=2,p=4",
            "conv2d:ci=3,size=9x12,co=16,k=3x2,s=2x3,p=0x1x2x1",
            "conv2d:ci=3,size=9x12,co=16,k=3,p=0x0x1x1",
            "conv2d:ci=3,hw=7,co=32,k=7,s=4",
            "conv3d:ci=3,size=5x7x10,co=8,k=3,p=1",
            "conv3d:ci=4,size=4x9x9,co=6,k=1x3x3,s=1x2x2,p=0x1x1,g=2",
            "conv3d:ci=1,size=7x1x3,co=5,k=3x1x1,d=2x1x1",
        ],
    );
}

#[test]
fn convolutions_of_odd_widths() {
    const EFFORT: Effort = Effort { template: 5, metaschedule: 0 };
    check(
        EFFORT,
        &[
            "conv(f32[1,3,9,37], const f32[10,3,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1 | unary(_) function=\"relu\"",
            "conv(f32[2,5,7,37], const f32[20,5,3,3]) strides=[2,2] pads=[1,1,1,1] dilations=[1,1] groups=1",
            "conv(f32[1,6,5,41], const f32[9,6,1,1]) strides=[1,1] pads=[0,0,0,0] dilations=[1,1] groups=1 | bias_add(_, const f32[9]) axis=1 | binary(_, f32[1,9,5,41]) function=\"add\" | unary(_) function=\"relu\"",
            "conv(f32[1,40,19,19], const f32[33,40,1,1]) strides=[1,1] pads=[0,0,0,0] dilations=[1,1] groups=1",
            "conv(f32[1,40,5,5], const f32[33,40,1,1]) strides=[1,1] pads=[0,0,0,0] dilations=[1,1] groups=1 | unary(_) function=\"silu\"",
            "conv(f32[1,7,6,33], const f32[7,1,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=7 | clip(_) low=0.0 high=6.0",
            "conv(f32[1,7,6,11], const f32[7,1,5,5]) strides=[1,1] pads=[2,2,2,2] dilations=[2,2] groups=7",
            "conv(f32[1,5,9,33], const f32[5,1,3,3]) strides=[2,2] pads=[1,1,1,1] dilations=[1,1] groups=5 | unary(_) function=\"relu\"",
            "conv(f32[2,3,7,26], const f32[3,1,5,4]) strides=[1,2] pads=[2,0,2,3] dilations=[1,3] groups=3",
            "conv(f32[1,8,4,43], const f32[12,4,3,3]) strides=[1,1] pads=[0,1,1,0] dilations=[1,3] groups=2",
            "conv(f32[1,4,37], const f32[8,4,5]) strides=[1] pads=[2,2] dilations=[1] groups=1",
            "conv(f32[1,3,4,5,31], const f32[8,3,3,3,3]) strides=[1,1,1] pads=[1,1,1,1,1,1] dilations=[1,1,1] groups=1 | bias_add(_, const f32[8]) axis=1",
        ],
    );
}

#[test]
fn convolutions_of_far_reaching_windows() {
    const EFFORT: Effort = Effort { template: 9, metaschedule: 0 };
    check(
        EFFORT,
        &[
            "conv(f32[1,6,33,33], const f32[20,6,3,3]) strides=[1,1] pads=[12,12,12,12] dilations=[12,12] groups=1 | unary(_) function=\"relu\"",
            "conv(f32[2,5,19,23], const f32[9,5,3,3]) strides=[2,2] pads=[9,7,5,11] dilations=[8,6] groups=1 | bias_add(_, const f32[9]) axis=1",
            "conv(f32[1,8,16,16], const f32[12,4,3,5]) strides=[1,1] pads=[6,10,6,10] dilations=[6,5] groups=2",
            "conv(f32[1,4,29], const f32[8,4,3]) strides=[1] pads=[13,13] dilations=[13] groups=1",
            "conv(f32[1,3,8,9,21], const f32[8,3,3,3,3]) strides=[1,1,1] pads=[4,4,8,4,4,8] dilations=[4,4,8] groups=1",
            // Rows and columns that nothing of the image reaches, on one side only.
            "conv(f32[1,3,5,6], const f32[8,3,2,2]) strides=[1,1] pads=[9,0,0,9] dilations=[4,4] groups=1",
            "conv(f32[1,3,14,14], f32[16,3,3,3]) strides=[1,1] pads=[8,8,8,8] dilations=[8,8] groups=1",
            "q_conv(i8[1,6,17,17], const i8[16,6,3,3]) strides=[1,1] pads=[7,7,7,7] dilations=[7,7] groups=1 x_zero=5 w_zero=-3",
        ],
    );
}

#[test]
fn convolutions_with_the_tuner_s_space_too() {
    check(
        BOTH,
        &[
            "conv1d:ci=5,size=13,co=10,k=3,p=1",
            "conv2d:ci=3,hw=17,co=8,k=3,p=1",
            "conv2d:ci=16,hw=7,co=32,k=3,p=1,s=2,bias=1,act=relu",
            "depthwise_conv2d:c=16,hw=10,k=3,p=1",
            "conv2d:ci=8,hw=10,co=12,k=3,g=4,p=1",
            "conv3d:ci=3,size=3x7x7,co=4,k=3,p=1",
        ],
    );
}

#[test]
fn grouped_and_depthwise_convolutions() {
    check(
        USUAL,
        &[
            "conv2d:ci=8,hw=10,co=4,k=3,g=2,s=2",
            "conv2d:ci=6,hw=7,co=9,k=1,g=3",
            "conv2d:ci=5,hw=7,co=10,k=3,g=5,p=1",
            "depthwise_conv2d:c=7,hw=10,k=3,p=1",
            "depthwise_conv2d:c=32,hw=14,k=5,s=2,p=2",
            "depthwise_conv2d:c=1,hw=7,k=3",
            "depthwise_conv2d:c=10,hw=17,k=3,d=3,p=3",
            "conv1d:ci=5,size=13,co=5,k=3,g=5",
            "conv3d:ci=3,size=5x5x5,co=3,k=3,g=3,p=1",
        ],
    );
}

#[test]
fn convolutions_by_winograd_s_products() {
    let conv = "conv(f32[2,32,9,14], const f32[24,32,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1";
    let sum = format!(
        r#"{conv} | bias_add(_, const f32[24]) axis=1 | binary(_, f32[2,24,9,14]) function="add" | unary(_) function="relu""#
    );
    let texts = [
        "conv2d:ci=16,hw=3,co=1,k=3",
        "conv2d:ci=16,hw=11,co=17,k=3,p=1",
        "conv2d:n=2,ci=48,size=5x17,co=40,k=3,p=0x1x2x0,bias=1,act=relu",
        "conv2d:ci=64,hw=14,co=64,k=3,p=1,bias=1,act=gelu",
        &sum,
    ];
    let tasks: Vec<(String, Task)> = texts.iter().map(|text| ((*text).to_owned(), task(text))).collect();
    let mut tried = Vec::new();
    for (place, (_, task)) in tasks.iter().enumerate() {
        let target = bench().lock().unwrap_or_else(PoisonError::into_inner).target.clone();
        let points = sample_points(&task_space(task, &target.machine), 5, 400);
        for (tile, has_strips) in [(2, false), (4, false), (2, true), (4, true)] {
            let is_such =
                |knobs: &&Knobs| winograd_tile(*knobs) == Some(tile) && knobs.number("strip").is_some() == has_strips;
            let of_tile: Vec<_> = points.iter().filter(is_such).take(3).cloned().collect();
            assert!(!of_tile.is_empty(), "no point of {} has tiles of {tile}, in strips: {has_strips}", texts[place]);
            tried.extend(of_tile.into_iter().map(|knobs| (place, Schedule::Template { knobs })));
        }
    }
    check_candidates(&tasks, &tried);
}

#[test]
fn transposed_convolutions() {
    check(
        USUAL,
        &[
            "conv_transpose1d:ci=4,size=7,co=3,k=4,s=2,p=1",
            "conv_transpose1d:ci=1,size=1,co=1,k=1",
            "conv_transpose2d:ci=10,hw=7,co=8,k=4,s=2,p=1",
            "conv_transpose2d:n=2,ci=3,size=5x1,co=7,k=3x1,s=3x2,op=1x1",
            "conv_transpose2d:ci=4,hw=5,co=6,k=3,d=2,p=2",
            "conv_transpose2d:ci=4,hw=5,co=6,k=2,g=2,s=2",
            "conv_transpose2d:ci=4,hw=7,co=3,k=1,s=2,p=1",
            "conv_transpose2d:ci=16,hw=4,co=16,k=4,s=2,p=1x0x0x2,bias=1,act=tanh",
            "conv_transpose3d:ci=3,size=3x4x5,co=2,k=2,s=2",
            // By phases: more taps than steps, fewer, and some that no phase has; pads that change the phases' sides.
            "conv_transpose2d:ci=9,hw=8,co=21,k=5,s=2,p=2,op=1,bias=1,act=relu",
            "conv_transpose2d:n=2,ci=6,size=5x9,co=10,k=2x3,s=3x2,p=0x1x2x0,op=2x1",
            "conv_transpose2d:ci=5,hw=12,co=8,k=3,p=1",
            "conv_transpose3d:ci=4,size=3x2x4,co=5,k=4,s=2,p=1",
        ],
    );
}

#[test]
fn matrix_products() {
    check(
        USUAL,
        &[
            "matmul:m=17,n=31,k=7",
            "matmul:m=1,n=1,k=1",
            "matmul:m=33,n=65,k=129",
            "matmul:b=3,m=41,n=37,k=29,ta=1,tb=1",
            "matmul:b=2,m=40,n=256,k=513",
            "matmul:m=1,n=10,k=127",
            "matmul:m=17,n=1,k=10",
            "matmul:m=10,n=16,k=17,ta=1",
            "matmul:m=10,n=17,k=16,tb=1",
            "matmul:m=7,n=32,k=10,ta=1,tb=1",
            "matmul:b=3,m=7,n=16,k=10",
            "matmul:b=2x3,m=7,n=10,k=17,tb=1",
            "mat_mul(f32[3,1,7,10], f32[4,10,17]) transpose_a=false transpose_b=false",
            "mat_mul(f32[7,10], f32[2,5,10,16]) transpose_a=false transpose_b=false",
            "mat_mul(f32[1,2,10,7], f32[5,1,16,10]) transpose_a=true transpose_b=true",
            "mat_mul(f32[7,10], const f32[10,32]) transpose_a=false transpose_b=false",
            "dense:m=1,n=10,k=64",
            "dense:m=17,n=31,k=7,bias=1",
            "dense:m=10,n=128,k=17,bias=1,act=gelu",
            "dense:m=4,n=7,k=10,act=sigmoid",
            "dense(f32[2,3,10], const f32[17,10])",
            r#"dense(f32[13,1,10], const f32[40,10]) | bias_add(_, const f32[40]) axis=2 | binary(_, f32[13,1,40]) function="add""#,
            r#"dense(f32[2,3,7,16], const f32[33,16]) | binary(_, f32[33]) function="mul" | unary(_) function="gelu""#,
            "dense(f32[9,2,16], f32[32,16])",
            "dense(f32[5,16], f32[32,16])",
        ],
    );
}

#[test]
fn matrix_products_with_the_tuner_s_space_too() {
    check(
        BOTH,
        &[
            "matmul:m=17,n=31,k=7",
            "matmul:m=16,n=32,k=64",
            "matmul:b=3,m=7,n=16,k=10",
            "dense:m=10,n=128,k=17,bias=1,act=relu",
        ],
    );
}

#[test]
fn normalisations() {
    check(
        LITTLE,
        &[
            "batch_norm:shape=2x7x10x10",
            "batch_norm:shape=1x10x3,epsilon=0.001",
            "scale_shift:shape=1x7x10x10",
            "scale_shift:shape=3x10,axis=1",
            "scale_shift:shape=7x3x5,axis=0",
            "layer_norm:shape=1x10x17,axis=-1",
            "layer_norm:shape=3x7x10,axis=1",
            "layer_norm:shape=31,axis=0",
            "layer_norm:shape=2x1x1,axis=2",
            "layer_norm:shape=5x64,axis=1,epsilon=0.1",
            "layer_norm:shape=2x3x50,axis=2",
            "layer_norm:shape=4x5x48,axis=1",
        ],
    );
}

#[test]
fn softmax_along_every_axis() {
    check(
        USUAL,
        &[
            "softmax:shape=1x1000,axis=1",
            "softmax:shape=7x17,axis=0",
            "softmax:shape=2x10x7,axis=1",
            "softmax:shape=2x3x5x7,axis=-1",
            "softmax:shape=31,axis=0",
            "softmax:shape=10x1,axis=1",
            "log_softmax:shape=3x17",
            "log_softmax:shape=4x7x10,axis=1",
            "log_softmax:shape=5x1x7,axis=0",
        ],
    );
}

#[test]
fn row_operators_with_the_tuner_s_space_too() {
    check(
        BOTH,
        &[
            "softmax:shape=7x100",
            "log_softmax:shape=4x7x10,axis=1",
            "layer_norm:shape=3x7x32,axis=-1",
            "avg_pool2d:c=7,hw=10,k=3,s=2,p=1",
            "max_pool2d:c=8,hw=17,k=3,s=2,p=1",
            "global_avg_pool:shape=1x17x7x7",
            "gelu:shape=3x17",
            "batch_norm:shape=2x7x10x10",
        ],
    );
}

#[test]
fn pools() {
    check(
        USUAL,
        &[
            "max_pool1d:c=7,size=17,k=2",
            "max_pool2d:c=10,hw=17,k=3,s=2,p=1",
            "max_pool2d:n=2,c=3,hw=10,k=2,s=2,ceil=1",
            "max_pool2d:n=2,c=4,hw=27,k=3,s=2",
            "max_pool2d:n=3,c=2,hw=15,k=3,s=2,ceil=1",
            "max_pool2d:c=3,hw=7,k=3,s=2,ceil=1,p=1",
            "max_pool2d:c=4,hw=11,k=3,d=2,p=1",
            "max_pool2d:c=1,hw=1,k=1",
            "max_pool2d:c=5,size=7x10,k=3x2,s=1x2,p=1x0x0x1",
            "max_pool3d:c=3,size=5x7x6,k=2,s=2,ceil=1",
            "max_pool3d:n=2,c=3,size=11x11x11,k=3,s=2",
            "avg_pool1d:c=7,size=16,k=4,s=3,p=1",
            "avg_pool2d:n=2,c=3,hw=15,k=3,s=2",
            "avg_pool2d:c=10,hw=10,k=2,s=2",
            "avg_pool2d:c=3,hw=10,k=3,s=2,p=1",
            "avg_pool2d:c=3,hw=10,k=3,s=2,p=1,count_pad=1",
            "avg_pool2d:c=3,hw=10,k=3,s=2,ceil=1",
            "avg_pool2d:c=3,hw=10,k=3,s=2,p=1,ceil=1,count_pad=1",
            "avg_pool2d:c=3,size=7x9,k=3x2,s=2x1,p=1x0x0x1,count_pad=1",
            "avg_pool2d:c=4,hw=11,k=3,d=2,p=2",
            "avg_pool3d:c=2,size=5x7x6,k=2x3x2,s=1x2x2,p=0x1x1",
            "global_avg_pool:shape=2x7x7x7",
            "global_avg_pool:shape=1x10x17",
            "global_avg_pool:shape=1x3x2x3x5",
            "global_max_pool:shape=1x17x5x3",
            "global_max_pool:shape=1x1x1x1",
        ],
    );
}

#[test]
fn functions_of_one_element() {
    let functions = common::FIRST_FUNCTIONS.iter().chain(&["leaky_relu", "clip"]);
    let texts: Vec<String> = functions.map(|function| format!("{function}:shape=3x7x17")).collect();
    check(LITTLE, &texts.iter().map(String::as_str).collect::<Vec<_>>());
    check(
        LITTLE,
        &[
            "relu:shape=1",
            "relu:shape=1000",
            "leaky_relu:shape=10x10,alpha=0.3",
            "clip:shape=1x7,low=-0.5,high=0.25",
            "bias_add:shape=2x7x10",
            "bias_add:shape=2x7x10,axis=-1",
            "bias_add:shape=7x2,axis=0",
            "identity(f32[3,17])",
            r#"unary(f32[]) function="relu""#,
        ],
    );
}

#[test]
fn functions_of_two_elements() {
    let functions = ["add", "sub", "mul", "div", "max", "min"];
    let texts: Vec<String> = functions
        .iter()
        .flat_map(|function| ["7x10", "3x1x17,other=5x1"].map(|shape| format!("{function}:shape={shape}")))
        .collect();
    check(LITTLE, &texts.iter().map(String::as_str).collect::<Vec<_>>());
    check(
        LITTLE,
        &[
            "add:shape=1x7x10x10,other=7x1x1",
            "mul:shape=1,other=3x7",
            "sub:shape=17,other=2x3x17",
            r#"binary(f32[7,10], #0) function="mul""#,
            r#"binary(f32[3], f32[]) function="add""#,
            r#"binary(f32[], f32[]) function="div""#,
        ],
    );
}

#[test]
fn casts_and_other_element_types() {
    check(
        LITTLE,
        &[
            "cast:shape=3x17,dtype=f32,to=f64",
            "cast:shape=3x17,dtype=f64,to=f32",
            "cast:shape=3x17,dtype=f32,to=f16",
            "cast:shape=3x17,dtype=f16,to=f32",
            "cast:shape=3x17,dtype=i8,to=f32",
            "cast:shape=3x17,dtype=u8,to=i32",
            "cast:shape=3x17,dtype=i32,to=i64",
            "cast:shape=3x17,dtype=f32,to=i32",
            "cast:shape=3x17,dtype=bool,to=f32",
            "matmul:m=7,n=16,k=10,dtype=f64",
            "matmul:m=7,n=16,k=10,dtype=i8",
            "dense:m=7,n=16,k=10,dtype=u8",
            "conv2d:ci=3,hw=7,co=8,k=3,p=1,dtype=i8",
            "conv2d:ci=3,hw=7,co=8,k=3,p=1,dtype=i16",
            "add:shape=3x17,dtype=i32",
            "mul:shape=3x17,dtype=i64,other=17",
            "max:shape=3x17,dtype=u8",
            "max_pool2d:c=3,hw=7,k=3,p=1,dtype=i8",
            "relu:shape=3x17,dtype=f16",
            "gelu:shape=3x17,dtype=f16",
            "gelu:shape=3x17,dtype=bf16",
            "gelu:shape=3x17,dtype=f64",
            "tanh:shape=3x17,dtype=f16",
            "clip:shape=3x17,dtype=u8,low=-2,high=3",
            "clip:shape=3x17,dtype=i8,low=-2.5,high=300",
            "clip:shape=3x17,dtype=i64,low=-1e30,high=3",
            "div:shape=3x17,dtype=i32",
            "add:shape=3x17,dtype=f16",
            "softmax:shape=3x17,dtype=f64",
            "transpose:shape=3x7,order=1x0,dtype=i64",
        ],
    );
}

#[test]
fn movements() {
    check(
        LITTLE,
        &[
            "reshape(f32[3,7,10]) shape=[7,-1]",
            "reshape(f32[6,7]) shape=[2,3,7,1]",
            "flatten(f32[3,7,1,10]) axis=1",
            "flatten(f32[3,7]) axis=0",
            "transpose:shape=3x7x10,order=0x2x1",
            "transpose:shape=1x7x2x5,order=3x1x0x2",
            "transpose:shape=17,order=0",
            "transpose(f32[]) permutation=[]",
            "reshape(f32[1,1]) shape=[]",
            "concat:shape=1x7x5,other=1x3x5,axis=1",
            "concat:shape=2x7,other=3x7,axis=0",
            "concat(f32[2,3], f32[2,1], f32[2,7]) axis=-1",
            "concat(f32[5,7]) axis=0",
            "concat(f32[2,3], #0) axis=0",
            "pad:shape=3x7,p=1x0x2x3,value=1.5",
            "pad:shape=1x2x5x5,p=0x0x1x1",
            "pad:shape=7,p=0",
            "slice:shape=10x7,axes=0,from=3,to=10",
            "slice:shape=2x17x5,axes=1x2,from=1x0,to=16x5,step=4x3",
            "slice:shape=17,axes=0,from=16,to=17",
        ],
    );
}

#[test]
fn resampling() {
    check(
        LITTLE,
        &[
            "resize_nearest:shape=1x3x7x5,to=14x10",
            "resize_nearest:shape=1x3x7x10,to=3x17",
            "resize_linear:shape=1x3x5x7,to=10x14",
            "resize_linear:shape=2x1x10x7,to=4x17",
            "resize_linear:shape=1x2x1x1,to=3x5",
            "resize_linear_aligned:shape=1x3x5x7,to=10x14",
            "resize_linear_aligned:shape=1x3x7x7,to=1x17",
            "resize_linear:shape=1x3x10,to=17",
            "resize_nearest:shape=1x2x3x4x5,to=6x4x7",
            "resize_linear:shape=1x2x3x4x5,to=6x4x7",
        ],
    );
}

#[test]
fn fused_epilogues() {
    let conv = "conv(f32[1,8,10,10], const f32[16,8,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1";
    let bias = "bias_add(_, const f32[16]) axis=1";
    let pool = "pool(f32[1,7,17,17]) kernel=[3,3] strides=[2,2] pads=[1,1,1,1] dilations=[1,1] ceil=false";
    let relu = r#"unary(_) function="relu""#;
    check(
        USUAL,
        &[
            "conv2d:ci=10,hw=7,co=17,k=3,p=1,bias=1,act=relu",
            "conv2d:ci=10,hw=7,co=16,k=1,bias=1,act=hard_swish",
            "conv3d:ci=3,size=3x5x5,co=8,k=3,p=1,bias=1,act=relu",
            &format!(r#"{conv} | {bias} | binary(_, f32[1,16,10,10]) function="add" | {relu}"#),
            &format!(r#"{conv} | {bias} | binary(f32[1,16,10,10], _) function="sub""#),
            &format!(r#"{conv} | binary(_, f32[16,1,1]) function="mul" | clip(_) low=0.0 high=6.0"#),
            &format!("{conv} | scale_shift(_, const f32[16], const f32[16]) axis=1"),
            r#"dense(f32[7,10], const f32[32,10]) | bias_add(_, const f32[32]) axis=1 | unary(_) function="gelu""#,
            r#"mat_mul(f32[2,7,10], f32[2,10,17]) transpose_a=false transpose_b=false | binary(_, f32[1]) function="div" | binary(_, f32[7,17]) function="add""#,
            r#"conv(i8[1,4,7,7], const i8[8,4,3,3]) strides=[1,1] pads=[0,0,0,0] dilations=[1,1] groups=1 | cast(_) to="f32" | scale_shift(_, const f32[8], const f32[8]) axis=1"#,
            &format!(r#"{pool} mode="max" count_pad=false | {relu}"#),
            &format!(r#"{pool} mode="average" count_pad=false | {relu}"#),
            &format!(r#"{pool} mode="average" count_pad=true | {relu} | binary(_, f32[7,1,1]) function="mul""#),
            r#"global_pool(f32[1,17,7,7]) mode="average" | unary(_) function="sigmoid""#,
            r#"softmax(f32[7,17]) axis=1 log=false | binary(_, f32[7,17]) function="mul""#,
            r#"softmax(f32[2,7,17]) axis=1 log=true | unary(_) function="neg" | binary(_, f32[17]) function="add""#,
            r#"layer_norm(f32[7,10], const f32[10], const f32[10]) axis=1 epsilon=1e-5 | unary(_) function="relu""#,
            r#"batch_norm(f32[1,7,10,10], const f32[7], const f32[7], const f32[7], const f32[7]) epsilon=1e-5 | unary(_) function="relu" | binary(_, f32[1,7,10,10]) function="add""#,
            r#"resize(f32[1,3,5,5]) mode="linear" extents=[10,10] | unary(_) function="relu""#,
            r#"concat(f32[1,3,5], f32[1,4,5]) axis=1 | unary(_) function="relu""#,
            "concat(f32[1,4,6,6], f32[2,4,6,6]) axis=0 | scale_shift(_, f32[4], f32[4]) axis=1",
            "concat(f32[1,4,6,6], #0) axis=0 | bias_add(_, f32[4]) axis=1",
            r#"transpose(f32[3,7]) permutation=[1,0] | binary(_, f32[3]) function="add""#,
        ],
    );
}

/// Draws texts of tasks from a strategy, always the same texts, so that failures can be reproduced.
fn draw(count: usize, strategy: impl Strategy<Value = String>) -> Vec<(String, Task)> {
    let mut runner = TestRunner::deterministic();
    let mut text = || strategy.new_tree(&mut runner).expect("most draws are legal").current();
    (0..count).map(|_| text()).map(|text| (text.clone(), task(&text))).collect()
}

fn is_legal(text: &str) -> bool {
    zoo::simple::build_operator(text).is_ok()
}

fn joined(numbers: &[i64]) -> String {
    numbers.iter().map(i64::to_string).collect::<Vec<_>>().join("x")
}

fn each(axes: usize, range: std::ops::RangeInclusive<i64>) -> impl Strategy<Value = String> {
    proptest::collection::vec(range, axes).prop_map(|numbers| joined(&numbers))
}

fn any_conv() -> impl Strategy<Value = String> {
    let channels = (1..=2i64, 1..=3i64, 1..=5i64, 1..=6i64);
    let epilogue = proptest::sample::select(vec!["", ",bias=1", ",bias=1,act=relu", ",act=tanh"]);
    (1..=3usize, channels, epilogue)
        .prop_flat_map(|(axes, (n, groups, per_group, outputs), epilogue)| {
            let most = [0, 20, 12, 6][axes];
            let spatial = (each(axes, 1..=most), each(axes, 1..=4), each(axes, 1..=3), each(axes, 1..=3));
            let pads = each(2 * axes, 0..=2);
            let (ci, co) = (groups * per_group, groups * outputs);
            (spatial, pads).prop_map(move |((size, k, s, d), p)| {
                format!("conv{axes}d:n={n},ci={ci},co={co},g={groups},size={size},k={k},s={s},d={d},p={p}{epilogue}")
            })
        })
        .prop_filter("the window fits", |text| is_legal(text))
}

fn any_transposed_conv() -> impl Strategy<Value = String> {
    (1..=2usize, 1..=2i64, 1..=4i64, 1..=4i64)
        .prop_flat_map(|(axes, groups, per_group, outputs)| {
            let spatial = (each(axes, 1..=7), each(axes, 1..=4), each(axes, 1..=3), each(axes, 1..=2));
            let pads = (each(2 * axes, 0..=2), each(axes, 0..=1));
            let (ci, co) = (groups * per_group, groups * outputs);
            (spatial, pads).prop_map(move |((size, k, s, d), (p, op))| {
                format!("conv_transpose{axes}d:ci={ci},co={co},g={groups},size={size},k={k},s={s},d={d},p={p},op={op}")
            })
        })
        .prop_filter("the window fits", |text| is_legal(text))
}

fn any_pool() -> impl Strategy<Value = String> {
    let flags = (proptest::sample::select(vec!["max", "avg"]), 0..=1, 0..=1);
    (1..=3usize, 1..=5i64, flags)
        .prop_flat_map(|(axes, c, (mode, ceil, count))| {
            let spatial = (each(axes, 1..=9), each(axes, 1..=4), each(axes, 1..=3), each(axes, 1..=2));
            let count = if mode == "avg" { format!(",count_pad={count}") } else { String::new() };
            (spatial, each(2 * axes, 0..=2)).prop_map(move |((size, k, s, d), p)| {
                format!("{mode}_pool{axes}d:c={c},size={size},k={k},s={s},d={d},p={p},ceil={ceil}{count}")
            })
        })
        .prop_filter("the window fits", |text| is_legal(text))
}

#[test]
fn any_legal_window() {
    check_tasks(LITTLE, &draw(20, any_conv()));
    check_tasks(LITTLE, &draw(10, any_transposed_conv()));
    check_tasks(LITTLE, &draw(14, any_pool()));
}

#[test]
fn moves_that_only_searches_make() {
    const DRAWS: usize = 400;
    const MOVES: [&str; 9] =
        ["cache_c", "cache_y", "cache_x", "cache_r", "copy_at", "sum_at", "grain", "write_at", "windows"];
    let each = std::env::var("OPCOLLECT_MOVES").ok().and_then(|count| count.parse().ok()).unwrap_or(3);
    let texts = [
        "conv2d:ci=6,hw=11,co=24,k=3,p=1,bias=1,act=relu",
        "conv2d:ci=8,size=9x13,co=20,k=3x2,s=2x1,p=1x0x1x1",
        "conv2d:ci=12,hw=7,co=40,k=1,bias=1",
        "depthwise_conv2d:c=6,hw=15,k=3,p=1,bias=1,act=relu",
        "conv1d:ci=5,size=23,co=16,k=3,p=1",
        "conv3d:ci=4,size=5x7x10,co=16,k=3,p=1",
        "conv2d:ci=128,hw=9,co=24,k=1,bias=1",
        "matmul:m=19,n=48,k=20",
        "matmul:m=19,n=50,k=128,tb=1",
        "dense:m=13,n=50,k=24,bias=1,act=relu",
        "conv_transpose2d:ci=8,hw=7,co=24,k=4,s=2,p=1,bias=1",
        "max_pool2d:c=5,hw=13,k=3,s=2,p=1",
        "avg_pool2d:c=3,hw=18,k=3,p=1",
        "avg_pool3d:c=2,size=5x7x20,k=2x3x2,s=1x2x2,p=0x1x1,count_pad=1",
        "max_pool2d:c=4,hw=37,k=5,d=2,p=2,ceil=1,s=2",
    ];
    let tasks: Vec<(String, Task)> = texts.iter().map(|text| ((*text).to_owned(), task(text))).collect();
    let target = bench().lock().unwrap_or_else(PoisonError::into_inner).target.clone();
    let mut candidates = Vec::new();
    for (place, (_, task)) in tasks.iter().enumerate() {
        let is_new = |knobs: &job::space::Knobs| {
            let is_order = |name| knobs.choice(name).is_some_and(|order| order.len() == 3);
            MOVES.iter().any(|name| knobs.0.contains_key(*name)) || is_order("outer") || is_order("order")
        };
        let points = sample_points(&task_space(task, &target.machine), 5, DRAWS).into_iter().filter(is_new).take(each);
        candidates.extend(points.map(|knobs| (place, Schedule::Template { knobs })));
    }
    assert!(candidates.len() >= tasks.len() * each.min(3), "{}", candidates.len());
    check_candidates(&tasks, &candidates);
}

#[test]
fn parts_of_the_depth_copies_and_last_tiles() {
    const BLOCKED: &str = r#""layout":"blocked","split_r":4,"tile_y":1,"unroll":1,"vectorize":"yes""#;
    let conv = "conv2d:ci=256,size=9x11,co=40,k=1,bias=1,act=relu";
    let window = "conv2d:ci=128,hw=9,co=40,k=3,p=2,d=2,bias=1";
    let product = "matmul:b=2,m=45,n=70,k=128";
    let target = bench().lock().unwrap_or_else(PoisonError::into_inner).target.clone();
    // Blocks of one vector, so that thirteen rows of two fit the registers of every processor.
    let has_wide = matches!(&target.machine, Machine::Cpu(cpu) if cpu.vector_lanes >= 16);
    let thirteen_rows = match has_wide {
        true => r#""block":16,"copy_at":"outer","grain":2,"outer":"space","parallel":3,"tile_c":2,"tile_x":13"#,
        false => r#""block":8,"copy_at":"outer","grain":2,"outer":"space","parallel":3,"tile_c":2,"tile_x":13"#,
    };
    let cases = [
        (
            conv,
            r#""block":16,"cache_c":3,"cache_r":64,"cache_x":4,"copy_at":"part","order":"depth_first","outer":"space","parallel":2,"sum_at":"cache","tile_c":1,"tile_x":9"#,
        ),
        (
            conv,
            r#""block":16,"cache_x":3,"copy_at":"outer","order":"depth_first","outer":"space","parallel":3,"tile_c":1,"tile_x":11"#,
        ),
        (
            conv,
            r#""block":16,"cache_x":2,"copy_at":"outer","order":"depth_first","outer":"channels","parallel":2,"tile_c":2,"tile_x":7"#,
        ),
        (
            window,
            r#""block":16,"cache_c":3,"cache_r":64,"cache_x":3,"order":"ycx","outer":"cxy","pad_at":"root","parallel":1,"sum_at":"cache","tile_c":1,"tile_x":3"#,
        ),
        (product, r#""block":32,"copy_at":"outer","outer":"channels","parallel":2,"tile_c":1,"tile_x":6"#),
        (
            product,
            r#""block":16,"cache_c":2,"cache_r":64,"cache_x":3,"copy_at":"part","outer":"space","parallel":1,"sum_at":"cache","tile_c":1,"tile_x":4"#,
        ),
        (product, thirteen_rows),
        ("dense:m=77,n=40,k=24,bias=1,act=gelu", r#""block":16,"outer":"channels","parallel":1,"tile_c":1,"tile_x":6"#),
    ];
    let tasks: Vec<(String, Task)> = cases.iter().map(|(text, _)| ((*text).to_owned(), task(text))).collect();
    let schedule = |knobs: &str| {
        let knobs = serde_json::from_str(&format!("{{{BLOCKED},{knobs}}}")).expect("knobs");
        Schedule::Template { knobs }
    };
    let candidates: Vec<_> = cases.iter().enumerate().map(|(place, (_, knobs))| (place, schedule(knobs))).collect();
    for (place, schedule) in &candidates {
        let Schedule::Template { knobs } = schedule else { unreachable!("all are of templates") };
        assert_eq!(task_space(&tasks[*place].1, &target.machine).forbidding_rule(knobs), None, "{knobs:?}");
    }
    check_candidates(&tasks, &candidates);
}

/// Schedules from searches that once gave wrong results or damaged memory, such as separate epilogues of blocked sums.
#[test]
fn moves_that_were_wrong_once() {
    let cases = [
        (
            "conv2d:ci=120,hw=40,co=192,k=3,p=1,bias=1,act=relu",
            r#"{"block":16,"grain":8,"layout":"blocked","order":"kernel_first","outer":"cxy","pad_at":"inline","parallel":3,"split_r":4,"tile_c":1,"tile_x":1,"tile_y":5,"unroll":1,"vectorize":"yes","write_at":"root"}"#,
        ),
        (
            "conv2d:ci=4,hw=8,co=8,k=3,p=1,bias=1,act=relu",
            r#"{"block":8,"grain":1,"layout":"blocked","order":"kernel_first","outer":"cxy","pad_at":"inline","parallel":1,"split_r":1,"tile_c":1,"tile_x":1,"tile_y":4,"unroll":0,"vectorize":"yes","write_at":"root"}"#,
        ),
        (
            "conv2d:ci=192,hw=17,co=192,k=1x7,p=0x3x0x3,bias=1,act=relu",
            r#"{"block":8,"cache_x":4,"layout":"blocked","order":"xyc","outer":"ycx","pad_at":"root","parallel":2,"split_r":1,"sum_at":"cache","tile_c":8,"tile_x":1,"tile_y":8,"unroll":0,"vectorize":"yes","write_at":"root"}"#,
        ),
        // A vector wider than the block to which positions are padded.
        (
            "attention:b=1,h=2,s=50,d=64",
            r#"{"block":8,"functions":"vector","helpers_at":"head","layout":"blocked","tile_y":2,"vector":16}"#,
        ),
    ];
    let tasks: Vec<(String, Task)> = cases.iter().map(|(text, _)| ((*text).to_owned(), task(text))).collect();
    let schedule = |knobs: &str| Schedule::Template { knobs: serde_json::from_str(knobs).expect("knobs") };
    let candidates: Vec<_> = cases.iter().enumerate().map(|(place, (_, knobs))| (place, schedule(knobs))).collect();
    check_candidates(&tasks, &candidates);
}

const ATTENTION: [&str; 6] = [
    "attention:b=1,h=2,s=50,d=64,mask=1x1x50x50",
    "attention:b=1,h=2,s=49,d=32,mask=1x2x49x49",
    "attention:b=2,h=3,s=4,t=6,d=8,mask=2x3x4x6",
    "attention:b=1,h=2,s=33,d=20,mask=1x1x33x33,causal=1,window=9",
    "attention:b=1,h=4,g=2,s=21,t=45,d=24,mask=1x1x1x45,softcap=20",
    "attention:b=2,h=2,s=50,d=64",
];

/// Key positions are padded to whole blocks, but a mask ends at the last key.
#[test]
fn attention() {
    check(USUAL, &ATTENTION);
}

/// Tests code for AVX2, which shows reads past the end of a row that LLVM can hide on processors with masked vectors.
#[test]
fn code_for_narrower_vectors() {
    let facts = Facts::read_facts();
    if !facts.vector_extensions.iter().any(|extension| extension == "avx2") {
        eprintln!("skipped: this processor has no AVX2");
        return;
    }
    let target = targets::llvm_target("x86-64-v3", &["avx2".to_owned()], 2);
    let others = [
        "conv2d:ci=3,size=19x17,co=20,k=7,s=2,p=3,bias=1",
        "conv2d:ci=36,hw=7,co=33,k=1,bias=1,act=relu",
        "conv2d:ci=12,hw=9,co=12,k=3,p=1,g=4",
        "conv2d:ci=20,size=9x11,co=20,k=3,p=1,g=20,bias=1,act=relu",
        "dense:m=7,n=50,k=33,bias=1,act=relu",
        "matmul:b=2,m=7,n=33,k=50",
        "layer_norm:shape=2x3x50,axis=2",
    ];
    let named = |text: &&str| ((*text).to_owned(), task(text));
    check_tasks_for(&target, Effort { template: 8, metaschedule: 0 }, &ATTENTION.iter().map(named).collect::<Vec<_>>());
    check_tasks_for(&target, USUAL, &others.iter().map(named).collect::<Vec<_>>());
}
