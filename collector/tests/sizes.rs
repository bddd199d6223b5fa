//! Real TVM compiles a task whose sizes have names, and the one artifact answers as the reference does at every size.

mod common;

use collector::campaign::Build;
use collector::job::{BuildJob, RunReply};
use collector::lower::symbols;
use collector::measure::affinity;
use collector::space;
use collector::target;
use common::PATIENCE;
use models::Task;
use std::collections::BTreeMap;

const SEED: u64 = 5;
const SCHEDULES: usize = 3;

/// Builds every task once per schedule and runs it at each of the sizes of `n` and `m`.
#[track_caller]
fn check(texts: &[&str]) {
    let mut workers = common::workers();
    let cpus = &affinity::allowed().expect("the system tells the CPUs")[..1];
    let cpu = workers.builder_versions().expect("a builder starts")["cpu"].clone();
    let target = target::llvm(&cpu, &["avx2".to_owned()], 1);
    let mut tried: Vec<(Task, BuildJob)> = Vec::new();
    for text in texts {
        let task = common::task(text);
        assert_eq!(symbols::refusal(&task), None, "{text}");
        let space = space::space(&task.with_sizes(|_| 1), &target.machine);
        for knobs in space::sample(&space, SEED, SCHEDULES) {
            tried.push((task.clone(), common::build_job(&task, &target, knobs)));
        }
    }
    let jobs: Vec<BuildJob> = tried.iter().map(|(_, job)| job.clone()).collect();
    let built = workers.build(&jobs, &mut || {});
    let mut failures = Vec::new();
    for ((task, job), build) in tried.iter().zip(built) {
        let Build::Built(artifact) = build else {
            failures.push(format!("{}\n  {}\n  {build:?}", task.to_text(), job.schedule));
            continue;
        };
        for sizes in [[1, 1], [3, 5], [32, 33], [7, 64]] {
            let sizes = BTreeMap::from([("n", sizes[0]), ("m", sizes[1])]);
            let bound = task.with_sizes(|name| sizes[name]);
            bound.check().expect("a task of these sizes");
            let mut job = common::run_job(&bound, artifact.object.clone(), cpus);
            job.packings.clone_from(&artifact.packings);
            match workers.run(&job, PATIENCE) {
                Ok(RunReply::Measured(measured)) if measured.check.is_some() => {}
                other => failures.push(format!("{}\n  {other:?}", bound.to_text())),
            }
        }
    }
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn products_of_any_size() {
    check(&[
        "dense(f32[n,48], const f32[40,48]) | bias_add(_, const f32[40]) axis=1 | unary(_) function=\"gelu\"",
        "dense(f32[n,m,48], const f32[21,48])",
        "mat_mul(f32[n,4,m,16], f32[n,4,m,16]) transpose_a=false transpose_b=true",
        "mat_mul(f32[4,m,n], f32[4,n,16]) transpose_a=false transpose_b=false",
        "conv(f32[n,3,9,9], const f32[8,3,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1",
        "q_dense(u8[n,24], const i8[40,24]) x_zero=7 w_zero=0 | requantize(_, const f32[]) axis=0 high=255 low=0 to=\"u8\" zero=3",
    ]);
}

#[test]
fn attention_of_any_length() {
    check(&[
        "attention(f32[n,4,m,16], f32[n,2,m,16], f32[n,2,m,16]) causal=true scale=0.25 window=null softcap=null",
        "attention(f32[2,4,1,16], f32[2,4,m,16], f32[2,4,m,16], f32[2,1,1,m]) causal=false scale=0.25 window=null softcap=null",
        "rope(f32[n,4,m,16], f32[m,8], f32[m,8]) rotary=16 interleaved=false",
    ]);
}

#[test]
fn rows_and_elements_of_any_number() {
    check(&[
        "softmax(f32[4,n,m]) axis=2 log=false",
        "softmax(f32[n,4,m]) axis=1 log=true",
        "layer_norm(f32[n,m,40], const f32[40], const f32[40]) axis=2 epsilon=1e-5",
        "rms_norm(f32[n,m,40], const f32[40]) axis=2 epsilon=1e-5",
        "binary(f32[n,m,40], f32[m,1]) function=\"add\" | unary(_) function=\"relu\"",
        "transpose(f32[n,m,4,16]) permutation=[0,2,1,3]",
        "gather(const f32[50,32], i64[n,m]) axis=0",
        "reduce(f32[n,m,40]) function=\"sum\" axes=[1] keep=true",
        "arg_reduce(f32[n,m]) largest=true axis=1 keep=false last=false",
        "slice(f32[n,m,40]) axes=[2] starts=[8] steps=[1] stops=[40]",
        "concat(f32[n,1,40], f32[n,7,40]) axis=1",
        "pool(f32[n,4,8,8]) ceil=false count_pad=false dilations=[1,1] kernel=[2,2] mode=\"max\" pads=[0,0,0,0] strides=[2,2]",
    ]);
}
