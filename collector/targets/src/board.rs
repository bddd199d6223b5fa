//! Boards that have names, and the processors that agents tell of.

use crate::llvm::Llvm;
use crate::{Cpu, Machine, Target, llvm};
use serde_json::json;

/// Name of the target for boards.
pub const PYNQ: &str = "pynq";
/// Board that is used if none is named.
pub(crate) const DEFAULT_BOARD: &str = "pynq-z1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Board {
    /// Its name, and the usual key of its server.
    pub name: &'static str,
    /// What Rust calls its processor's architecture.
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

pub fn board(name: &str) -> Result<&'static Board, String> {
    BOARDS.iter().find(|board| board.name == name).ok_or_else(|| {
        let known: Vec<&str> = BOARDS.iter().map(|board| board.name).collect();
        format!("`{name}` is no board; {}", models::names::hint(name, known.into_iter()))
    })
}

impl Board {
    /// What code for its processor is made for.
    pub fn target(&self) -> Target {
        arm(self.architecture, self.mcpu, self.cores)
    }
}

/// A processor of ARM's. The triple of TVM's own tags for boards is that of soft floats, which the boards' systems do not use.
fn arm(architecture: &str, mcpu: &str, cores: i64) -> Target {
    // Both have vectors of four floats; the older ones have half as many registers for them.
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

/// The processor of a machine that tells its architecture, as Rust names it, and its vector extensions; nothing of others.
pub fn of_architecture(architecture: &str, features: &[String], cores: usize) -> Option<Target> {
    let has = |names: &[&str]| names.iter().all(|name| features.iter().any(|feature| feature == name));
    let count = i64::try_from(cores).unwrap_or(1);
    match architecture {
        "arm" => Some(arm("arm", "cortex-a9", count)),
        "aarch64" => Some(arm("aarch64", "cortex-a53", count)),
        "x86_64" => {
            let level = if has(&["avx512f", "avx512bw", "avx512vl", "fma"]) {
                "x86-64-v4"
            } else if has(&["avx2", "fma", "f16c"]) {
                "x86-64-v3"
            } else {
                "x86-64"
            };
            Some(llvm(level, features, cores))
        }
        _ => None,
    }
}

/// The architecture of a target's text, as Rust names it; without a triple, this machine's.
pub fn architecture(text: &str) -> String {
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
    use super::{architecture, board, of_architecture};

    #[test]
    fn boards_have_the_targets_that_were_seen_to_link() {
        let target = board("pynq-z1").unwrap().target();
        assert_eq!(
            target.text,
            r#"{"kind":"llvm","mattr":["+neon"],"mcpu":"cortex-a9","mfloat-abi":"hard","mtriple":"armv7a-linux-gnueabihf","num-cores":2}"#
        );
        assert_eq!(architecture(&target.text), "arm");
        assert_eq!(architecture(&board("ultra96").unwrap().target().text), "aarch64");
        assert_eq!(architecture("llvm"), std::env::consts::ARCH);
        assert!(board("pynq").unwrap_err().contains("pynq-z1"));
    }

    #[test]
    fn a_machine_is_known_by_its_architecture() {
        let features: Vec<String> = ["avx2", "fma", "f16c"].map(str::to_owned).into();
        assert!(of_architecture("x86_64", &features, 2).unwrap().text.contains("x86-64-v3"));
        assert_eq!(architecture(&of_architecture("arm", &[], 2).unwrap().text), "arm");
        assert_eq!(of_architecture("riscv64", &[], 2), None);
    }
}
