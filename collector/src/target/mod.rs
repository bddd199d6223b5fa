//! What code is made for: the text TVM understands and the facts a space needs.

mod composite;
mod llvm;

pub use composite::{Composite, composite};
pub use llvm::{described, is_llvm, llvm};

use serde::{Deserialize, Serialize};

/// A target with the facts its spaces need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// `llvm`, `cuda` or `pynq`.
    pub kind: String,
    /// TVM's JSON description.
    pub text: String,
    /// What the machine offers.
    pub machine: Machine,
}

/// Facts of a machine that a space depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// 32-bit floats in one vector.
    pub vector_lanes: i64,
    /// Vector registers.
    pub vector_registers: i64,
    /// Cores that may work at once.
    pub cores: i64,
}
