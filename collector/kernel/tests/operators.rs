//! Tests that TVM builds every operator beyond those of early convolutional networks, and that the artifacts compute
//! what the reference does. Each row is a task's text, with odd extents so that few vectors fit.

mod common;

use bench::Build;
use bench::Workers;
use bench::{Ability, Bench};
use common::PATIENCE;
use job::space::{self, Schedule};
use job::{Artifact, BuildJob, RunReply};
use measure::affinity;
use models::Task;

const SEED: u64 = 5;
const SCHEDULES: usize = 3;

#[track_caller]
fn check(texts: &[&str], schedules: usize) {
    check_errors(texts, schedules, f64::INFINITY);
}

/// Checks results like `check`, and that no error exceeds a share of its result.
#[track_caller]
fn check_errors(texts: &[&str], schedules: usize, share: f64) {
    let mut workers = common::workers();
    let cpus = &affinity::allowed_cpus().expect("the system tells the CPUs")[..1];
    let cpu = workers.capability(Ability::Build).expect("a builder starts")["cpu"].clone();
    let target = targets::llvm_target(&cpu, &["avx2".to_owned()], 1);
    let mut tried: Vec<(Task, BuildJob)> = Vec::new();
    for text in texts {
        let task = common::task(text);
        let space = space::task_space(&task, &target.machine);
        for knobs in space::sample_points(&space, SEED, schedules) {
            tried.push((task.clone(), common::build_job(&task, &target, &Schedule::Template { knobs })));
        }
    }
    let jobs: Vec<BuildJob> = tried.iter().map(|(_, job)| job.clone()).collect();
    let built = workers.build_jobs(&jobs, &mut || {});
    let mut failures = Vec::new();
    for ((task, job), build) in tried.iter().zip(built) {
        let wrong = match build {
            Build::Built(artifact) => run(&mut workers, task, *artifact, cpus, share),
            other => Some(format!("{other:?}")),
        };
        failures.extend(wrong.map(|why| format!("{}\n  {}\n  {why}", task.to_text(), job.schedule)));
    }
    assert!(failures.is_empty(), "{} of {} failed:\n{}", failures.len(), tried.len(), failures.join("\n"));
}

fn run(workers: &mut Workers, task: &Task, artifact: Artifact, cpus: &[usize], share: f64) -> Option<String> {
    let mut job = common::run_job(task, artifact.object, cpus);
    job.packings = artifact.packings;
    match workers.run_job(&job, PATIENCE) {
        Ok(RunReply::Measured(measured)) if measured.check.is_some_and(|check| check.max_rel_error <= share) => None,
        other => Some(format!("{other:?}")),
    }
}

#[test]
fn functions_of_one_element() {
    let with_numbers = [
        r#"{"elu":{"alpha":0.5}}"#,
        r#"{"celu":{"alpha":0.5}}"#,
        r#"{"hard_sigmoid_of":{"slope":0.2,"offset":0.5}}"#,
        r#"{"swish":{"beta":1.702}}"#,
        r#"{"thresholded_relu":{"alpha":0.25}}"#,
        r#"{"shrink":{"lambda":0.25,"bias":0.125}}"#,
        r#"{"is_inf":{"negative":true,"positive":false}}"#,
    ];
    let of_float = |function: &str, dtype: &str| format!("unary({dtype}[3,21]) function={function}");
    let mut tasks: Vec<String> =
        common::FURTHER_FUNCTIONS.iter().map(|name| of_float(&format!("\"{name}\""), "f32")).collect();
    tasks.extend(with_numbers.iter().map(|function| of_float(function, "f32")));
    for dtype in ["f64", "f16", "bf16"] {
        for function in ["\"tan\"", "\"expm1\"", "\"round\"", "\"mish\"", "\"is_nan\"", r#"{"elu":{"alpha":0.5}}"#] {
            tasks.push(of_float(function, dtype));
        }
    }
    tasks.push(r#"unary(bool[3,21]) function="not""#.to_owned());
    for dtype in ["i8", "u8", "i32", "i64"] {
        tasks.extend(["bit_not", "square", "sign"].map(|name| of_float(&format!("\"{name}\""), dtype)));
    }
    tasks.push(r#"unary(f32[]) function="sin""#.to_owned());
    check(&tasks.iter().map(String::as_str).collect::<Vec<_>>(), 1);
}

#[test]
fn functions_of_more_elements() {
    let mut tasks = Vec::new();
    for (dtype, names) in [
        ("f32", &["pow", "mod", "fmod", "floor_div"][..]),
        ("f16", &["pow", "mod"]),
        ("f64", &["pow", "fmod"]),
        ("i32", &["mod", "fmod", "floor_div", "bit_and", "bit_or", "bit_xor", "shift_left", "shift_right"]),
        ("i8", &["mod", "floor_div", "shift_left", "shift_right"]),
        ("u8", &["mod", "bit_xor", "shift_left", "shift_right"]),
        ("i64", &["mod", "bit_and", "shift_right"]),
        ("bool", &["and", "or", "xor"]),
    ] {
        tasks.extend(names.iter().map(|name| format!("binary({dtype}[3,21], {dtype}[3,1]) function=\"{name}\"")));
    }
    for name in ["equal", "not_equal", "less", "less_or_equal", "greater", "greater_or_equal"] {
        tasks.push(format!("compare(i8[3,21], i8[21]) function=\"{name}\""));
    }
    for task in [
        r#"compare(f32[3,21], f32[1]) function="less""#,
        r#"compare(bool[3,21], bool[21]) function="equal""#,
        r#"compare(i64[3,21], i64[21]) function="greater""#,
        "where(bool[3,1], f32[21], f32[3,21])",
        "where(bool[3,21], i64[21], i64[])",
        "where(bool[21], bool[3,21], bool[21])",
        "p_relu(f32[1,3,21], const f32[3,1])",
        "p_relu(f16[1,3,21], const f16[3,1])",
        // As epilogues, also of another type than their anchor.
        r#"dense(f32[4,8], const f32[6,8]) | p_relu(_, const f32[6])"#,
        r#"dense(f32[4,8], const f32[6,8]) | compare(_, f32[6]) function="greater""#,
        r#"dense(f32[4,8], const f32[6,8]) | where(bool[4,6], _, f32[])"#,
        r#"unary(f32[4,6]) function="exp" | compare(_, f32[6]) function="less" | unary(_) function="not""#,
    ] {
        tasks.push(task.to_owned());
    }
    check(&tasks.iter().map(String::as_str).collect::<Vec<_>>(), 1);
}

#[test]
fn reductions() {
    let mut tasks = Vec::new();
    for name in ["sum", "mean", "max", "min", "prod", "l1", "l2", "log_sum", "log_sum_exp", "sum_square"] {
        tasks.push(format!("reduce(f32[3,5,21]) function=\"{name}\" axes=[0,2] keep=false"));
        tasks.push(format!("reduce(f32[3,5,21]) function=\"{name}\" axes=[1] keep=true"));
    }
    for task in [
        r#"reduce(f32[3,21]) function="sum" axes=[0,1] keep=false"#,
        r#"reduce(f32[3,21]) function="log_sum_exp" axes=[0,1] keep=false"#,
        r#"reduce(f32[3,21]) function="mean" axes=[1] keep=false | unary(_) function="exp""#,
        r#"reduce(i32[3,5,21]) function="sum" axes=[2] keep=false"#,
        r#"reduce(i8[3,5,21]) function="max" axes=[1] keep=false"#,
        r#"reduce(u8[3,5,21]) function="min" axes=[1] keep=false"#,
        r#"reduce(i64[3,5,21]) function="min" axes=[1,2] keep=true"#,
        r#"reduce(f16[3,5,21]) function="mean" axes=[1] keep=false"#,
        r#"reduce(f16[3,5,21]) function="log_sum_exp" axes=[1] keep=false"#,
        r#"reduce(f64[3,5,21]) function="l2" axes=[2] keep=false"#,
        "arg_reduce(f32[3,5,21]) largest=true axis=1 keep=false last=false",
        "arg_reduce(f32[3,5,21]) largest=false axis=2 keep=true last=true",
        "arg_reduce(i8[3,50,21]) largest=true axis=1 keep=true last=true",
        "arg_reduce(i8[3,50,21]) largest=false axis=1 keep=false last=false",
        "arg_reduce(f32[21]) largest=true axis=0 keep=false last=false",
        "arg_top(f32[3,21]) axis=1 count=5 largest=true",
        "arg_top(i8[3,50,7]) axis=1 count=50 largest=false",
        "arg_top(f16[21]) axis=0 count=1 largest=true",
        "cum_sum(f32[3,5,21]) axis=2 exclusive=false reverse=false",
        "cum_sum(f32[3,5,21]) axis=1 exclusive=true reverse=true",
        "cum_sum(i32[3,5,21]) axis=1 exclusive=true reverse=false",
        "cum_sum(i64[21]) axis=0 exclusive=false reverse=true",
    ] {
        tasks.push(task.to_owned());
    }
    check(&tasks.iter().map(String::as_str).collect::<Vec<_>>(), SCHEDULES);
}

#[test]
fn movement() {
    check(
        &[
            "expand(f32[3,1,21]) shape=[2,1,5,1]",
            "expand(bool[1]) shape=[3,21]",
            "tile(f32[3,7]) repeats=[2,3]",
            "tile(i64[3,7]) repeats=[1,3]",
            "tile(f32[3,8]) repeats=[1,2]",
            "gather(const f32[50,21], i64[2,3]) axis=0",
            "gather(f32[3,50,7], i32[9]) axis=1",
            "gather(f16[3,50], i64[]) axis=1",
            r#"gather(const f32[50,21], i64[4]) axis=0 | binary(_, f32[4,21]) function="add""#,
            "gather_elements(f32[3,21], i64[3,9]) axis=1",
            "gather_elements(i8[3,21], i32[2,21]) axis=0",
            "gather_nd(f32[4,5,21], i64[3,2]) batch=0",
            "gather_nd(f32[4,5,21], i64[4,3,1]) batch=1",
            "gather_nd(f32[4,5], i64[2]) batch=0",
            r#"scatter_elements(f32[3,21], i64[2,9], f32[2,9]) axis=1 combine="replace""#,
            r#"scatter_elements(f32[5,21], i64[9,21], f32[9,21]) axis=0 combine="add""#,
            r#"scatter_elements(i32[5,21], i64[9,7], i32[9,7]) axis=0 combine="max""#,
            r#"scatter_elements(f32[5,21,16], i64[2,4,3], f32[2,4,3]) axis=1 combine="mul""#,
            r#"scatter_nd(f32[4,5,21], i64[3,2], f32[3,21]) combine="replace""#,
            r#"scatter_nd(f32[9,21], i64[3,2,1], f32[3,2,21]) combine="replace""#,
            r#"scatter_nd(f32[4,5], i64[6,2], f32[6]) combine="replace""#,
            r#"scatter_nd(f32[4,5,21], i64[9,2], f32[9,21]) combine="add""#,
            r#"scatter_nd(f32[4,5,21], i64[9,2], f32[9,21]) combine="mul""#,
            r#"scatter_nd(i64[4,21], i32[9,1], i64[9,21]) combine="min""#,
            r#"one_hot(i64[3,5]) axis=2 depth=21 on=1.0 off=0.0 to="f32""#,
            r#"one_hot(i32[3,5]) axis=0 depth=7 on=3.0 off=-1.0 to="i8""#,
            "trilu(f32[2,5,21]) upper=true diagonal=1",
            "trilu(i64[9,7]) upper=false diagonal=-2",
            r#"border_pad(f32[2,5,21]) border="reflect" pads=[0,2,3,0,1,20]"#,
            r#"border_pad(f32[2,5,21]) border="edge" pads=[1,2,30,0,1,3]"#,
            r#"border_pad(i8[2,5,21]) border="wrap" pads=[0,5,3,1,1,21]"#,
            "slice(f32[3,21]) axes=[0,1] starts=[2,18] stops=[-1,3] steps=[-1,-4]",
            "slice(i8[3,21]) axes=[1] starts=[20] stops=[-1] steps=[-1]",
            "slice(f32[3,21]) axes=[0,1] starts=[0,1] stops=[3,20] steps=[2,3]",
            "rope(f32[1,3,5,16], const f32[5,8], const f32[5,8]) rotary=16 interleaved=false",
            "rope(f32[1,3,5,16], const f32[5,8], const f32[5,8]) rotary=16 interleaved=true",
            "rope(f32[2,3,5,16], f32[2,1,5,3], f32[2,1,5,3]) rotary=6 interleaved=false",
            "rope(f32[2,3,5,16], f32[2,1,5,7], f32[2,1,5,7]) rotary=14 interleaved=true",
            "rope(f16[1,3,5,16], const f16[5,4], const f16[5,4]) rotary=8 interleaved=true",
        ],
        SCHEDULES,
    );
}

#[test]
fn normalisations_and_pools() {
    check(
        &[
            "rms_norm(f32[3,5,21], const f32[21]) axis=2 epsilon=1e-5",
            "rms_norm(f32[3,5,21], const f32[5,21]) axis=1 epsilon=1e-5",
            r#"rms_norm(f16[3,21], const f16[21]) axis=1 epsilon=1e-5 | unary(_) function="relu""#,
            "group_norm(f32[2,6,5,7], const f32[6], const f32[6]) groups=3 epsilon=1e-5",
            "group_norm(f32[2,6,21], const f32[6], const f32[6]) groups=6 epsilon=1e-5",
            "mean_variance_norm(f32[2,3,5,7]) axes=[0,2,3] epsilon=1e-9",
            "mean_variance_norm(f64[2,3,21]) axes=[2] epsilon=1e-9",
            "lp_norm(f32[3,5,21]) axis=1 order=1",
            "lp_norm(f32[3,5,21]) axis=2 order=2",
            "lrn(f32[1,7,5,6]) size=5 alpha=0.5 beta=0.75 bias=2.0",
            "lrn(f32[2,7,5]) size=4 alpha=0.5 beta=0.75 bias=1.0",
            r#"pool(f32[1,3,9,11]) mode={"lp":{"order":2}} kernel=[3,3] strides=[2,2] pads=[1,1,1,1] dilations=[1,1] ceil=false count_pad=false"#,
            r#"pool(f32[1,3,21]) mode={"lp":{"order":3}} kernel=[4] strides=[2] pads=[0,1] dilations=[1] ceil=true count_pad=false"#,
            r#"global_pool(f32[2,3,5,7]) mode={"lp":{"order":1}}"#,
            r#"adaptive_pool(f32[1,3,10,7]) mode="average" extents=[3,5]"#,
            r#"adaptive_pool(f32[1,3,10,7]) mode="max" extents=[4,9]"#,
            r#"adaptive_pool(i8[1,3,21]) mode="max" extents=[4]"#,
            r#"adaptive_pool(f32[1,3,21]) mode={"lp":{"order":2}} extents=[6]"#,
            r#"adaptive_pool(f16[1,3,4,5,6]) mode="average" extents=[2,2,4]"#,
        ],
        SCHEDULES,
    );
}

#[test]
fn contractions() {
    check(
        &[
            r#"einsum(f32[2,5,3,8], f32[2,5,7,8]) equation="bhqd,bhkd->bhqk""#,
            r#"einsum(f32[4,8], f32[8,6]) equation="ij,jk""#,
            r#"einsum(f32[5,1,4,8], f32[3,8,6]) equation="...ij,...jk->...ik""#,
            r#"einsum(f32[6,6]) equation="ii""#,
            r#"einsum(f32[6,6]) equation="ii->i""#,
            r#"einsum(f32[4,6]) equation="ij->ji""#,
            r#"einsum(f32[4], f32[6]) equation="i,j->ij""#,
            r#"einsum(f32[4,5], f32[5,6], f32[6,7]) equation="ab,bc,cd->ad""#,
            r#"einsum(i8[4,8], i8[6,8]) equation="ik,jk->ij""#,
            r#"einsum(f32[4,8], f32[6,8]) equation="ik,jk->ij" | bias_add(_, const f32[6]) axis=1"#,
            "conv_transpose(f32[1,4,5,6], const f32[4,3,3,3]) strides=[2,2] pads=[1,0,1,1] output_pads=[1,0] dilations=[1,1] groups=2",
            "conv_transpose(f32[1,4,9], const f32[4,2,3]) strides=[3] pads=[1,1] output_pads=[2] dilations=[2] groups=4",
            "attention(f32[2,4,5,8], f32[2,4,7,8], f32[2,4,7,6]) causal=false scale=0.35 window=null softcap=null",
            "attention(f32[1,6,5,8], f32[1,2,5,8], f32[1,2,5,8]) causal=true scale=0.35 window=null softcap=null",
            "attention(f32[1,6,1,8], f32[1,3,9,8], f32[1,3,9,8]) causal=true scale=0.35 window=4 softcap=null",
            "attention(f32[1,2,7,8], f32[1,2,5,8], f32[1,2,5,8]) causal=true scale=0.35 window=null softcap=null",
            "attention(f32[1,4,5,8], f32[1,4,7,8], f32[1,4,7,8], f32[5,7]) causal=false scale=0.35 window=null softcap=5.0",
            "attention(f32[2,4,24,16], f32[2,2,40,16], f32[2,2,40,16]) causal=true scale=0.25 window=null softcap=null",
            "attention(f32[1,4,12,8], f32[1,4,37,8], f32[1,4,37,24], f32[1,1,1,37]) causal=false scale=0.35 window=null softcap=null",
            "attention(f32[1,2,32,8], f32[1,2,32,8], f32[1,2,32,8], f32[32,32]) causal=true scale=0.35 window=7 softcap=2.0",
            // Tiles of queries that see none of a stretch of places: behind them, before their window, or any at all.
            "attention(f32[1,2,64,16], f32[1,2,64,16], f32[1,2,64,16]) causal=true scale=0.25 window=null softcap=null",
            "attention(f32[1,4,48,8], f32[1,2,80,8], f32[1,2,80,24]) causal=true scale=0.35 window=20 softcap=null",
            "attention(f32[1,2,40,8], f32[1,2,24,8], f32[1,2,24,8]) causal=true scale=0.35 window=null softcap=null",
            "attention(f32[1,2,36,8], f32[1,2,37,8], f32[1,2,37,8], f32[1,1,36,37]) causal=true scale=0.35 window=1 softcap=null",
            // Prime numbers of queries, whose last tile reaches past the end.
            "attention(f32[1,2,23,16], f32[1,2,19,16], f32[1,2,19,16]) causal=false scale=0.25 window=null softcap=null",
            "attention(f32[1,2,31,8], f32[1,2,31,8], f32[1,2,31,24]) causal=true scale=0.35 window=null softcap=null",
            "attention(f32[1,2,47,8], f32[1,1,64,8], f32[1,1,64,8], f32[47,64]) causal=true scale=0.35 window=9 softcap=2.0",
            "attention(f16[1,4,5,8], f16[1,2,7,8], f16[1,2,7,8], f16[1,1,1,7]) causal=false scale=0.35 window=null softcap=null",
        ],
        SCHEDULES,
    );
}

#[test]
fn quantised_operators() {
    check(
        &[
            r#"quantize(f32[3,21], const f32[]) to="u8" axis=0"#,
            r#"quantize(f32[3,21], const f32[21], const i8[21]) to="i8" axis=1"#,
            r#"quantize(f32[3,21], const f32[3], const u16[3]) to="u16" axis=0"#,
            "dequantize(u8[3,21], const f32[], const u8[]) axis=0",
            "dequantize(i8[3,21], const f32[21]) axis=1",
            "dequantize(i32[3,21], const f32[3]) axis=0",
            "dequantize(i8[3,21], const f16[]) axis=0",
            "dequantize(i8[3,21], const f64[]) axis=0",
            r#"requantize(i32[3,21], const f32[]) to="u8" axis=0 zero=7 low=7 high=255"#,
            r#"requantize(i32[3,21], const f32[21]) to="i32" axis=1 zero=0 low=-2147483648 high=2147483647"#,
            "q_conv(u8[1,4,7,9], const i8[6,4,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1 x_zero=5 w_zero=0",
            "q_conv(i8[1,4,7,9], const i8[6,2,3,3]) strides=[2,1] pads=[1,0,0,1] dilations=[1,2] groups=2 x_zero=-3 w_zero=2",
            "q_conv(u8[1,4,7,9], const u8[4,1,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=4 x_zero=9 w_zero=4",
            r#"q_conv(u8[1,4,7,9], const i8[16,4,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1 x_zero=5 w_zero=0 | bias_add(_, const i32[16]) axis=1 | requantize(_, const f32[16]) to="u8" axis=1 zero=3 low=3 high=255"#,
            // Depths that no quad divides, and places that no vector does.
            "q_conv(i8[1,5,7,9], const i8[6,5,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1 x_zero=-7 w_zero=0",
            "q_conv(u8[2,7,6,5], const i8[9,7,1,1]) strides=[1,1] pads=[0,0,0,0] dilations=[1,1] groups=1 x_zero=200 w_zero=0",
            "q_conv(i8[1,8,8,8], const i8[12,8,1,1]) strides=[1,1] pads=[0,0,0,0] dilations=[1,1] groups=1 x_zero=-128 w_zero=0",
            "q_conv(i8[1,3,11,17], const i8[10,3,3,3]) strides=[2,2] pads=[1,0,0,1] dilations=[1,1] groups=1 x_zero=127 w_zero=0",
            "q_conv(u8[1,6,9,33], const i8[8,6,3,5]) strides=[1,3] pads=[2,4,2,4] dilations=[2,2] groups=1 x_zero=0 w_zero=0",
            "q_conv(i8[2,10,5,16], const i8[8,5,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=2 x_zero=3 w_zero=0",
            "q_conv(i8[1,12,6,6], const i8[12,4,1,1]) strides=[1,1] pads=[0,0,0,0] dilations=[1,1] groups=3 x_zero=3 w_zero=0",
            // Windows of one channel: rows of three and of five, strides and dilations along them.
            "q_conv(u8[1,6,9,18], const i8[6,1,5,5]) strides=[2,2] pads=[2,2,2,2] dilations=[1,1] groups=6 x_zero=9 w_zero=0",
            "q_conv(i8[1,3,9,20], const i8[6,1,3,3]) strides=[1,1] pads=[2,2,2,2] dilations=[2,2] groups=3 x_zero=-9 w_zero=0",
            "q_conv(i8[1,4,5,16], const i8[4,1,3,7]) strides=[1,3] pads=[1,3,1,3] dilations=[1,1] groups=4 x_zero=77 w_zero=0",
            "q_conv(i8[1,1,9,20], const i8[6,1,3,3]) strides=[1,1] pads=[0,0,0,0] dilations=[1,1] groups=1 x_zero=-9 w_zero=0",
            "q_conv(i8[1,5,6,6], const i8[5,1,1,1]) strides=[1,1] pads=[0,0,0,0] dilations=[1,1] groups=5 x_zero=-9 w_zero=0",
            "q_conv(u8[1,4,3,4,5], const i8[6,4,2,2,2]) strides=[1,1,1] pads=[1,0,1,0,1,0] dilations=[1,1,1] groups=1 x_zero=3 w_zero=0",
            r#"q_conv(i8[1,6,4,30], const i8[6,1,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=6 x_zero=11 w_zero=0 | bias_add(_, const i32[6]) axis=1 | requantize(_, const f32[6]) to="u8" axis=1 zero=3 low=3 high=250"#,
            r#"q_conv(u8[1,9,7,7], const i8[16,9,1,1]) strides=[1,1] pads=[0,0,0,0] dilations=[1,1] groups=1 x_zero=5 w_zero=0 | bias_add(_, const i32[16]) axis=1 | requantize(_, const f32[16]) to="u8" axis=1 zero=3 low=3 high=255"#,
            "q_dense(u8[3,16], const i8[21,16]) x_zero=5 w_zero=1",
            r#"q_dense(i8[3,16], const i8[16,16]) x_zero=-5 w_zero=0 | bias_add(_, const i32[16]) axis=1 | requantize(_, const f32[]) to="i8" axis=0 zero=-3 low=-128 high=127"#,
            // One row, several dimensions of rows, depths that no quad divides, and columns that no block does.
            "q_dense(i8[1,21], const i8[37,21]) x_zero=-128 w_zero=0",
            "q_dense(u8[2,3,19], const i8[17,19]) x_zero=77 w_zero=-128",
            r#"q_dense(u8[2,5,34], const i8[70,34]) x_zero=200 w_zero=0 | bias_add(_, const i32[70]) axis=2 | requantize(_, const f32[70]) to="u8" axis=2 zero=3 low=3 high=255"#,
            r#"q_dense(i8[33,3], const i8[5,3]) x_zero=127 w_zero=0 | dequantize(_, const f32[5]) axis=1 | unary(_) function="gelu""#,
            "q_mat_mul(u8[2,3,16], i8[16,21]) a_zero=5 b_zero=-2",
            r#"q_mat_mul(i8[2,3,16], i8[2,16,21]) a_zero=5 b_zero=-2 | requantize(_, const f32[]) to="i8" axis=0 zero=-3 low=-128 high=127"#,
            r#"q_conv(i8[1,8,7,9], const i8[8,1,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=8 x_zero=-128 w_zero=0 | bias_add(_, const i32[8]) axis=1 | requantize(_, const f32[8]) to="i8" axis=1 zero=-128 low=-128 high=127"#,
            r#"q_conv(i8[1,4,9], const i8[6,4,3]) strides=[2] pads=[1,1] dilations=[1] groups=1 x_zero=-7 w_zero=0 | requantize(_, const f32[]) to="i8" axis=0 zero=4 low=4 high=90"#,
            r#"dequantize(i8[1,3,7,9], const f32[], const i8[]) axis=0 | binary(_, f32[1,3,7,9]) function="add" | unary(_) function="relu" | quantize(_, const f32[], const i8[]) to="i8" axis=0"#,
        ],
        SCHEDULES,
    );
}

#[test]
fn casts_of_bfloat_round_between_steps() {
    check_errors(
        &[
            r#"cast(f32[3,21]) to="bf16" | cast(_) to="f32""#,
            r#"cast(f32[3,21]) to="bf16" | unary(_) function="relu" | cast(_) to="f64""#,
            r#"cast(f64[3,21]) to="bf16" | binary(_, bf16[3,21]) function="add""#,
            r#"cast(f16[3,21]) to="bf16" | binary(_, bf16[21]) function="mul""#,
            r#"binary(bf16[3,21], bf16[21]) function="mul" | cast(_) to="f32""#,
            r#"binary(bf16[3,21], bf16[21]) function="sub" | cast(_) to="f64""#,
            r#"binary(f32[3,21], f32[21]) function="mul" | cast(_) to="bf16" | compare(_, bf16[21]) function="less""#,
        ],
        1,
        0.0,
    );
}

/// Sums of half precision are computed in 32 bits, so an error is at most about one step of the result.
#[test]
fn half_precision_is_rounded_after_the_sum() {
    let mut tasks = Vec::new();
    for dtype in ["f16", "bf16"] {
        for name in ["mean", "l1", "l2", "sum_square", "log_sum_exp"] {
            tasks.push(format!("reduce({dtype}[3,20000]) function=\"{name}\" axes=[1] keep=false"));
        }
        tasks.push(format!("rms_norm({dtype}[2,20000], const {dtype}[20000]) axis=1 epsilon=1e-5"));
        tasks.push(format!("lp_norm({dtype}[2,20000]) axis=1 order=2"));
        tasks.push(format!("softmax({dtype}[2,20000]) axis=1 log=false"));
        tasks.push(format!("global_pool({dtype}[1,3,100,200]) mode={{\"lp\":{{\"order\":2}}}}"));
        tasks.push(format!("adaptive_pool({dtype}[1,3,100,200]) mode={{\"lp\":{{\"order\":1}}}} extents=[1,2]"));
        tasks.push(format!(
            "pool({dtype}[1,3,100,200]) mode={{\"lp\":{{\"order\":2}}}} kernel=[90,90] strides=[3,3] pads=[1,1,1,1] dilations=[1,1] ceil=false count_pad=false"
        ));
    }
    check_errors(&tasks.iter().map(String::as_str).collect::<Vec<_>>(), 2, 0.01);
    let tasks = [
        r#"reduce(f16[3,20000]) function="sum" axes=[1] keep=false"#,
        "cum_sum(f16[2,2100]) axis=1 exclusive=false reverse=false",
        "layer_norm(f16[2,20000], const f16[20000], const f16[20000]) axis=1 epsilon=1e-5",
        "group_norm(f16[1,4,50,100], const f16[4], const f16[4]) groups=2 epsilon=1e-5",
        "mean_variance_norm(f16[2,3,50,70]) axes=[0,2,3] epsilon=1e-9",
    ];
    check_errors(&tasks, 2, 0.01);
}

#[test]
fn products_of_half_precision_are_rounded_after_the_sum() {
    let tasks = [
        "mat_mul(f16[5,6000], f16[6000,21]) transpose_a=false transpose_b=false",
        "mat_mul(f16[2,5,6000], f16[21,6000]) transpose_a=false transpose_b=true",
        "dense(f16[3,6000], const f16[33,6000])",
        r#"dense(f16[3,6000], const f16[33,6000]) | bias_add(_, const f16[33]) axis=1 | unary(_) function="relu""#,
        r#"einsum(f16[5,6000], f16[7,6000]) equation="ad,bd->ab""#,
        r#"einsum(f16[], f16[7]) equation=",a->a""#,
        "conv(f16[1,300,9,9], const f16[33,300,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1",
        "conv(f16[1,3,21,40], const f16[3,1,11,11]) strides=[2,2] pads=[1,1,1,1] dilations=[1,1] groups=3",
        "conv_transpose(f16[1,600,5,5], const f16[600,16,3,3]) strides=[2,2] pads=[1,1,1,1] output_pads=[1,1] dilations=[1,1] groups=1",
        "conv_transpose(f16[1,600,5], const f16[600,3,3]) strides=[2] pads=[1,1] output_pads=[0] dilations=[1] groups=2",
    ];
    check_errors(&tasks, 3, 0.01);
}

#[test]
fn attention_of_half_precision_is_rounded_after_the_sums() {
    let tasks = [
        "attention(f16[1,2,8,16], f16[1,2,6000,16], f16[1,2,6000,16]) causal=false scale=0.25 window=null softcap=null",
        "attention(f16[1,2,1,16], f16[1,1,6000,16], f16[1,1,6000,16]) causal=false scale=0.25 window=null softcap=null",
        "attention(bf16[1,2,8,16], bf16[1,2,600,16], bf16[1,2,600,16]) causal=false scale=0.25 window=null softcap=null",
        "attention(f16[1,2,9,700], f16[1,2,33,700], f16[1,2,33,24], f16[1,1,9,33]) causal=true scale=0.04 window=7 softcap=2.0",
    ];
    check_errors(&tasks, 3, 0.01);
}
