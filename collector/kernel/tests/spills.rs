//! What default schedules keep in registers, and where the rest goes: machine code of other processors is made, not run.

mod common;

use job::space::{self, Knobs, Schedule, Setting};
use job::target::{self, Target};
use kernel::apply::{SpaceCache, apply};
use kernel::code::step::{Step, decode};
use kernel::lower::{Form, lower};
use kernel::tvm::compile::{CompileTarget, compile};
use kernel::tvm::names::Role;
use kernel::tvm::{library, object};
use models::Task;

/// A processor that code is made for.
struct Bench {
    target: Target,
    compiled: CompileTarget,
}

impl Bench {
    fn new(target: Target) -> Bench {
        let compiled = CompileTarget::from_json(&target.text).expect("TVM knows the target");
        Bench { target, compiled }
    }

    /// The default point of a task's space.
    fn default(&self, task: &Task) -> Knobs {
        space::space(task, &self.target.machine).default
    }

    /// The object file of a task with a point of its space.
    fn object(&self, task: &Task, knobs: Knobs) -> Vec<u8> {
        let schedule = Schedule::Template { knobs };
        let lowered = lower(task, Form::of(&schedule, &self.compiled)).expect("the task can be lowered");
        let moves = apply(&lowered, &schedule, &self.compiled, &mut SpaceCache::default()).expect("the moves fit");
        let module = moves.module().expect("a module");
        compile(&module, &self.compiled, schedule.functions(), false).expect("the module compiles").bytes
    }
}

fn x86(cpu: &str, feature: &str) -> Bench {
    Bench::new(target::llvm(cpu, &[feature.to_owned()], 2))
}

/// The functions of an object for x86-64 that compute; others check arguments and raise errors.
fn computing(object: &[u8]) -> Vec<(String, Vec<u8>)> {
    let functions = object::functions(object).expect("an object for x86-64");
    functions.into_iter().filter(|(name, _)| !name.starts_with("__")).collect()
}

/// Vectors on the stack that are not aligned to their size, and how many there are in all.
fn unaligned(object: &[u8]) -> (Vec<String>, usize) {
    let (mut wrong, mut all) = (Vec::new(), 0);
    for (name, code) in computing(object) {
        let steps = decode(&code);
        let text = |step: &Step| format!("{name}: {}", step.instruction);
        let alignment = steps.iter().find_map(stack_alignment).unwrap_or(16);
        let is_vector = |step: &&Step| step.is_stack && step.loaded_bytes.max(step.stored_bytes) >= 32;
        for step in steps.iter().filter(is_vector) {
            all += 1;
            let bytes = u64::from(step.loaded_bytes.max(step.stored_bytes));
            let offset = step.instruction.memory_displacement64();
            let is_aligned = alignment >= bytes && offset % bytes == 0;
            if !is_aligned {
                wrong.push(text(step));
            }
        }
    }
    (wrong, all)
}

/// The alignment that an instruction `and rsp, -64` and the like gives the stack.
fn stack_alignment(step: &Step) -> Option<u64> {
    let is_and = step.instruction.mnemonic() == iced_x86::Mnemonic::And;
    let is_of_stack = step.first == iced_x86::Register::RSP;
    (is_and && is_of_stack).then(|| step.instruction.immediate(1).wrapping_neg())
}

#[test]
fn vectors_on_the_stack_are_aligned_to_their_size() {
    library::open(Role::Builder).expect("TVM is there");
    for (bench, block) in [(x86("haswell", "avx2"), 32), (x86("skylake-avx512", "avx512f"), 64)] {
        let product = common::task("dense:m=128,n=256,k=256");
        let mut knobs = bench.default(&product);
        // A tile of 32 vectors leaves no register for what its sums are made of.
        for (name, setting) in [("block", block), ("tile_c", 1), ("tile_x", 8), ("split_r", 1)] {
            knobs.0.insert(name.to_owned(), Setting::Number(setting));
        }
        // Buffers of these lie on the stack.
        let attention = common::task("attention:b=1,h=4,s=128,d=64");
        let default = bench.default(&attention);
        for (task, knobs) in [(product, knobs), (attention, default)] {
            let (wrong, all) = unaligned(&bench.object(&task, knobs));
            let text = format!("{} for {}", task.to_text(), bench.target.text);
            assert!(wrong.is_empty() && all > 0, "{} of {all}: {text}:\n{}", wrong.len(), wrong.join("\n"));
        }
    }
}
