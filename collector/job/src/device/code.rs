//! Device code with everything a launch needs: kernels, what they are called with, and what is known of them before
//! they ever run.

use super::count::Count;
use super::occupancy::Occupancy;
use reference::Rounding;
use serde::{Deserialize, Serialize};
use targets::{Architecture, BLOCK_REGISTERS, BLOCK_THREADS, STATIC_SHARED_BYTES};

/// The kernels of one task with the order of their launches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceCode {
    /// The generated CUDA C, or OpenCL C where there is no machine code.
    pub source: String,
    /// What is launched, in order.
    pub launches: Vec<Launch>,
    /// Bytes of each buffer that only kernels see.
    pub workspaces: Vec<Count>,
    /// Machine code, one for each architecture.
    pub cubins: Vec<Cubin>,
    /// What becomes of operands before they are multiplied; says how exact a result has to be.
    #[serde(default)]
    pub rounding: Rounding,
}

/// What the host does: the launches in order, and the buffers it provides for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launches {
    /// The launches in order.
    pub launches: Vec<Launch>,
    /// Bytes of each buffer that only kernels see.
    pub workspaces: Vec<Count>,
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Name of the kernel.
    pub kernel: String,
    /// Its arguments.
    pub arguments: Vec<Argument>,
    /// Blocks in x, y and z.
    pub grid: [Count; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Shared memory asked for at the launch, in bytes.
    pub dynamic_shared_bytes: u32,
}

/// What a kernel works on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Argument {
    /// A parameter of the task by its place; the output comes after the last one.
    Tensor(usize),
    /// A buffer that only kernels see.
    Workspace(usize),
    /// A whole number, of 32 or 64 bits.
    Number(Count),
}

/// Machine code for one architecture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cubin {
    /// What it was made for.
    pub architecture: Architecture,
    /// The release of CUDA whose compiler made it, such as `13.5`: a driver of an earlier major release refuses it.
    pub compiler: String,
    /// An ELF file.
    pub bytes: Vec<u8>,
    /// What the compiler tells of each kernel, in the order of the launches.
    pub kernels: Vec<Kernel>,
}

/// What is known of a kernel before it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Registers of each thread.
    pub registers: u32,
    /// Shared memory of a block, static and dynamic, in bytes.
    pub shared_bytes: u32,
    /// Stack of each thread, in bytes.
    pub stack_bytes: u32,
    /// Bytes written to memory because registers did not suffice.
    pub spill_store_bytes: u32,
    /// Bytes read back for that reason.
    pub spill_load_bytes: u32,
    /// Barriers in use.
    pub barriers: u32,
    /// Bytes of machine code.
    pub code_bytes: u64,
    /// Threads of a block.
    pub block_threads: u32,
    /// Blocks of the grid, where their number is the same at every call.
    #[serde(default)]
    pub grid_blocks: Option<u64>,
    /// How full a multiprocessor can get.
    pub occupancy: Occupancy,
}

/// Whether a compiler's release of CUDA is of a later major release than the driver's: such a driver refuses its code.
pub fn is_too_new(compiler: &str, driver: &str) -> bool {
    let major = |release: &str| release.split('.').next().and_then(|major| major.parse::<u32>().ok());
    major(compiler).zip(major(driver)).is_some_and(|(compiler, driver)| compiler > driver)
}

/// A launch that no device of an architecture takes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("kernel `{kernel}` needs {needed} {what}, {architecture} has {limit}")]
pub struct LimitExceeded {
    kernel: String,
    what: &'static str,
    needed: u64,
    limit: u64,
    architecture: Architecture,
}

impl Launch {
    /// Threads of a block.
    pub fn block_threads(&self) -> u64 {
        self.block.iter().fold(1, |product: u64, &extent| product.saturating_mul(u64::from(extent)))
    }

    /// Blocks in x, y and z, where their numbers are known; what is no number of blocks is none.
    pub fn known_grid(&self) -> Option<[u64; 3]> {
        let [x, y, z] = [0, 1, 2].map(|axis: usize| u64::try_from(self.grid[axis].known()?).ok().filter(|&n| n > 0));
        Some([x?, y?, z?])
    }

    /// Blocks of the grid, where their number is known.
    pub fn grid_blocks(&self) -> Option<u64> {
        self.known_grid().map(|grid| grid.iter().fold(1, |product: u64, &extent| product.saturating_mul(extent)))
    }

    /// Checks everything that is known before the kernel is compiled.
    pub fn check(&self, architecture: Architecture) -> Result<(), LimitExceeded> {
        const GRID_X: u32 = i32::MAX as u32;
        const GRID_YZ: u32 = u16::MAX as u32;
        const BLOCK_Z: u32 = 64;
        let shared = architecture.multiprocessor().block_shared_bytes;
        // What no number is known of is checked when it is.
        let grid =
            [0, 1, 2].map(|axis: usize| self.grid[axis].known().map_or(1, |n| u64::try_from(n).unwrap_or(u64::MAX)));
        let bounds = [
            ("threads in a block", self.block_threads(), u64::from(BLOCK_THREADS)),
            ("threads of a block in z", u64::from(self.block[2]), u64::from(BLOCK_Z)),
            ("blocks in x", grid[0], u64::from(GRID_X)),
            ("blocks in y", grid[1], u64::from(GRID_YZ)),
            ("blocks in z", grid[2], u64::from(GRID_YZ)),
            ("bytes of dynamic shared memory", u64::from(self.dynamic_shared_bytes), u64::from(shared)),
        ];
        bounds.into_iter().try_for_each(|(what, needed, limit)| self.within(what, needed, limit, architecture))
    }

    /// Checks what the compiler tells of the kernel.
    pub fn check_kernel(&self, kernel: &Kernel, architecture: Architecture) -> Result<(), LimitExceeded> {
        let registers = u64::from(kernel.registers).saturating_mul(self.block_threads());
        let fixed = kernel.shared_bytes.saturating_sub(self.dynamic_shared_bytes);
        let shared = architecture.multiprocessor().block_shared_bytes;
        self.within("registers in a block", registers, u64::from(BLOCK_REGISTERS), architecture)?;
        self.within("bytes of static shared memory", u64::from(fixed), u64::from(STATIC_SHARED_BYTES), architecture)?;
        self.within("bytes of shared memory", u64::from(kernel.shared_bytes), u64::from(shared), architecture)
    }

    fn within(
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
    /// Static features of all kernels together, by name: sums of what adds up, else the worst of any kernel.
    pub fn features(&self) -> Vec<(&'static str, f64)> {
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
    /// As a file holds it.
    pub fn to_bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("it is plain data")
    }

    /// What a file holds. It is checked before anything of it is launched.
    pub fn from_bytes(bytes: &[u8]) -> Result<DeviceCode, String> {
        postcard::from_bytes(bytes).map_err(|error| format!("this is no code for a device: {error}"))
    }

    /// The launches for tensors of these extents, the output's last: all numbers known and within the limits.
    pub fn at(&self, extents: &[Vec<i64>]) -> Result<Launches, String> {
        let known = |count: &Count| count.at(extents).map(Count::Known).map_err(|error| error.to_string());
        let launch = |launch: &Launch| -> Result<Launch, String> {
            let [x, y, z] = &launch.grid;
            let arguments = launch.arguments.iter().map(|argument| match argument {
                Argument::Number(count) => known(count).map(Argument::Number),
                buffer => Ok(buffer.clone()),
            });
            let arguments = arguments.collect::<Result<_, _>>()?;
            let launch = Launch { arguments, grid: [known(x)?, known(y)?, known(z)?], ..launch.clone() };
            if launch.known_grid().is_none() {
                return Err(format!("kernel `{}` would have no blocks", launch.kernel));
            }
            let checked = self.cubins.iter().try_for_each(|cubin| launch.check(cubin.architecture));
            checked.map(|()| launch).map_err(|error| error.to_string())
        };
        Ok(Launches {
            launches: self.launches.iter().map(launch).collect::<Result<_, _>>()?,
            workspaces: self.workspaces.iter().map(known).collect::<Result<_, _>>()?,
        })
    }

    /// Whether every launch names buffers and kernels that exist and fits its architectures.
    ///
    /// `tensors` counts the task's parameters and its output. Code that comes from a file is checked by this before
    /// anything is launched.
    pub fn check(&self, tensors: usize) -> Result<(), String> {
        for launch in &self.launches {
            for argument in &launch.arguments {
                let is_known = match argument {
                    Argument::Tensor(place) => *place < tensors,
                    Argument::Workspace(place) => *place < self.workspaces.len(),
                    Argument::Number(_) => true,
                };
                if !is_known {
                    let what = match argument {
                        Argument::Tensor(place) => format!("tensor {place} of {tensors}"),
                        Argument::Workspace(place) => format!("workspace {place} of {}", self.workspaces.len()),
                        Argument::Number(_) => "a number".to_owned(),
                    };
                    return Err(format!(
                        "kernel `{}` is called with a buffer that is not there: {what}",
                        launch.kernel
                    ));
                }
            }
        }
        for cubin in &self.cubins {
            for launch in &self.launches {
                let kernel = cubin.kernels.iter().find(|kernel| kernel.name == launch.kernel);
                let kernel =
                    kernel.ok_or_else(|| format!("{} code lacks kernel `{}`", cubin.architecture, launch.kernel))?;
                launch.check(cubin.architecture).map_err(|error| error.to_string())?;
                launch.check_kernel(kernel, cubin.architecture).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }
}
