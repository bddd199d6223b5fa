//! Named boards, and targets for the processors that agents report.

use crate::llvm::Llvm;
use crate::{Cpu, Machine, Target, llvm_target};
use serde_json::json;

pub const PYNQ: &str = "pynq";
pub(crate) const DEFAULT_BOARD: &str = "pynq-z1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Board {
    /// Name of the board, which is also the default key of the board's RPC server.
    pub name: &'static str,
    /// Architecture of the processor, in Rust's spelling.
    pub architecture: &'static str,
    mcpu: &'static str,
    pub cores: i64,
}

pub const BOARDS: &[Board] = &[
    Board { name: "pynq-z1", architecture: "arm", mcpu: "cortex-a9", cores: 2 },
    Board { name: "pynq-z2", architecture: "arm", mcpu: "cortex-a9", cores: 2 },
    Board { name: "ultra96", architecture: "aarch64", mcpu: "cortex-a53", cores: 4 },
    Board { name: "zcu104", architecture: "aarch64", mcpu: "cortex-a53", cores: 4 },
    Board { name: "kv260", architecture: "aarch64", mcpu: "cortex-a53", cores: 4 },
];

pub fn find_board(name: &str) -> Result<&'static Board, String> {
    BOARDS.iter().find(|board| board.name == name).ok_or_else(|| {
        let known: Vec<&str> = BOARDS.iter().map(|board| board.name).collect();
        format!("`{name}` is not a known board; {}", models::names::name_hint(name, known.into_iter()))
    })
}

impl Board {
    pub fn cpu_target(&self) -> Target {
        arm_target(self.architecture, self.mcpu, self.cores)
    }
}

/// Returns the target of a board's Arm processor. Unlike TVM's own targets, it has hardware floating point.
fn arm_target(architecture: &str, mcpu: &str, cores: i64) -> Target {
    // Both architectures have vectors of four floats; the older one has half as many vector registers.
    let (text, vector_registers) = match architecture {
        "arm" => {
            let triple = "armv7a-linux-gnueabihf";
            let text = json!({ "kind": "llvm", "mtriple": triple, "mcpu": mcpu, "mattr": ["+neon"], "mfloat-abi": "hard",
                "num-cores": cores });
            (text, 16)
        }
        _ => {
            let triple = "aarch64-linux-gnu";
            (json!({ "kind": "llvm", "mtriple": triple, "mcpu": mcpu, "num-cores": cores }), 32)
        }
    };
    let machine = Machine::Cpu(Cpu { vector_lanes: 4, vector_registers, cores, is_halved: false, is_intel: false });
    Target { kind: &Llvm, text: text.to_string(), machine }
}

/// Returns a target by architecture (Rust's spelling) and vector extensions; None for unknown architectures.
pub fn architecture_target(architecture: &str, features: &[String], cores: usize) -> Option<Target> {
    let has = |names: &[&str]| names.iter().all(|name| features.iter().any(|feature| feature == name));
    let count = i64::try_from(cores).unwrap_or(1);
    match architecture {
        "arm" => Some(arm_target("arm", "cortex-a9", count)),
        "aarch64" => Some(arm_target("aarch64", "cortex-a53", count)),
        "x86_64" => {
            let level = if has(&["avx512f", "avx512bw", "avx512vl", "fma"]) {
                "x86-64-v4"
            } else if has(&["avx2", "fma", "f16c"]) {
                "x86-64-v3"
            } else {
                "x86-64"
            };
            Some(llvm_target(level, features, cores))
        }
        _ => None,
    }
}

/// Returns the architecture that a target's description names, in Rust's spelling; without a triple, this machine's.
pub fn target_architecture(text: &str) -> String {
    let fields: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let triple = fields["mtriple"].as_str().unwrap_or(std::env::consts::ARCH);
    match triple.split('-').next().unwrap_or(triple) {
        first if first.starts_with("armv7") || first.starts_with("thumb") || first == "arm" => "arm".to_owned(),
        "arm64" => "aarch64".to_owned(),
        first => first.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{architecture_target, find_board, target_architecture};

    #[test]
    fn board_targets_match_linkable_ones() {
        let target = find_board("pynq-z1").unwrap().cpu_target();
        assert_eq!(
            target.text,
            r#"{"kind":"llvm","mattr":["+neon"],"mcpu":"cortex-a9","mfloat-abi":"hard","mtriple":"armv7a-linux-gnueabihf","num-cores":2}"#
        );
        assert_eq!(target_architecture(&target.text), "arm");
        assert_eq!(target_architecture(&find_board("ultra96").unwrap().cpu_target().text), "aarch64");
        assert_eq!(target_architecture("llvm"), std::env::consts::ARCH);
        assert!(find_board("pynq").unwrap_err().contains("pynq-z1"));
    }

    #[test]
    fn targets_follow_the_architecture() {
        let features: Vec<String> = ["avx2", "fma", "f16c"].map(str::to_owned).into();
        assert!(architecture_target("x86_64", &features, 2).unwrap().text.contains("x86-64-v3"));
        assert_eq!(target_architecture(&architecture_target("arm", &[], 2).unwrap().text), "arm");
        assert_eq!(architecture_target("riscv64", &[], 2), None);
    }
}
