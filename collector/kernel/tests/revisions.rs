//! Tests that the table of revisions matches the generated code: changes of lowering, templates or passes change its
//! lines, and experiments whose code changed are measured again. An operator's revision is a hash over its code for a
//! CPU (an object file) and for a GPU (CUDA C), with the default schedule and another one.

// A test that is skipped says so aloud.
#![allow(clippy::print_stderr)]

mod common;
#[path = "common/every.rs"]
mod every;

use common::open;
use every::TASKS;
use job::revision::{Revisions, operator_name};
use job::space::{self, Knobs, Schedule, Setting};
use kernel::apply::{ApplyError, SpaceCache, apply_schedule};
use kernel::lower::{Form, lower_task};
use kernel::tvm::compile::{CompileTarget, compile_module};
use kernel::tvm::names::NameRole;
use kernel::tvm::{device, library};
use models::operators::Conv;
use models::{Op, Task};
use std::collections::BTreeMap;
use targets::Target;

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

/// Products on a GPU with padded rows in shared memory that threads copy by vectors; no sampled schedule has both.
const PADDED: &[&str] = &["matmul:m=64,n=64,k=64", "dense:m=64,n=64,k=64,bias=1", "conv2d:ci=64,hw=8,co=64,k=3"];

const DRAWN: &[&str] =
    &["matmul:m=32,n=48,k=64", "conv2d:ci=8,hw=10,co=16,k=3,p=1,bias=1,act=relu", "softmax:shape=7x100,axis=1"];

const SCHEDULES: usize = 2;
const SEED: u64 = 7;

/// Version of the schedule spaces from which the table's points are sampled; later axes would change the sample.
const VERSION_OF_TABLE: u32 = 5;

const UPDATE_VARIABLE: &str = "OPCOLLECT_UPDATE_REVISIONS";

struct Bench {
    target: Target,
    compiled: CompileTarget,
}

impl Bench {
    fn new(target: Target) -> Bench {
        let compiled = CompileTarget::from_json(&target.text).expect("TVM knows the target");
        Bench { target, compiled }
    }

    fn code(&self, task: &Task, schedule: &Schedule) -> Result<Vec<u8>, String> {
        let is_device = self.target.kind.runs_on_gpu();
        let lowered =
            lower_task(task, Form::for_schedule(schedule, &self.compiled)).map_err(|error| error.to_string())?;
        let moves = match apply_schedule(&lowered, schedule, &self.compiled, &mut SpaceCache::default()) {
            Err(ApplyError::Rejected) => return Ok(b"rejected".to_vec()),
            moves => moves.map_err(|error| error.to_string())?,
        };
        let module = moves.current_module().map_err(|error| error.to_string())?;
        if !is_device {
            let object = compile_module(&module, &self.compiled, schedule.function_variants(), false);
            return object.map(|object| object.bytes).map_err(|error| error.to_string());
        }
        let source = device::generate_source(&module, &self.compiled, schedule.has_fragments());
        let source = source.map_err(|error| error.to_string())?;
        Ok(format!("{}{:?}", source.text, source.launches).into_bytes())
    }

    fn add(&self, hashes: &mut BTreeMap<String, blake3::Hasher>, name: &str, task: &Task, schedules: &[Schedule]) {
        let hasher = hashes.entry(format!("{} {name}", self.target.kind)).or_default();
        for (place, schedule) in schedules.iter().enumerate() {
            match self.code(task, schedule) {
                Ok(code) => hasher.update(&code),
                // A point of a space may be refused; the default one may not.
                Err(_) if place > 0 => hasher.update(b"refused"),
                Err(why) => panic!("{}\n  {}\n  {why}", task.to_text(), schedule.describe_knobs()),
            };
        }
    }

    fn all(&self, hashes: &mut BTreeMap<String, blake3::Hasher>) {
        let opened = [open::PRODUCTS, open::ATTENTION, open::ROWS].concat();
        let special = if self.target.kind.runs_on_gpu() { ON_TENSOR_CORES } else { &[] };
        for text in TASKS.iter().chain(special).chain(&opened) {
            let task = common::task(text);
            let mut space = space::task_space(&task, &self.target.machine);
            let is_later = |name| space::find_declaration(name).is_some_and(|axis| axis.version > VERSION_OF_TABLE);
            space.axes.retain(|axis| !is_later(axis.name));
            let mut points = space::sample_points(&space, SEED, SCHEDULES);
            first_defaults(&task, &mut points[0]);
            let schedules: Vec<Schedule> = points.into_iter().map(|knobs| Schedule::Template { knobs }).collect();
            self.add(hashes, &operator_name(&task.steps[0].op), &task, &schedules);
        }
        let padded = if self.target.kind.runs_on_gpu() { PADDED } else { &[] };
        for text in padded {
            let task = common::task(text);
            let mut knobs = space::task_space(&task, &self.target.machine).default;
            for (name, setting) in [
                ("stage", Setting::Choice("shared".to_owned())),
                ("fetch", Setting::Number(4)),
                ("pad_rows", Setting::Number(1)),
                ("split_r", Setting::Number(8)),
            ] {
                knobs.0.insert(name.to_owned(), setting);
            }
            self.add(hashes, &operator_name(&task.steps[0].op), &task, &[Schedule::Template { knobs }]);
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

/// Changes a default point to the default of the table's version, so that only changes of code count.
fn first_defaults(task: &Task, point: &mut Knobs) {
    let Op::Conv(Conv { groups, .. }) = &task.steps[0].op else { return };
    let channels = task.steps[0].output.extents().and_then(|extents| extents.get(1).copied());
    if channels != Some(*groups)
        && let Some(pad_at) = point.0.get_mut("pad_at")
    {
        *pad_at = Setting::Choice("root".to_owned());
    }
}

#[test]
fn the_table_tells_what_code_is_made() {
    if !cfg!(target_arch = "x86_64") {
        eprintln!("skipped: the table holds code for x86-64, which only a wheel for such machines makes");
        return;
    }
    library::open_libraries(NameRole::Builder).expect("TVM is there");
    let cpu = targets::llvm_target("haswell", &["avx2".to_owned()], 4);
    let gpu = targets::parse_cuda(&targets::cuda_text(&["sm_80".to_owned()])).expect("an architecture there is");
    let hashes = std::thread::scope(|threads| {
        let hashes_of = |target| {
            let mut hashes = BTreeMap::new();
            Bench::new(target).all(&mut hashes);
            hashes
        };
        let both = [cpu, gpu].map(|target| threads.spawn(move || hashes_of(target)));
        both.into_iter().flat_map(|one| one.join().expect("each has a hash")).collect::<BTreeMap<_, _>>()
    });
    let digits = |hasher: &blake3::Hasher| hasher.finalize().to_hex()[..16].to_owned();
    let made = Revisions(hashes.iter().map(|(name, hasher)| (name.clone(), digits(hasher))).collect());
    if std::env::var_os(UPDATE_VARIABLE).is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../job/src/revisions.txt");
        std::fs::write(path, made.format_table()).expect("the table can be written");
        return;
    }
    let known = Revisions::embedded_table();
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
        let has_none = |name: &&&str| !Revisions::embedded_table().0.contains_key(&format!("{target} {name}"));
        let missing: Vec<&&str> = operators.iter().chain([&"metaschedule"]).filter(has_none).collect();
        assert!(missing.is_empty(), "operators without a revision for {target}: {missing:?}");
    }
}
