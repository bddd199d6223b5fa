//! Lowers a scheduled module to CUDA C or OpenCL C, with passes in the order of TVM 0.27's own pipeline. The host part
//! is not compiled: it is parsed into a list of kernel launches, which is passed on as plain data.

use super::async_copy;
use super::call::{TvmError, Value, call};
use super::compile::{AFTER_STORAGE, CompileTarget, Device, FIRST, run_pass, run_passes};
use super::expression::Module;
use super::names::{self, Name};
use super::opencl;
use cuda;
use job::device::Launches;
use std::sync::OnceLock;
use std::time::Instant;
use tvm_ffi::{Any, AnyView, Array, Error, Function, Map, String as TvmString};

type Result<T> = std::result::Result<T, TvmError>;

#[derive(Clone, Debug)]
pub struct DeviceSource {
    pub text: String,
    pub launches: Launches,
    pub lower_ms: f64,
    pub codegen_ms: f64,
}

const BEFORE_COMPACTING: &[Name] = &[names::LIFT_THREAD_BINDING, names::MANIFEST_SHARED_MEMORY];
const AFTER_COMPACTING: &[Name] = &[
    names::LOWER_AUTO_COPY,
    names::UNIFY_THREAD_BINDING,
    names::LOWER_MATCH_BUFFER,
    names::SCHEDULABLE_SIMPLIFY,
    names::INJECT_PERMUTED_LAYOUT,
    names::ANNOTATE_IRREGULAR_LOOP,
    names::INJECT_SOFTWARE_PIPELINE,
    names::LOWER_OPAQUE_BLOCK,
    names::FLATTEN_BUFFER,
];
const BEFORE_STORAGE: &[Name] = &[names::INJECT_VIRTUAL_THREAD, names::INJECT_DOUBLE_BUFFER];
const AFTER_BARRIERS: &[Name] = &[
    names::INFER_FRAGMENT,
    names::LOWER_THREAD_ALLREDUCE,
    names::INJECT_ASYNC_COPY,
    names::MERGE_SHARED_ALLOCATIONS,
    names::SPLIT_HOST_DEVICE,
];
const OF_DEVICE: &[Name] = &[names::LOWER_WARP_MEMORY, names::SIMPLIFY, names::LOWER_INTRINSIC];

/// Generates CUDA C or OpenCL C. If there are tensor-core fragments, buffers do not share memory, because TVM ignores
/// element types there, and `bf16` is not replaced by an integer type, which fragments reject.
pub fn generate_source(module: &Module, target: &CompileTarget, has_fragments: bool) -> Result<DeviceSource> {
    provide_headers()?;
    let start = Instant::now();
    let module = lower_module(module, target, has_fragments)?;
    let device = run_pass(&side_filter(FunctionSide::Device)?, &module)?;
    let host = run_pass(&side_filter(FunctionSide::Host)?, &module)?;
    let graph = call!(names::JSON_GRAPH, &host.0, Value::none())?.as_text()?;
    let launches =
        job::device::parse_launches(&graph).map_err(|error| TvmError::new(names::SPLIT_HOST_DEVICE.text, error))?;
    let device = if has_fragments { device } else { run_pass(&call!(names::BF16_STORAGE_LEGALIZE)?, &device)? };
    let device = run_passes(OF_DEVICE, device)?;
    let lowered_at = Instant::now();
    let text = match target.device {
        Device::Opencl { .. } => {
            let built = call!(names::BUILD_OPENCL, &device.0, &target.value)?;
            opencl::with_own_functions(&call!(names::MODULE_SOURCE, built, "cl")?.as_text()?)
        }
        Device::Cpu | Device::Cuda(_) => {
            let built = call!(names::BUILD_CUDA, &device.0, &target.value)?;
            call!(names::MODULE_SOURCE, built, "cuda")?.as_text()?
        }
    };
    Ok(DeviceSource {
        text,
        launches,
        lower_ms: (lowered_at - start).as_secs_f64() * 1e3,
        codegen_ms: lowered_at.elapsed().as_secs_f64() * 1e3,
    })
}

fn lower_module(module: &Module, target: &CompileTarget, has_fragments: bool) -> Result<Module> {
    const INDEX_BITS: i64 = 32;
    const SHARED_MEMORIES: [&str; 3] = ["shared", "shared.dyn", "warp"];
    let mut module = run_pass(&call!(names::BIND_TARGET, &target.value)?, module)?;
    module = run_passes(FIRST, module)?;
    module = run_passes(BEFORE_COMPACTING, module)?;
    module = run_pass(&call!(names::COMPACT_BUFFER_ALLOCATION, true)?, &module)?;
    module = run_passes(AFTER_COMPACTING, module)?;
    if !has_fragments {
        module = run_pass(&call!(names::BF16_COMPUTE_LEGALIZE)?, &module)?;
    }
    module = run_pass(&call!(names::NARROW_DATA_TYPE, INDEX_BITS)?, &module)?;
    module = run_pass(&call!(names::LOOP_PARTITION)?, &module)?;
    module = run_pass(&call!(names::VECTORIZE_LOOP, true)?, &module)?;
    module = run_passes(BEFORE_STORAGE, module)?;
    if !has_fragments {
        module = run_pass(&call!(names::STORAGE_REWRITE)?, &module)?;
    }
    module = run_passes(AFTER_STORAGE, module)?;
    for memory in SHARED_MEMORIES {
        module = run_pass(&call!(names::THREAD_SYNC, memory)?, &module)?;
    }
    run_passes(AFTER_BARRIERS, module)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FunctionSide {
    Host,
    Device,
}

fn side_filter(side: FunctionSide) -> Result<Value> {
    let keep = Function::from_packed(move |arguments: &[AnyView]| {
        let function = arguments.first().map(|view| Value(Any::from(*view)));
        let function = function.ok_or_else(|| runtime_error("the filter was called without a function"))?;
        let is_kernel = is_kernel(&function).map_err(runtime_error)?;
        Ok(Any::from(is_kernel == (side == FunctionSide::Device)))
    });
    call!(names::FILTER, Value(Any::from(keep)))
}

fn is_kernel(function: &Value) -> Result<bool> {
    const KERNEL_LAUNCH: i64 = 2;
    let attributes = call!(names::FUNCTION_ATTRIBUTES, function)?;
    let attributes: Map<TvmString, Any> = call!(names::ATTRIBUTES_MAP, attributes)?.convert_to("map")?;
    let convention = attributes.get(&TvmString::from("calling_conv"));
    let convention = convention.map_err(|error| TvmError::new(names::ATTRIBUTES_MAP.text, error.message()))?;
    match convention {
        Some(number) => Ok(integer_of(&Value(number))? == KERNEL_LAUNCH),
        None => Ok(false),
    }
}

fn integer_of(value: &Value) -> Result<i64> {
    value.as_integer().or_else(|_| value.field("value")?.as_integer())
}

fn runtime_error(why: impl std::fmt::Display) -> Error {
    Error::new(tvm_ffi::RUNTIME_ERROR, &why.to_string(), "")
}

/// Registers the header of kernels, and operators for asynchronous copies, once per process. TVM has both only in its
/// Python package.
fn provide_headers() -> Result<()> {
    static PROVIDED: OnceLock<std::result::Result<(), TvmError>> = OnceLock::new();
    const HEADER: &str = "tirx.intrinsics.cuda.header_generator";
    const INTRINSIC: &str = "tirx.intrinsics.cuda.get_codegen";
    let register = |name: &str, function: Function| {
        Function::register_global(name, function).map_err(|error| TvmError::new(name, error.message()))
    };
    let intrinsic = |arguments: &[AnyView]| {
        let name = arguments.first().and_then(|view| view.try_as::<TvmString>());
        let name = name.ok_or_else(|| runtime_error("the operator has no name"))?;
        Ok(async_copy::operator_writer(name.as_str()).map_or_else(Any::new, Any::from))
    };
    let header = |arguments: &[AnyView]| {
        let tags = arguments.first().and_then(|view| view.try_as::<Array<TvmString>>());
        let tags = tags.ok_or_else(|| runtime_error("the header generator was called without a list of strings"))?;
        let tags = (0..tags.len()).map(|place| tags.get(place)).collect::<std::result::Result<Vec<_>, _>>()?;
        let text = cuda::write_header(tags.iter().map(|tag| tag.as_str())).map_err(runtime_error)?;
        Ok(Any::from(TvmString::from(text.as_str())))
    };
    PROVIDED
        .get_or_init(|| {
            register(HEADER, Function::from_packed(header))?;
            register(INTRINSIC, Function::from_packed(intrinsic))?;
            async_copy::register_operators()
        })
        .clone()
}
