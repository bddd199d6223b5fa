//! The table of revisions says what code this program makes: whoever changes lowering, templates or passes changes a
//! line of it, and experiments whose code changed are measured again.
//!
//! Every operator is lowered and compiled as a builder does it, for a CPU to an object file and for a GPU to CUDA C, with the
//! default schedule and another one; the hash over it all is the operator's revision.

// A test that is skipped says so aloud.
#![allow(clippy::print_stderr)]

mod common;

use collector::job::revision::{Revisions, operator};
use collector::lower::{Sums, lower};
use collector::space::apply::{ApplyError, SpaceCache, apply};
use collector::space::{self, Schedule};
use collector::target::{self, Target};
use collector::tvm::compile::{CompileTarget, compile};
use collector::tvm::names::Role;
use collector::tvm::{device, library};
use common::open;
use models::{Op, Task};
use std::collections::BTreeMap;

/// Tasks of every operator; more where types or forms take other ways. A row more is a revision more of its operator, so
/// rows are added only where they show code that no other row does.
const TASKS: &[&str] = &[
    // Convolutions and products.
    "conv1d:n=2,ci=4,size=31,co=8,k=5,s=2,d=2,p=3",
    "conv2d:ci=16,hw=14,co=32,k=3,p=1,s=2,bias=1,act=relu",
    "conv2d:ci=8,hw=10,co=12,k=3,g=4,p=1",
    "conv3d:ci=3,size=5x7x10,co=8,k=3,p=1",
    "depthwise_conv2d:c=32,hw=14,k=5,s=2,p=2",
    "conv_transpose2d:ci=10,hw=7,co=8,k=4,s=2,p=1",
    "conv_transpose(f32[1,4,9], const f32[4,2,3]) strides=[3] pads=[1,1] output_pads=[2] dilations=[2] groups=4",
    "matmul:m=17,n=31,k=7",
    "matmul:b=2x3,m=64,n=64,k=64,tb=1",
    "mat_mul(f16[64,64], f16[64,64]) transpose_a=false transpose_b=false",
    "mat_mul(bf16[64,64], bf16[64,64]) transpose_a=false transpose_b=false",
    "mat_mul(f64[24,16], f64[24,8]) transpose_a=true transpose_b=false",
    "dense:m=10,n=128,k=17,bias=1,act=gelu",
    "dense(f16[8,64], const f16[32,64])",
    r#"einsum(f32[2,5,3,8], f32[2,5,7,8]) equation="bhqd,bhkd->bhqk""#,
    r#"einsum(f32[4,5], f32[5,6], f32[6,7]) equation="ab,bc,cd->ad""#,
    r#"einsum(f32[6,6]) equation="ii""#,
    r#"einsum(f32[4], f32[6]) equation="i,j->ij""#,
    "q_conv(u8[1,4,7,9], const i8[6,4,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1 x_zero=5 w_zero=0",
    r#"q_dense(i8[3,16], const i8[16,16]) x_zero=-5 w_zero=0 | bias_add(_, const i32[16]) axis=1 | requantize(_, const f32[]) to="i8" axis=0 zero=-3 low=-128 high=127"#,
    "q_mat_mul(u8[2,3,16], i8[16,21]) a_zero=5 b_zero=-2",
    // Work in steps.
    "attention(f32[2,4,5,8], f32[2,4,7,8], f32[2,4,7,6]) causal=true scale=0.35 window=null softcap=5.0",
    "attention(f16[1,4,5,8], f16[1,2,7,8], f16[1,2,7,8], f16[1,1,1,7]) causal=false scale=0.35 window=null softcap=null",
    "rope(f32[1,3,5,16], const f32[5,8], const f32[5,8]) rotary=16 interleaved=true",
    "softmax:shape=7x1000,axis=1",
    "softmax:shape=2x10x7,axis=1",
    "log_softmax:shape=3x17",
    "layer_norm:shape=3x7x128,axis=-1",
    "rms_norm(f16[3,21], const f16[21]) axis=1 epsilon=1e-5",
    "group_norm(f32[2,6,5,7], const f32[6], const f32[6]) groups=3 epsilon=1e-5",
    "mean_variance_norm(f32[2,3,5,7]) axes=[0,2,3] epsilon=1e-9",
    "lp_norm(f32[3,5,21]) axis=1 order=2",
    "lrn(f32[1,7,5,6]) size=5 alpha=0.5 beta=0.75 bias=2.0",
    "batch_norm:shape=2x7x10x10",
    "scale_shift:shape=1x7x10x10",
    // Windows and sums.
    "max_pool2d:c=8,hw=17,k=3,s=2,p=1",
    "avg_pool2d:c=3,hw=10,k=3,s=2,p=1",
    "global_avg_pool:shape=1x17x9x9",
    r#"global_pool(f32[2,3,5,7]) mode={"lp":{"order":1}}"#,
    r#"adaptive_pool(f32[1,3,10,7]) mode="max" extents=[4,9]"#,
    r#"reduce(f32[3,5,210]) function="sum" axes=[0,2] keep=false"#,
    r#"reduce(f32[3,5,21]) function="log_sum_exp" axes=[1] keep=true"#,
    r#"reduce(f32[3,21]) function="mean" axes=[0,1] keep=false"#,
    r#"reduce(i64[3,5,21]) function="min" axes=[1,2] keep=true"#,
    r#"reduce(f32[9,100]) function="mean" axes=[1] keep=false | unary(_) function="exp""#,
    "arg_top(f32[3,21]) axis=1 count=5 largest=true",
    "arg_reduce(f32[3,5,21]) largest=true axis=1 keep=false last=false",
    "cum_sum(f32[3,5,21]) axis=2 exclusive=false reverse=true",
    // One element at a time.
    "gelu:shape=3x7x17",
    "silu:shape=3x7x17",
    "hard_swish:shape=3x7x17",
    r#"unary(f32[3,21]) function="erf""#,
    r#"unary(f32[3,21]) function="tan""#,
    r#"unary(f32[3,21]) function="asinh""#,
    r#"unary(f32[3,21]) function="round""#,
    r#"unary(f32[3,21]) function={"is_inf":{"negative":true,"positive":false}}"#,
    r#"unary(f16[3,21]) function="tan""#,
    r#"unary(f16[3,21]) function="mish""#,
    r#"unary(bf16[3,21]) function="exp""#,
    r#"unary(f64[3,21]) function="tanh""#,
    r#"unary(bool[3,21]) function="not""#,
    r#"unary(i8[3,21]) function="bit_not""#,
    r#"unary(f32[]) function="sin""#,
    "clip:shape=3x7x17",
    r#"binary(f32[3,21], f32[3,1]) function="pow""#,
    r#"binary(i32[3,21], i32[3,1]) function="floor_div""#,
    r#"binary(u8[3,21], u8[3,1]) function="shift_left""#,
    r#"compare(i8[3,21], i8[21]) function="less""#,
    "where(bool[3,1], f32[21], f32[3,21])",
    "p_relu(f16[1,3,21], const f16[3,1])",
    "bias_add(f32[2,5,7], const f32[5]) axis=1",
    r#"cast(f32[3,21]) to="i8""#,
    r#"cast(bool[3,21]) to="f16""#,
    "identity(f32[3,21])",
    r#"quantize(f32[3,21], const f32[21], const i8[21]) to="i8" axis=1"#,
    "dequantize(u8[3,21], const f32[], const u8[]) axis=0",
    r#"requantize(i32[3,21], const f32[]) to="u8" axis=0 zero=7 low=7 high=255"#,
    // Moved elements.
    "resize_linear:shape=1x3x5x7,to=10x14",
    "reshape(f32[3,20]) shape=[6,10]",
    "flatten(f32[3,4,5]) axis=1",
    "transpose(f32[3,4,5]) permutation=[2,0,1]",
    "concat(f32[3,4], f32[3,5]) axis=1",
    "pad(f32[3,5]) pads=[1,2,0,1] value=0.5",
    r#"border_pad(f32[2,5,21]) border="reflect" pads=[0,2,3,0,1,20]"#,
    "slice(f32[3,21]) axes=[0,1] starts=[2,18] stops=[-1,3] steps=[-1,-4]",
    "expand(f32[3,1,21]) shape=[2,1,5,1]",
    "tile(i64[3,7]) repeats=[1,3]",
    "gather(const f32[50,21], i64[2,3]) axis=0",
    "gather_elements(f32[3,21], i64[3,9]) axis=1",
    "gather_nd(f32[4,5,21], i64[4,3,1]) batch=1",
    r#"scatter_elements(f32[3,21], i64[2,9], f32[2,9]) axis=1 combine="replace""#,
    r#"scatter_elements(f32[5,21], i64[9,21], f32[9,21]) axis=0 combine="add""#,
    r#"scatter_nd(f32[4,5,21], i64[3,2], f32[3,21]) combine="replace""#,
    r#"scatter_nd(f32[4,5,21], i64[9,2], f32[9,21]) combine="mul""#,
    r#"one_hot(i64[3,5]) axis=2 depth=21 on=1.0 off=0.0 to="f32""#,
    "trilu(f32[2,5,21]) upper=true diagonal=1",
];

/// Products that tensor cores make.
const ON_TENSOR_CORES: &[&str] = &[
    "mat_mul(f16[128,256], f16[256,128]) transpose_a=false transpose_b=false",
    "mat_mul(f16[64,128], f16[96,64]) transpose_a=true transpose_b=true",
    "mat_mul(f32[128,256], f32[256,128]) transpose_a=false transpose_b=false",
    r#"dense(bf16[2,64,64], const bf16[64,64]) | bias_add(_, const bf16[64]) axis=2 | unary(_) function="gelu""#,
    "q_mat_mul(i8[128,256], i8[256,128]) a_zero=0 b_zero=0",
    "q_dense(u8[64,64], const u8[64,64]) x_zero=0 w_zero=0",
    "conv(f16[1,64,14,14], const f16[64,64,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1",
    "q_conv(i8[1,32,7,7], const i8[32,32,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1 x_zero=0 w_zero=0",
];

/// Tasks that TVM's own space is drawn for.
const DRAWN: &[&str] =
    &["matmul:m=32,n=48,k=64", "conv2d:ci=8,hw=10,co=16,k=3,p=1,bias=1,act=relu", "softmax:shape=7x100,axis=1"];

/// Schedules of each task, the default one first.
const SCHEDULES: usize = 2;
const SEED: u64 = 7;

/// A file to be written in place of a comparison.
const UPDATE_VARIABLE: &str = "OPCOLLECT_UPDATE_REVISIONS";

/// A target, and how its code is written down.
struct Bench {
    target: Target,
    compiled: CompileTarget,
}

impl Bench {
    fn new(target: Target) -> Bench {
        let compiled = CompileTarget::from_json(&target.text).expect("TVM knows the target");
        Bench { target, compiled }
    }

    /// The code of one schedule; a draw that does not fit is none.
    fn code(&self, task: &Task, schedule: &Schedule) -> Result<Vec<u8>, String> {
        let is_device = self.target.kind == "cuda";
        let sums = if is_device { Sums::Wide } else { Sums::Own };
        let lowered = lower(task, schedule.layout(), sums).map_err(|error| error.to_string())?;
        let moves = match apply(task, &lowered, schedule, &self.compiled, &mut SpaceCache::default()) {
            Err(ApplyError::Rejected) => return Ok(b"rejected".to_vec()),
            moves => moves.map_err(|error| error.to_string())?,
        };
        let module = moves.module().map_err(|error| error.to_string())?;
        if !is_device {
            return compile(&module, &self.compiled).map(|object| object.bytes).map_err(|error| error.to_string());
        }
        let source = device::generate(&module, &self.compiled, schedule.has_fragments());
        let source = source.map_err(|error| error.to_string())?;
        Ok(format!("{}{:?}", source.text, source.launches).into_bytes())
    }

    /// Adds the code of a task by some schedules to the hash of its name.
    fn add(&self, hashes: &mut BTreeMap<String, blake3::Hasher>, name: &str, task: &Task, schedules: &[Schedule]) {
        let hasher = hashes.entry(format!("{} {name}", self.target.kind)).or_default();
        for (place, schedule) in schedules.iter().enumerate() {
            match self.code(task, schedule) {
                Ok(code) => hasher.update(&code),
                // A point of a space may be refused; the default one may not.
                Err(_) if place > 0 => hasher.update(b"refused"),
                Err(why) => panic!("{}\n  {}\n  {why}", task.to_text(), schedule.describe()),
            };
        }
    }

    fn all(&self, hashes: &mut BTreeMap<String, blake3::Hasher>) {
        let opened = [open::PRODUCTS, open::ATTENTION, open::ROWS].concat();
        let special = if self.target.kind == "cuda" { ON_TENSOR_CORES } else { &[] };
        for text in TASKS.iter().chain(special).chain(&opened) {
            let task = common::task(text);
            let points = space::sample(&space::space(&task, &self.target.machine), SEED, SCHEDULES);
            let schedules: Vec<Schedule> = points.into_iter().map(|knobs| Schedule::Template { knobs }).collect();
            self.add(hashes, &operator(&task.steps[0].op), &task, &schedules);
        }
        for text in DRAWN {
            let draws = (0..SCHEDULES).map(|draw| Schedule::MetaSchedule {
                space: draw,
                seed: 1 + i64::try_from(draw).expect("a small number"),
                trace: None,
            });
            self.add(hashes, "metaschedule", &common::task(text), &draws.collect::<Vec<_>>());
        }
    }
}

#[test]
fn the_table_tells_what_code_is_made() {
    if !cfg!(target_arch = "x86_64") {
        eprintln!("skipped: the table holds code for x86-64, which only a wheel for such machines makes");
        return;
    }
    library::open(Role::Builder).expect("TVM is there");
    let cpu = target::llvm("haswell", &["avx2".to_owned()], 4);
    let gpu = target::cuda(&target::cuda_text(&["sm_80".to_owned()])).expect("an architecture there is");
    let mut hashes = BTreeMap::new();
    Bench::new(cpu).all(&mut hashes);
    Bench::new(gpu).all(&mut hashes);
    let digits = |hasher: &blake3::Hasher| hasher.finalize().to_hex()[..16].to_owned();
    let made = Revisions(hashes.iter().map(|(name, hasher)| (name.clone(), digits(hasher))).collect());
    if std::env::var_os(UPDATE_VARIABLE).is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/job/revisions.txt");
        std::fs::write(path, made.text()).expect("the table can be written");
        return;
    }
    let known = Revisions::own();
    let is_other = |name: &&String| known.0.get(*name) != made.0.get(*name);
    let others: Vec<&String> = made.0.keys().chain(known.0.keys()).filter(is_other).collect();
    assert!(
        others.is_empty(),
        "this program makes other code for {others:?}: their times in stores are no longer known. If that is meant, run \
         this test once with {UPDATE_VARIABLE}=1 and commit the table; if not, undo it"
    );
}

#[test]
fn every_operator_has_a_revision() {
    // What serde says of an unknown operator names all that it knows.
    let unknown = serde_json::from_str::<Op>(r#"{"kind": "?"}"#).expect_err("no operator has this name").to_string();
    let operators: Vec<&str> = unknown.split('`').skip(3).step_by(2).collect();
    assert!(operators.len() > 50 && operators.contains(&"conv"), "{unknown}");
    for target in ["llvm", "cuda"] {
        let has_none = |name: &&&str| !Revisions::own().0.contains_key(&format!("{target} {name}"));
        let missing: Vec<&&str> = operators.iter().chain([&"metaschedule"]).filter(has_none).collect();
        assert!(missing.is_empty(), "operators without a revision for {target}: {missing:?}");
    }
}
