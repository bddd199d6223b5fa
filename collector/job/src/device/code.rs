//! Device code: kernels, their launches, and properties of kernels that are known before a run.

use super::count::Count;
use super::occupancy::Occupancy;
use reference::Rounding;
use serde::{Deserialize, Serialize};
use targets::{Architecture, BLOCK_REGISTERS, BLOCK_THREADS, STATIC_SHARED_BYTES};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceCode {
    /// Generated CUDA C, or OpenCL C for targets without cubins.
    pub source: String,
    pub launches: Vec<Launch>,
    /// Sizes in bytes of intermediate buffers.
    pub workspaces: Vec<Count>,
    pub cubins: Vec<Cubin>,
    /// Rounding of operands before multiplication, which determines the tolerance of the result.
    #[serde(default)]
    pub rounding: Rounding,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launches {
    pub launches: Vec<Launch>,
    /// Sizes in bytes of intermediate buffers.
    pub workspaces: Vec<Count>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    pub kernel: String,
    pub arguments: Vec<Argument>,
    pub grid: [Count; 3],
    pub block: [u32; 3],
    pub dynamic_shared_bytes: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Argument {
    /// Buffer of a task parameter, by index; the index after the last parameter is the output.
    Tensor(usize),
    Workspace(usize),
    Number(Count),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cubin {
    pub architecture: Architecture,
    /// Version of the CUDA compiler, such as `13.5`. Drivers of an earlier major version reject the code.
    pub compiler: String,
    pub bytes: Vec<u8>,
    /// Kernels, in launch order.
    pub kernels: Vec<Kernel>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    pub name: String,
    pub registers: u32,
    /// Shared memory per block, static and dynamic, in bytes.
    pub shared_bytes: u32,
    /// Stack per thread, in bytes.
    pub stack_bytes: u32,
    pub spill_store_bytes: u32,
    pub spill_load_bytes: u32,
    pub barriers: u32,
    pub code_bytes: u64,
    pub block_threads: u32,
    /// Number of blocks of the grid; None if the number depends on the call's tensor extents.
    #[serde(default)]
    pub grid_blocks: Option<u64>,
    pub occupancy: Occupancy,
}

/// Returns whether the CUDA compiler has a later major version than the driver, which then rejects its code.
pub fn is_too_new(compiler: &str, driver: &str) -> bool {
    let major = |release: &str| release.split('.').next().and_then(|major| major.parse::<u32>().ok());
    major(compiler).zip(major(driver)).is_some_and(|(compiler, driver)| compiler > driver)
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel `{kernel}` needs {needed} {what}, but the limit of {architecture} is {limit}")]
pub struct LimitExceeded {
    kernel: String,
    what: &'static str,
    needed: u64,
    limit: u64,
    architecture: Architecture,
}

impl Launch {
    pub fn block_threads(&self) -> u64 {
        self.block.iter().fold(1, |product: u64, &extent| product.saturating_mul(u64::from(extent)))
    }

    /// Returns the number of blocks in x, y and z; None if one depends on the call's tensor extents or is out of range.
    pub fn known_grid(&self) -> Option<[u64; 3]> {
        let [x, y, z] =
            [0, 1, 2].map(|axis: usize| u64::try_from(self.grid[axis].known_value()?).ok().filter(|&n| n > 0));
        Some([x?, y?, z?])
    }

    pub fn grid_blocks(&self) -> Option<u64> {
        self.known_grid().map(|grid| grid.iter().fold(1, |product: u64, &extent| product.saturating_mul(extent)))
    }

    pub fn check_launch(&self, architecture: Architecture) -> Result<(), LimitExceeded> {
        const GRID_X: u32 = i32::MAX as u32;
        const GRID_YZ: u32 = u16::MAX as u32;
        const BLOCK_Z: u32 = 64;
        let shared = architecture.multiprocessor().block_shared_bytes;
        // Sizes that depend on the call are checked at the call.
        let grid = [0, 1, 2]
            .map(|axis: usize| self.grid[axis].known_value().map_or(1, |n| u64::try_from(n).unwrap_or(u64::MAX)));
        let bounds = [
            ("threads in a block", self.block_threads(), u64::from(BLOCK_THREADS)),
            ("threads of a block in z", u64::from(self.block[2]), u64::from(BLOCK_Z)),
            ("blocks in x", grid[0], u64::from(GRID_X)),
            ("blocks in y", grid[1], u64::from(GRID_YZ)),
            ("blocks in z", grid[2], u64::from(GRID_YZ)),
            ("bytes of dynamic shared memory", u64::from(self.dynamic_shared_bytes), u64::from(shared)),
        ];
        bounds.into_iter().try_for_each(|(what, needed, limit)| self.check_limit(what, needed, limit, architecture))
    }

    pub fn check_kernel(&self, kernel: &Kernel, architecture: Architecture) -> Result<(), LimitExceeded> {
        let registers = u64::from(kernel.registers).saturating_mul(self.block_threads());
        let fixed = kernel.shared_bytes.saturating_sub(self.dynamic_shared_bytes);
        let shared = architecture.multiprocessor().block_shared_bytes;
        self.check_limit("registers in a block", registers, u64::from(BLOCK_REGISTERS), architecture)?;
        self.check_limit(
            "bytes of static shared memory",
            u64::from(fixed),
            u64::from(STATIC_SHARED_BYTES),
            architecture,
        )?;
        self.check_limit("bytes of shared memory", u64::from(kernel.shared_bytes), u64::from(shared), architecture)
    }

    fn check_limit(
        &self,
        what: &'static str,
        needed: u64,
        limit: u64,
        architecture: Architecture,
    ) -> Result<(), LimitExceeded> {
        if needed <= limit {
            return Ok(());
        }
        Err(LimitExceeded { kernel: self.kernel.clone(), what, needed, limit, architecture })
    }
}

impl Cubin {
    /// Returns static features by name: sums over kernels for additive features, else the worst kernel's value.
    pub fn static_features(&self) -> Vec<(&'static str, f64)> {
        let all = |of: fn(&Kernel) -> f64| self.kernels.iter().map(of);
        let most = |of: fn(&Kernel) -> f64| all(of).fold(0.0, f64::max);
        let grids: Option<Vec<u64>> = self.kernels.iter().map(|kernel| kernel.grid_blocks).collect();
        let mut features = vec![
            ("object_bytes", self.bytes.len() as f64),
            ("kernels", self.kernels.len() as f64),
            ("registers_max", most(|kernel| f64::from(kernel.registers))),
            ("shared_bytes_max", most(|kernel| f64::from(kernel.shared_bytes))),
            ("stack_bytes_max", most(|kernel| f64::from(kernel.stack_bytes))),
            ("spill_store_bytes", all(|kernel| f64::from(kernel.spill_store_bytes)).sum()),
            ("spill_load_bytes", all(|kernel| f64::from(kernel.spill_load_bytes)).sum()),
            ("barriers_max", most(|kernel| f64::from(kernel.barriers))),
            ("block_threads_max", most(|kernel| f64::from(kernel.block_threads))),
            ("occupancy_min", all(|kernel| kernel.occupancy.part).fold(1.0, f64::min)),
        ];
        features.extend(grids.map(|grids| ("grid_blocks_max", grids.into_iter().max().unwrap_or(0) as f64)));
        features
    }
}

impl DeviceCode {
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("it is plain data")
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<DeviceCode, String> {
        postcard::from_bytes(bytes).map_err(|error| format!("not valid device code: {error}"))
    }

    /// Evaluates and checks all sizes in the launches; `extents`: of all parameters, then of the output.
    pub fn resolve_launches(&self, extents: &[Vec<i64>]) -> Result<Launches, String> {
        let known = |count: &Count| count.evaluate_at(extents).map(Count::Known).map_err(|error| error.to_string());
        let launch = |launch: &Launch| -> Result<Launch, String> {
            let [x, y, z] = &launch.grid;
            let arguments = launch.arguments.iter().map(|argument| match argument {
                Argument::Number(count) => known(count).map(Argument::Number),
                buffer => Ok(buffer.clone()),
            });
            let arguments = arguments.collect::<Result<_, _>>()?;
            let launch = Launch { arguments, grid: [known(x)?, known(y)?, known(z)?], ..launch.clone() };
            if launch.known_grid().is_none() {
                return Err(format!("the grid of kernel `{}` has no blocks", launch.kernel));
            }
            let checked = self.cubins.iter().try_for_each(|cubin| launch.check_launch(cubin.architecture));
            checked.map(|()| launch).map_err(|error| error.to_string())
        };
        Ok(Launches {
            launches: self.launches.iter().map(launch).collect::<Result<_, _>>()?,
            workspaces: self.workspaces.iter().map(known).collect::<Result<_, _>>()?,
        })
    }

    /// Checks untrusted launches: buffers and kernels exist, limits hold. `tensors`: number of parameters and outputs.
    pub fn check_launches(&self, tensors: usize) -> Result<(), String> {
        for launch in &self.launches {
            for argument in &launch.arguments {
                let is_known = match argument {
                    Argument::Tensor(place) => *place < tensors,
                    Argument::Workspace(place) => *place < self.workspaces.len(),
                    Argument::Number(_) => true,
                };
                if !is_known {
                    let what = match argument {
                        Argument::Tensor(place) => format!("tensor {place} of only {tensors}"),
                        Argument::Workspace(place) => format!("workspace {place} of only {}", self.workspaces.len()),
                        Argument::Number(_) => "a number".to_owned(),
                    };
                    return Err(format!(
                        "an argument of kernel `{}` refers to a missing buffer: {what}",
                        launch.kernel
                    ));
                }
            }
        }
        for cubin in &self.cubins {
            for launch in &self.launches {
                let kernel = cubin.kernels.iter().find(|kernel| kernel.name == launch.kernel);
                let kernel = kernel.ok_or_else(|| {
                    format!("the machine code for {} lacks kernel `{}`", cubin.architecture, launch.kernel)
                })?;
                launch.check_launch(cubin.architecture).map_err(|error| error.to_string())?;
                launch.check_kernel(kernel, cubin.architecture).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }
}
