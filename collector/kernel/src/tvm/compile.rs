//! From a scheduled module to an object file in memory.
//!
//! The order of the passes is the order of TVM 0.27's own pipeline for schedulable functions, less what only
//! concerns GPUs (see `device`) and accelerators. The code generator writes the object through an anonymous file, never to a disk.

use super::aligned_stack::with_aligned_stack;
use super::call::{TvmError, Value, call, invoke};
use super::expression::Module;
use super::memory_file::MemoryFile;
use super::names::{self, Name};
use super::stack::keep_small_buffers;
use super::{dots, functions};
use job::device::Architecture;
use job::space::choices::Functions;
use std::fs::File;
use std::io::Read;
use std::time::Instant;
use targets::{Generator, Machine, Target};

type Result<T> = std::result::Result<T, TvmError>;

/// What code is made for.
#[derive(Clone)]
pub struct CompileTarget {
    pub(in crate::tvm) value: Value,
    /// What TVM's own space is made for.
    pub(in crate::tvm) sampled: Value,
    /// What runs the code.
    pub device: Device,
}

/// What runs the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// A processor's cores.
    Cpu,
    /// GPUs of these architectures, each of which gets machine code.
    Cuda(Vec<Architecture>),
    /// A GPU whose own driver makes machine code, of OpenCL C.
    Opencl {
        /// The most work-items of a group.
        group_items: i64,
    },
}

impl CompileTarget {
    /// From TVM's JSON description, such as `{"kind": "llvm", "mcpu": "…"}` or `{"kind": "cuda", "arch": "sm_90"}`.
    ///
    /// The `arch` of a GPU may be a list: TVM's code is the same for all of them, machine code is made for each.
    pub fn from_json(json: &str) -> Result<CompileTarget> {
        // TVM sees what was checked, whatever it makes of names that stand there twice.
        let fields = targets::checked(json).map_err(refused)?;
        let text = fields.to_string();
        let kind = targets::find(&text).ok_or_else(|| refused(format!("`{text:.200}` is of no known kind")))?;
        match kind.generator() {
            Some(Generator::Llvm) => CompileTarget::of_cpu(&fields),
            Some(Generator::CudaC) => CompileTarget::of_cuda(fields),
            Some(Generator::OpenclC) => CompileTarget::of_opencl(&kind.parse(&text).map_err(refused)?),
            None => Err(refused(format!("TVM generates no code for `{}`", kind.name()))),
        }
    }

    fn of_cpu(fields: &serde_json::Value) -> Result<CompileTarget> {
        check_cpu(fields)?;
        let target = call!(names::TARGET, fields.to_string().as_str())?;
        let value = call!(names::TARGET_WITH_HOST, &target, &target)?;
        Ok(CompileTarget { sampled: value.clone(), value, device: Device::Cpu })
    }

    fn of_cuda(mut fields: serde_json::Value) -> Result<CompileTarget> {
        let architectures = targets::architectures(&fields).map_err(refused)?;
        let first = architectures.iter().min().expect("a GPU target has at least one architecture");
        let mut with_arch = |arch: &str| {
            fields["arch"] = arch.into();
            with_host(&fields.to_string())
        };
        let value = with_arch(&first.to_string())?;
        // From sm_80 on, TVM's rules make asynchronous copies, which only its Python package can write down.
        Ok(CompileTarget { value, sampled: with_arch("sm_75")?, device: Device::Cuda(architectures) })
    }

    fn of_opencl(target: &Target) -> Result<CompileTarget> {
        let Machine::Gpu(gpu) = target.machine else { return Err(refused("it is no GPU".to_owned())) };
        let value = with_host(&target.text)?;
        let device = Device::Opencl { group_items: gpu.block_threads };
        Ok(CompileTarget { sampled: value.clone(), value, device })
    }

    /// Whether blocks of threads run the code.
    pub fn is_device(&self) -> bool {
        self.device != Device::Cpu
    }
}

fn refused(why: String) -> TvmError {
    TvmError::new(names::TARGET.text, why)
}

/// Returns TVM's target of a device whose launches a CPU starts.
fn with_host(text: &str) -> Result<Value> {
    call!(names::TARGET_WITH_HOST, call!(names::TARGET, text)?, call!(names::TARGET, r#"{"kind": "llvm"}"#)?)
}

/// LLVM takes an unknown CPU for a generic one without a word that reaches the user; so names are checked here.
fn check_cpu(fields: &serde_json::Value) -> Result<()> {
    let Some(cpu) = fields.get("mcpu").and_then(|cpu| cpu.as_str()) else { return Ok(()) };
    let triple = match fields.get("mtriple").and_then(|triple| triple.as_str()) {
        Some(triple) => triple.to_owned(),
        None => call!(names::SYSTEM_TRIPLE)?.text()?,
    };
    if call!(names::IS_VALID_CPU, cpu, triple.as_str())?.boolean()? {
        return Ok(());
    }
    Err(TvmError::new(names::TARGET.text, format!("LLVM knows no CPU `{cpu}` for `{triple}`")))
}

/// The CPU this machine has, as LLVM names it.
pub fn system_cpu() -> Result<String> {
    call!(names::SYSTEM_CPU)?.text()
}

/// Built code with what its making cost.
#[derive(Clone, Debug)]
pub struct Object {
    /// An ELF object file.
    pub bytes: Vec<u8>,
    /// Time of lowering, in milliseconds.
    pub lower_ms: f64,
    /// Time of code generation, in milliseconds.
    pub codegen_ms: f64,
    /// TIR and LLVM's IR of it, when asked for.
    pub texts: Option<Texts>,
}

/// What code is made of, to be read by people.
#[derive(Clone, Debug)]
pub struct Texts {
    /// TIR as it was scheduled.
    pub scheduled: String,
    /// TIR as LLVM's IR is made of it.
    pub lowered: String,
    pub llvm: String,
}

/// The first passes without arguments, in order, of what makes a function with explicit loops and buffers of a scheduled
/// one; for GPUs too.
pub(in crate::tvm) const FIRST: &[Name] = &[
    names::CANONICALIZE_LOOP,
    names::LOWER_CROSS_THREAD_REDUCTION,
    names::LOWER_INIT_BLOCK,
    names::PLAN_BUFFER_ALLOCATION,
    names::CONVERT_BLOCKS_TO_OPAQUE,
];
const AFTER_COMPACTING: &[Name] = &[
    names::LOWER_MATCH_BUFFER,
    names::SCHEDULABLE_SIMPLIFY,
    names::ANNOTATE_IRREGULAR_LOOP,
    names::LOWER_OPAQUE_BLOCK,
    names::FLATTEN_BUFFER,
    names::BF16_COMPUTE_LEGALIZE,
];
/// What follows once buffers share memory; for GPUs too.
pub(in crate::tvm) const AFTER_STORAGE: &[Name] = &[
    names::HOIST_IF_THEN_ELSE,
    names::UNROLL_LOOP,
    names::RENORMALIZE_SPLIT_PATTERN,
    names::SIMPLIFY,
    names::REMOVE_NO_OP,
    names::REWRITE_UNSAFE_SELECT,
    names::COMMON_SUBEXPRESSIONS,
    names::VERIFY_MEMORY,
    names::ANNOTATE_ENTRY,
];
const LAST: &[Name] = &[
    names::SPLIT_HOST_DEVICE,
    names::MAKE_PACKED_API,
    names::BF16_STORAGE_LEGALIZE,
    names::LOWER_TVM_BUILTIN,
    names::LOWER_INTRINSIC,
];

/// Lowers and compiles a module for a CPU, with functions of this kind.
pub fn compile(module: &Module, target: &CompileTarget, kind: Functions, wants_texts: bool) -> Result<Object> {
    let start = Instant::now();
    let lowered = functions::with(kind, dots::instruction(&target.value)?, || lower(module, target))?;
    let lowered_at = Instant::now();
    let built = call!(names::BUILD_LLVM, &lowered.0, &target.value)?;
    let built = with_aligned_stack(&built)?;
    let bytes = write_object(&built)?;
    let (lower_ms, codegen_ms) = ((lowered_at - start).as_secs_f64() * 1e3, lowered_at.elapsed().as_secs_f64() * 1e3);
    let texts = if wants_texts { Some(texts(module, &lowered, &built)?) } else { None };
    Ok(Object { bytes, lower_ms, codegen_ms, texts })
}

/// Returns the text of a module in TVM's notation.
pub fn text(module: &Module) -> Result<String> {
    call!(names::TEXT_OF, &module.0)?.text()
}

fn texts(scheduled: &Module, lowered: &Module, built: &Value) -> Result<Texts> {
    let llvm = call!(names::MODULE_SOURCE, built, "ll")?.text()?;
    Ok(Texts { scheduled: text(scheduled)?, lowered: text(lowered)?, llvm })
}

fn lower(module: &Module, target: &CompileTarget) -> Result<Module> {
    let mut module = run_pass(&call!(names::BIND_TARGET, &target.value)?, module)?;
    module = run_passes(FIRST, module)?;
    module = run_pass(&call!(names::COMPACT_BUFFER_ALLOCATION, true)?, &module)?;
    module = run_passes(AFTER_COMPACTING, module)?;
    module = run_pass(&call!(names::LOOP_PARTITION)?, &module)?;
    module = run_pass(&call!(names::VECTORIZE_LOOP, true)?, &module)?;
    module = run_pass(&call!(names::STORAGE_REWRITE)?, &module)?;
    module = keep_small_buffers(module)?;
    run_passes(LAST, run_passes(AFTER_STORAGE, module)?)
}

pub(in crate::tvm) fn run_passes(passes: &[Name], mut module: Module) -> Result<Module> {
    for pass in passes {
        module = run_pass(&invoke(pass, &[])?, &module)?;
    }
    Ok(module)
}

pub(in crate::tvm) fn run_pass(pass: &Value, module: &Module) -> Result<Module> {
    call!(names::RUN_PASS, pass, &module.0).map(Module)
}

/// An object of one operator is some ten kilobytes; more than this is a mistake.
const MAX_OBJECT_BYTES: u64 = 64 << 20;

fn write_object(built: &Value) -> Result<Vec<u8>> {
    let failed = |error: &dyn std::fmt::Display| TvmError::new(names::MODULE_WRITE.text, error);
    let memory = MemoryFile::new("artifact").map_err(|error| failed(&error))?;
    call!(names::MODULE_WRITE, built, memory.path.as_str(), "o")?;
    let mut bytes = Vec::new();
    let mut file = File::open(&memory.path).map_err(|error| failed(&error))?.take(MAX_OBJECT_BYTES + 1);
    file.read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    if bytes.len() as u64 > MAX_OBJECT_BYTES {
        return Err(failed(&"the object is larger than 64 MiB"));
    }
    Ok(bytes)
}
