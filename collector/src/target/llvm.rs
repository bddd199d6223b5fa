//! CPUs, through LLVM.

use super::{Machine, Target};

/// The target of a CPU by its LLVM name, the features it reports and the cores to be used.
pub fn llvm(cpu: &str, features: &[String], cores: usize) -> Target {
    let has = |name: &str| features.iter().any(|feature| feature == name);
    let (vector_lanes, vector_registers) = match (has("avx512f"), has("avx2") || has("avx")) {
        (true, _) => (16, 32),
        (false, true) => (8, 16),
        // Arm's Advanced SIMD has 32 registers of 4 floats, SSE 16.
        (false, false) if has("asimd") || has("neon") => (4, 32),
        (false, false) => (4, 16),
    };
    let cores = i64::try_from(cores).unwrap_or(1);
    let text = serde_json::json!({ "kind": "llvm", "mcpu": cpu, "num-cores": cores }).to_string();
    Target { kind: "llvm".to_owned(), text, machine: Machine { vector_lanes, vector_registers, cores } }
}
