//! Tests of the error of each function over the whole range of floats.

// What was measured is for the documents.
#![allow(clippy::print_stderr)]

use super::super::call::TvmError;
use super::super::compile::{self, CompileTarget};
use super::super::dots::Instruction;
use super::super::kernel::KernelBuffer;
use super::super::memory::Bounds;
use super::super::names::NameRole;
use super::super::{library, object};
use crate::apply::{SpaceCache, apply_schedule};
use crate::lower::{Form, lower_task};
use job::space::choices::Functions;
use job::space::{self, Knobs, Schedule, Setting};
use models::{DType, Task};
use reference::error_function as erf;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use targets::Target;
use tempfile::TempDir;
use tvm_ffi::AnyView;

/// Numbers per call; no multiple of a vector's length, so that the code for remaining elements is tested, too.
const LENGTH: usize = (1 << 20) + 5;

/// Environment variable that, if set, makes tests try every float, which takes a quarter of an hour.
const EVERY_VARIABLE: &str = "OPCOLLECT_EVERY_FLOAT";

/// Distance of the tested floats otherwise; a prime, so that all kinds of fractions and exponents are combined.
const STRIDE: u32 = 1009;

fn compiled(name: &str, target: &Target, functions: &str, dtype: DType) -> Vec<u8> {
    let input = format!("{dtype}[{LENGTH}]");
    let inputs = std::iter::once(input.as_str()).chain(std::iter::repeat("_"));
    let steps: Vec<String> =
        name.split(' ').zip(inputs).map(|(one, input)| format!("unary({input}) function=\"{one}\"")).collect();
    compiled_task(&steps.join(" | "), target, |knobs| {
        knobs.insert("vector".to_owned(), Setting::Number(16));
        knobs.insert("functions".to_owned(), Setting::Choice(functions.to_owned()));
    })
}

fn compiled_task(text: &str, target: &Target, change: impl FnOnce(&mut BTreeMap<String, Setting>)) -> Vec<u8> {
    let task = Task::from_text(text).expect("the task is well formed");
    let mut knobs = space::task_space(&task, &target.machine).default.0;
    change(&mut knobs);
    let schedule = Schedule::Template { knobs: Knobs(knobs) };
    let compiled = CompileTarget::from_json(&target.text).expect("TVM knows the target");
    let lowered = lower_task(&task, Form::for_schedule(&schedule, &compiled)).expect("the task can be lowered");
    let moves = apply_schedule(&lowered, &schedule, &compiled, &mut SpaceCache::default()).expect("legal moves");
    let module = moves.current_module().expect("a module");
    compile::compile_module(&module, &compiled, schedule.function_variants(), false).expect("it compiles").bytes
}

struct Code {
    function: tvm_ffi::Function,
    _loaded: object::LoadedObject,
    buffers: [KernelBuffer; 2],
}

impl Code {
    fn new(name: &str, cpu: &str, functions: &str, dtype: DType) -> Code {
        library::open_libraries(NameRole::Builder).expect("TVM is there");
        let cpu = if cpu == "native" { compile::system_cpu().expect("TVM knows this CPU") } else { cpu.to_owned() };
        let object = compiled(name, &targets::llvm_target(&cpu, &[], 1), functions, dtype);
        let loaded = object::load_object(&object).expect("it loads");
        // SAFETY: this is code of our own making, called as it is meant to be.
        let function = unsafe { loaded.packed_function("main") }.expect("it has an entry");
        let extents = [i64::try_from(LENGTH).expect("a small number")];
        let buffers = [(); 2].map(|()| KernelBuffer::new(dtype, &extents, Bounds::Guarded).expect("there is memory"));
        Code { function, _loaded: loaded, buffers }
    }

    fn call(&self, input: &[u8]) -> Vec<u8> {
        self.buffers[0].write(input).expect("as many bytes");
        let views: Vec<AnyView> = self.buffers.iter().map(KernelBuffer::as_view).collect();
        self.function.call_packed(&views).expect("the code runs");
        self.buffers[1].read().expect("as many bytes")
    }

    fn of(&self, numbers: &[f32]) -> Vec<f32> {
        floats(&self.call(&filled(numbers)))
    }
}

fn filled(numbers: &[f32]) -> Vec<u8> {
    let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    bytes.resize(4 * LENGTH, 0);
    bytes
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("4 bytes"))).collect()
}

/// Runs a task's default schedule on inputs of these extents.
fn run_task(text: &str, inputs: &[(&[i64], Vec<f32>)], result: &[i64]) -> Vec<f32> {
    library::open_libraries(NameRole::Builder).expect("TVM is there");
    let cpu = compile::system_cpu().expect("TVM knows this CPU");
    let object = compiled_task(text, &targets::llvm_target(&cpu, &[], 1), |_| {});
    let loaded = object::load_object(&object).expect("it loads");
    // SAFETY: this is code of our own making, called as it is meant to be.
    let function = unsafe { loaded.packed_function("main") }.expect("it has an entry");
    let extents = inputs.iter().map(|(extents, _)| *extents).chain([result]);
    let buffers = extents.map(|extents| KernelBuffer::new(DType::F32, extents, Bounds::Guarded));
    let buffers: Vec<KernelBuffer> = buffers.collect::<Result<_, _>>().expect("there is memory");
    for (buffer, (_, numbers)) in buffers.iter().zip(inputs) {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        buffer.write(&bytes).expect("as many bytes");
    }
    let views: Vec<AnyView> = buffers.iter().map(KernelBuffer::as_view).collect();
    function.call_packed(&views).expect("the code runs");
    floats(&buffers[inputs.len()].read().expect("as many bytes"))
}

/// Masks of windows are −100: numbers below the smallest normal one would take over a hundred cycles each.
#[test]
fn weights_of_masked_positions_are_zero_instead_of_subnormal() {
    let row = vec![0.0, -86.0, -88.0, -100.0, f32::NEG_INFINITY, -1.0, 0.5, -200.0];
    let weights = run_task("softmax(f32[1,8]) axis=1 log=false", &[(&[1, 8], row.clone())], &[1, 8]);
    assert!(weights.iter().all(|weight| *weight == 0.0 || weight.is_normal()), "{weights:?}");
    assert!(weights[1] > 0.0 && weights[2..5] == [0.0; 3] && weights[7] == 0.0, "{weights:?}");
    let with_nan = [vec![f32::NAN], row[1..].to_vec()].concat();
    let weights = run_task("softmax(f32[1,8]) axis=1 log=false", &[(&[1, 8], with_nan)], &[1, 8]);
    assert!(weights.iter().all(|weight| weight.is_nan()), "{weights:?}");
    // Keys of zeros, so that the mask is the score; the values of masked positions are large.
    let values = vec![1.0, 1e30, 1e30, 1e30, 1e30, 1.0, 1.0, 1e30];
    let mask = row.iter().map(|score| if *score < -1.0 { -100.0 } else { *score }).collect();
    let inputs: [(&[i64], Vec<f32>); 4] =
        [(&[1, 1, 1, 1], vec![0.0]), (&[1, 1, 8, 1], vec![0.0; 8]), (&[1, 1, 8, 1], values), (&[1, 1, 1, 8], mask)];
    let text = "attention(f32[1,1,1,1], f32[1,1,8,1], f32[1,1,8,1], f32[1,1,1,8]) causal=false scale=1 window=null \
                softcap=null";
    let attended = run_task(text, &inputs, &[1, 1, 1, 1]);
    assert!((attended[0] - 1.0).abs() < 1e-6, "{attended:?}");
}

struct Neon {
    folder: TempDir,
}

impl Neon {
    const COMPILER: &str = "aarch64-linux-gnu-gcc";
    const EMULATOR: &str = "qemu-aarch64";
    const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/floats.c");

    fn missing() -> Option<&'static str> {
        let is_there = |program: &&str| Command::new(program).arg("--version").output().is_ok();
        [Neon::COMPILER, Neon::EMULATOR].into_iter().find(|program| !is_there(program))
    }

    fn new(name: &str) -> Neon {
        library::open_libraries(NameRole::Builder).expect("TVM is there");
        let board = targets::find_board("zcu104").expect("a board");
        let folder = tempfile::tempdir().expect("a folder");
        let object = folder.path().join("object.o");
        std::fs::write(&object, compiled(name, &board.cpu_target(), "vector", DType::F32)).expect("there is room");
        let built = Command::new(Neon::COMPILER)
            .args(["-O1", "-static", "-o"])
            .args([&folder.path().join("program"), Path::new(Neon::SOURCE), &object, Path::new("-lm")])
            .output()
            .expect("a compiler");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Neon { folder }
    }

    fn of(&self, numbers: &[f32]) -> Vec<f32> {
        let input = self.folder.path().join("input");
        std::fs::write(&input, filled(numbers)).expect("there is room");
        let ran = Command::new(Neon::EMULATOR)
            .arg(self.folder.path().join("program"))
            .stdin(File::open(&input).expect("just written"))
            .output()
            .expect("an emulator");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        floats(&ran.stdout)
    }
}

fn spacing(number: f64) -> f64 {
    let number = number.abs().clamp(f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX));
    let exponent = (number.to_bits() >> 52) as i32 - 1023;
    f64::from(exponent - 23).exp2()
}

#[derive(Clone, Copy, PartialEq)]
enum Unit {
    Spacing,
    Absolute,
}

fn largest_error(of: impl Fn(&[f32]) -> Vec<f32>, stride: u32, truth: fn(f64) -> f64, unit: Unit) -> (f64, f32) {
    let stride = if std::env::var_os(EVERY_VARIABLE).is_some() { 1 } else { stride };
    let mut all = (0..=u32::MAX).step_by(stride as usize).map(f32::from_bits);
    let mut worst = (0.0, 0.0);
    loop {
        let numbers: Vec<f32> = all.by_ref().take(LENGTH).collect();
        if numbers.is_empty() {
            return worst;
        }
        for (&x, y) in numbers.iter().zip(of(&numbers)) {
            let wanted = truth(f64::from(x));
            let rounded = wanted as f32;
            if rounded.is_nan() || rounded.is_infinite() || x.is_infinite() {
                let beyond = f64::from(f32::MAX) + spacing(f64::from(f32::MAX));
                // A number so near to the largest float may be rounded either way.
                let may_be_large = rounded.is_infinite() && wanted.is_finite() && wanted.abs() < beyond;
                let is_same = y == rounded || (y.is_nan() && rounded.is_nan());
                assert!(is_same || may_be_large, "of {x:?} ({:#010x}) it gave {y:?}, not {rounded:?}", x.to_bits());
                continue;
            }
            let error = (f64::from(y) - wanted).abs();
            let error = if unit == Unit::Spacing { error / spacing(wanted) } else { error };
            assert!(error.is_finite(), "of {x:?} ({:#010x}) it gave {y:?}, not {rounded:?}", x.to_bits());
            if error > worst.0 {
                worst = (error, x);
            }
        }
    }
}

#[track_caller]
fn check(name: &str, truth: fn(f64) -> f64, unit: Unit, bound: f64) {
    for cpu in ["native", "x86-64"] {
        if cpu == "x86-64" && !cfg!(target_arch = "x86_64") {
            continue;
        }
        let code = Code::new(name, cpu, "vector", DType::F32);
        let (error, at) = largest_error(|numbers| code.of(numbers), STRIDE, truth, unit);
        eprintln!("{name} on {cpu}: at most {error:.3e} off, at {at:e}");
        assert!(error <= bound, "{name} on {cpu}: {error} off at {at:?}, allowed are {bound}");
    }
}

#[test]
fn exponentials_and_logarithms_are_within_two_units_in_the_last_place() {
    check("exp", f64::exp, Unit::Spacing, 2.0);
    check("exp2", f64::exp2, Unit::Spacing, 2.0);
    check("log", f64::ln, Unit::Spacing, 2.0);
    check("log1p", f64::ln_1p, Unit::Spacing, 3.0);
}

#[test]
fn saturating_functions_are_within_four_tenths_of_a_millionth() {
    check("erf", erf, Unit::Absolute, 4e-7);
    check("tanh", f64::tanh, Unit::Absolute, 4e-7);
    check("sigmoid", |x| 1.0 / (1.0 + (-x).exp()), Unit::Absolute, 4e-7);
}

#[test]
fn neon_has_the_same_bounds() {
    const STRIDE: u32 = 20_011;
    if let Some(missing) = Neon::missing() {
        eprintln!("skipped: functions on NEON need `{missing}`");
        return;
    }
    let check = |name: &str, truth: fn(f64) -> f64, unit: Unit, bound: f64| {
        let code = Neon::new(name);
        let (error, at) = largest_error(|numbers| code.of(numbers), STRIDE, truth, unit);
        eprintln!("{name} on NEON: at most {error:.3e} off, at {at:e}");
        assert!(error <= bound, "{name} on NEON: {error} off at {at:?}, allowed are {bound}");
    };
    check("exp", f64::exp, Unit::Spacing, 2.0);
    check("exp2", f64::exp2, Unit::Spacing, 2.0);
    check("log", f64::ln, Unit::Spacing, 2.0);
    check("log1p", f64::ln_1p, Unit::Spacing, 3.0);
    check("erf", erf, Unit::Absolute, 4e-7);
    check("tanh", f64::tanh, Unit::Absolute, 4e-7);
    check("sigmoid", |x| 1.0 / (1.0 + (-x).exp()), Unit::Absolute, 4e-7);
}

#[test]
fn functions_of_functions_are_right() {
    fn sigmoid(x: f64) -> f64 {
        1.0 / (1.0 + (-x).exp())
    }
    check("sigmoid tanh", |x| sigmoid(x).tanh(), Unit::Absolute, 6e-7);
    check("tanh exp erf sigmoid", |x| sigmoid(erf(x.tanh().exp())), Unit::Absolute, 6e-7);
    check("exp log1p tanh log1p", |x| x.exp().ln_1p().tanh().ln_1p(), Unit::Absolute, 6e-7);
    check("erf sigmoid tanh sigmoid erf tanh", |x| erf(sigmoid(sigmoid(erf(x)).tanh())).tanh(), Unit::Absolute, 6e-7);
}

#[test]
fn wide_floats_and_chosen_libraries_have_the_library() {
    for name in ["exp", "erf", "log1p", "tanh"] {
        let truth = match name {
            "exp" => f64::exp,
            "erf" => erf,
            "log1p" => f64::ln_1p,
            _ => f64::tanh,
        };
        // Of small numbers TVM's own `tanh` has no digit right: what it gives is one less something near one.
        let (unit, bound) = if name == "tanh" { (Unit::Absolute, 2e-7) } else { (Unit::Spacing, 2.0) };
        let code = Code::new(name, "native", "library", DType::F32);
        let (error, at) = largest_error(|numbers| code.of(numbers), STRIDE, truth, unit);
        assert!(error <= bound, "{name} of the library: {error} off at {at:?}");
        let numbers: Vec<f64> = (0..LENGTH).map(|place| place as f64 / LENGTH as f64 * 4.0 - 0.9).collect();
        let input: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        let output = Code::new(name, "native", "vector", DType::F64).call(&input);
        for (x, bytes) in numbers.iter().zip(output.chunks_exact(8)) {
            let y = f64::from_le_bytes(bytes.try_into().expect("8 bytes"));
            assert!((y - truth(*x)).abs() <= 1e-14 * truth(*x).abs().max(1.0), "{name} of {x}: {y}");
        }
    }
}

#[test]
fn the_choice_ends_with_what_it_was_made_for() {
    library::open_libraries(NameRole::Builder).expect("TVM is there");
    let mut chosen = None;
    let lowered = super::lower_with(Functions::Library, Instruction::None, || {
        chosen = Some(super::CHOSEN.get());
        Err(TvmError::new("a test", "nothing is lowered"))
    });
    assert!(lowered.is_err());
    assert_eq!((chosen, super::CHOSEN.get()), (Some(Functions::Library), Functions::Vector));
}
