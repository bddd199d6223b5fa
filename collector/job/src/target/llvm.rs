//! CPUs, through LLVM.

use super::{Cpu, Kind, Machine, Target};

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
    // Zen 4 has the instructions of 512 bits and units of 256.
    let is_halved = cpu == "znver4" && vector_lanes == 16;
    let is_intel = vector_lanes == 16 && !cpu.starts_with("znver");
    let mut text = serde_json::json!({ "kind": "llvm", "mcpu": cpu, "num-cores": cores });
    if is_intel {
        // By itself LLVM makes vectors of half the width there, for the sake of the clock of early ones: with whole ones
        // eight networks took 0.96 to 1.02 of that on cores with the instructions of Sapphire Rapids, 0.98 in the middle.
        text["mattr"] = serde_json::json!(["-prefer-256-bit"]);
    }
    Target {
        kind: Kind::Llvm,
        text: text.to_string(),
        machine: Machine::Cpu(Cpu { vector_lanes, vector_registers, cores, is_halved, is_intel }),
    }
}

/// Whether a text names an llvm target: the word, or a JSON description of that kind.
pub fn is_llvm(text: &str) -> bool {
    let kind = |json: serde_json::Value| json.get("kind").and_then(|kind| kind.as_str()).map(|kind| kind == "llvm");
    text == "llvm" || serde_json::from_str(text).ok().and_then(kind).unwrap_or(false)
}

/// The host's target, or the one a JSON description says, with the host's number of cores where it says none.
pub fn described(text: &str, host: Target) -> Result<Target, String> {
    if text == "llvm" {
        return Ok(host);
    }
    let mut json: serde_json::Value =
        serde_json::from_str(text).map_err(|error| format!("target `{text}`: {error}"))?;
    let fields = json.as_object_mut().ok_or_else(|| format!("target `{text}` is not a JSON object"))?;
    if let Machine::Cpu(cpu) = &host.machine {
        fields.entry("num-cores").or_insert_with(|| cpu.cores.into());
    }
    Ok(Target { text: json.to_string(), ..host })
}

#[cfg(test)]
mod tests {
    use super::{described, is_llvm, llvm};

    #[test]
    fn vectors_are_whole_on_intels() {
        let text = |cpu, feature: &str| llvm(cpu, &[feature.to_owned()], 2).text;
        assert_eq!(
            text("sapphirerapids", "avx512f"),
            r#"{"kind":"llvm","mattr":["-prefer-256-bit"],"mcpu":"sapphirerapids","num-cores":2}"#
        );
        assert_eq!(text("znver5", "avx512f"), r#"{"kind":"llvm","mcpu":"znver5","num-cores":2}"#);
        assert_eq!(text("haswell", "avx2"), r#"{"kind":"llvm","mcpu":"haswell","num-cores":2}"#);
    }

    #[test]
    fn a_description_wins_over_the_host() {
        let host = llvm("znver5", &["avx512f".to_owned()], 2);
        assert_eq!(described("llvm", host.clone()).unwrap(), host);
        let other = described(r#"{"kind": "llvm", "mcpu": "haswell"}"#, host.clone()).unwrap();
        assert_eq!(other.text, r#"{"kind":"llvm","mcpu":"haswell","num-cores":2}"#);
        assert_eq!(other.machine, host.machine);
        assert!(is_llvm(&other.text) && !is_llvm(r#"{"kind": "cuda"}"#) && !is_llvm("cuda") && !is_llvm("{"));
    }
}
