//! Compiles a scheduled module to an object file in memory, never on disk. The passes are those of TVM 0.27's own
//! pipeline for schedulable functions, in the same order, without passes for GPUs (see `device`) and accelerators.

use super::aligned_stack::with_aligned_stack;
use super::call::{TvmError, Value, call, call_named};
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

#[derive(Clone)]
pub struct CompileTarget {
    pub(in crate::tvm) value: Value,
    pub(in crate::tvm) sampled: Value,
    pub device: Device,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    Cpu,
    /// GPUs of these architectures; machine code is generated for each.
    Cuda(Vec<Architecture>),
    /// A GPU whose driver compiles OpenCL C.
    Opencl {
        /// Maximum work-items of a work-group.
        group_items: i64,
    },
}

impl CompileTarget {
    /// Parses TVM's JSON, such as `{"kind": "llvm", "mcpu": "…"}` or `{"kind": "cuda", "arch": "sm_90"}`. `arch` may be
    /// a list: TVM generates one source for all GPU architectures, and each gets machine code.
    pub fn from_json(json: &str) -> Result<CompileTarget> {
        // Serialised again, so that TVM reads exactly the fields that were checked, even if the text has duplicate
        // names.
        let fields = targets::parse_checked(json).map_err(refused_error)?;
        let text = fields.to_string();
        let kind = targets::find_kind(&text)
            .ok_or_else(|| refused_error(format!("the kind of the target `{text:.200}` is unknown")))?;
        match kind.code_generator() {
            Some(Generator::Llvm) => CompileTarget::of_cpu(&fields),
            Some(Generator::CudaC) => CompileTarget::of_cuda(fields),
            Some(Generator::OpenclC) => CompileTarget::of_opencl(&kind.parse(&text).map_err(refused_error)?),
            None => Err(refused_error(format!("TVM generates no code for `{}`", kind.name()))),
        }
    }

    fn of_cpu(fields: &serde_json::Value) -> Result<CompileTarget> {
        check_cpu(fields)?;
        let target = call!(names::TARGET, fields.to_string().as_str())?;
        let value = call!(names::TARGET_WITH_HOST, &target, &target)?;
        Ok(CompileTarget { sampled: value.clone(), value, device: Device::Cpu })
    }

    fn of_cuda(mut fields: serde_json::Value) -> Result<CompileTarget> {
        let architectures = targets::parse_architectures(&fields).map_err(refused_error)?;
        let first = architectures.iter().min().expect("a GPU target has at least one architecture");
        let mut with_arch = |arch: &str| {
            fields["arch"] = arch.into();
            with_host(&fields.to_string())
        };
        let value = with_arch(&first.to_string())?;
        // TVM's space is sampled for sm_75: from sm_80 on, its rules use asynchronous copies, which only TVM's Python
        // package can emit.
        Ok(CompileTarget { value, sampled: with_arch("sm_75")?, device: Device::Cuda(architectures) })
    }

    fn of_opencl(target: &Target) -> Result<CompileTarget> {
        let Machine::Gpu(gpu) = target.machine else { return Err(refused_error("the target is not a GPU".to_owned())) };
        let value = with_host(&target.text)?;
        let device = Device::Opencl { group_items: gpu.block_threads };
        Ok(CompileTarget { sampled: value.clone(), value, device })
    }

    pub fn is_device(&self) -> bool {
        self.device != Device::Cpu
    }
}

fn refused_error(why: String) -> TvmError {
    TvmError::new(names::TARGET.text, why)
}

fn with_host(text: &str) -> Result<Value> {
    call!(names::TARGET_WITH_HOST, call!(names::TARGET, text)?, call!(names::TARGET, r#"{"kind": "llvm"}"#)?)
}

/// Rejects unknown CPU names, for which LLVM would silently generate code for a generic CPU.
fn check_cpu(fields: &serde_json::Value) -> Result<()> {
    let Some(cpu) = fields.get("mcpu").and_then(|cpu| cpu.as_str()) else { return Ok(()) };
    let triple = match fields.get("mtriple").and_then(|triple| triple.as_str()) {
        Some(triple) => triple.to_owned(),
        None => call!(names::SYSTEM_TRIPLE)?.as_text()?,
    };
    if call!(names::IS_VALID_CPU, cpu, triple.as_str())?.as_boolean()? {
        return Ok(());
    }
    Err(TvmError::new(names::TARGET.text, format!("LLVM does not know the CPU `{cpu}` for `{triple}`")))
}

pub fn system_cpu() -> Result<String> {
    call!(names::SYSTEM_CPU)?.as_text()
}

#[derive(Clone, Debug)]
pub struct Object {
    /// An ELF object file.
    pub bytes: Vec<u8>,
    pub lower_ms: f64,
    pub codegen_ms: f64,
    /// Texts of TIR and LLVM IR; None unless requested.
    pub texts: Option<Texts>,
}

#[derive(Clone, Debug)]
pub struct Texts {
    pub scheduled: String,
    pub lowered: String,
    pub llvm: String,
}

/// First passes, which lower a scheduled function to explicit loops and buffers, in order. Also used for GPUs.
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
/// Passes after the pass that lets buffers share memory, in order. Also used for GPUs.
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

pub fn compile_module(module: &Module, target: &CompileTarget, kind: Functions, wants_texts: bool) -> Result<Object> {
    let start = Instant::now();
    let lowered = functions::lower_with(kind, dots::find_instruction(&target.value)?, || lower_module(module, target))?;
    let lowered_at = Instant::now();
    let built = call!(names::BUILD_LLVM, &lowered.0, &target.value)?;
    let built = with_aligned_stack(&built)?;
    let bytes = write_object(&built)?;
    let (lower_ms, codegen_ms) = ((lowered_at - start).as_secs_f64() * 1e3, lowered_at.elapsed().as_secs_f64() * 1e3);
    let texts = if wants_texts { Some(collect_texts(module, &lowered, &built)?) } else { None };
    Ok(Object { bytes, lower_ms, codegen_ms, texts })
}

pub fn module_text(module: &Module) -> Result<String> {
    call!(names::TEXT_OF, &module.0)?.as_text()
}

fn collect_texts(scheduled: &Module, lowered: &Module, built: &Value) -> Result<Texts> {
    let llvm = call!(names::MODULE_SOURCE, built, "ll")?.as_text()?;
    Ok(Texts { scheduled: module_text(scheduled)?, lowered: module_text(lowered)?, llvm })
}

fn lower_module(module: &Module, target: &CompileTarget) -> Result<Module> {
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
        module = run_pass(&call_named(pass, &[])?, &module)?;
    }
    Ok(module)
}

pub(in crate::tvm) fn run_pass(pass: &Value, module: &Module) -> Result<Module> {
    call!(names::RUN_PASS, pass, &module.0).map(Module)
}

/// Size limit of an object file; the objects of single operators are far smaller.
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
