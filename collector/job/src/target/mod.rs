//! What code is made for: the text TVM understands and the facts a space needs.

mod board;
mod composite;
mod core;
mod cuda;
mod fields;
mod limits;
mod llvm;
mod mali;

pub use self::core::{Fabric, fabric, fabric_text, is_fabric};
pub use board::{BOARDS, Board, architecture, board, of_architecture};
pub use composite::{Composite, composite};
pub use cuda::{architectures, cuda, cuda_text, is_cuda};
pub use fields::checked;
pub use llvm::{described, is_llvm, llvm};
pub use mali::{MALI, is_mali, mali};
pub use schedules::{Cpu, Gpu};

use serde::{Deserialize, Serialize};
use std::fmt;

/// A target with the facts its spaces need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// What makes or has the code.
    pub kind: Kind,
    /// TVM's JSON description.
    pub text: String,
    /// What the machine offers.
    pub machine: Machine,
}

/// The kinds of targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Code for CPUs, through LLVM.
    Llvm,
    /// Code for GPUs, through NVRTC.
    Cuda,
    /// OpenCL C for Mali GPUs, which is compiled there and not here.
    Opencl,
    /// PyTorch's library, which compiles nothing.
    Torch,
    /// Programs for a core on a board's fabric, by our own generator.
    Pynq,
}

impl Kind {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Llvm => "llvm",
            Kind::Cuda => "cuda",
            Kind::Opencl => "opencl",
            Kind::Torch => "torch",
            Kind::Pynq => "pynq",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Facts of a machine that a space depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Machine {
    /// Cores with vectors.
    Cpu(Cpu),
    /// Blocks of threads.
    Gpu(Gpu),
    /// Products of blocks of bytes.
    Core(accelerator::Core),
}
