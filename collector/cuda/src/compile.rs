//! Compiles CUDA C to device code, and checks the code against the limits of the architectures.

use super::cubin::{self, CubinError};
use super::log::parse_resources;
use super::nvrtc::{Nvrtc, NvrtcError};
use job::device::{Architecture, Cubin, DeviceCode, Kernel, Launches, LimitExceeded, kernel_occupancy};
use reference::Rounding;

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum CompileError {
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    #[error(transparent)]
    Nvrtc(#[from] NvrtcError),
    #[error(transparent)]
    Cubin(#[from] CubinError),
    #[error("the CUDA compiler's output has no resource usage for kernel `{0}`")]
    Unnamed(String),
}

/// Compiles CUDA C for every architecture. Checks limits of launches before compilation, limits of kernels after it.
pub fn compile_source(
    nvrtc: &Nvrtc,
    source: &str,
    launches: Launches,
    architectures: &[Architecture],
) -> Result<DeviceCode, CompileError> {
    for &architecture in architectures {
        launches.launches.iter().try_for_each(|launch| launch.check_launch(architecture))?;
    }
    let mut code = DeviceCode {
        source: source.to_owned(),
        launches: launches.launches,
        workspaces: launches.workspaces,
        cubins: Vec::new(),
        rounding: Rounding::None,
    };
    for &architecture in architectures {
        let cubin = compile_for(nvrtc, &code, architecture)?;
        code.cubins.push(cubin);
    }
    Ok(code)
}

fn compile_for(nvrtc: &Nvrtc, code: &DeviceCode, architecture: Architecture) -> Result<Cubin, CompileError> {
    let compiled = nvrtc.compile_source(&code.source, architecture)?;
    let sections = cubin::kernel_sizes(&compiled.cubin)?;
    let mut kernels = Vec::with_capacity(code.launches.len());
    for launch in &code.launches {
        let unnamed = || CompileError::Unnamed(launch.kernel.clone());
        let resources = parse_resources(&compiled.log, &launch.kernel).ok_or_else(unnamed)?;
        let (_, code_bytes) = sections.iter().find(|(name, _)| *name == launch.kernel).ok_or_else(unnamed)?;
        let block_threads = u32::try_from(launch.block_threads()).expect("a block was checked to be small");
        let shared_bytes = resources.shared_bytes + launch.dynamic_shared_bytes;
        let kernel = Kernel {
            name: launch.kernel.clone(),
            registers: resources.registers,
            shared_bytes,
            stack_bytes: resources.stack_bytes,
            spill_store_bytes: resources.spill_store_bytes,
            spill_load_bytes: resources.spill_load_bytes,
            barriers: resources.barriers,
            code_bytes: *code_bytes,
            block_threads,
            grid_blocks: launch.grid_blocks(),
            occupancy: kernel_occupancy(architecture, block_threads, resources.registers, shared_bytes),
        };
        launch.check_kernel(&kernel, architecture)?;
        kernels.push(kernel);
    }
    Ok(Cubin { architecture, compiler: nvrtc.version_text(), bytes: compiled.cubin, kernels })
}
