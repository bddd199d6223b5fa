//! `llvm`: CPUs, through LLVM.

use crate::kind::{Generator, Host, HostCpu, Refusal, Resolved, TargetKind};
use crate::{Cpu, Form, Machine, Target};

pub const HOST: &str = "llvm";

pub struct Llvm;

impl TargetKind for Llvm {
    fn name(&self) -> &'static str {
        HOST
    }

    fn description_fields(&self) -> &'static [(&'static str, Form)] {
        use Form::{Flag, Number, Switches, Word};
        &[
            ("mcpu", Word),
            ("mtriple", Word),
            ("mattr", Switches),
            ("mfloat-abi", Word),
            ("mabi", Word),
            ("num-cores", Number),
            ("opt-level", Number),
            ("vector-width", Number),
            ("fast-math", Flag),
            ("fast-math-nnan", Flag),
            ("fast-math-ninf", Flag),
            ("fast-math-nsz", Flag),
            ("fast-math-arcp", Flag),
            ("fast-math-contract", Flag),
            ("fast-math-reassoc", Flag),
        ]
    }

    fn parse(&self, text: &str) -> Result<Target, String> {
        resolve_llvm(text, llvm_target("generic", &[], 1))
    }

    fn resolve(&self, text: &str, host: &mut dyn Host) -> Result<Resolved, Refusal> {
        let own = cpu_target(&host.host_cpu()?);
        let target = resolve_llvm(text, own.clone()).map_err(Refusal::usage)?;
        Ok(Resolved { is_host: target == own, target })
    }

    fn guess_machine(&self, text: &str, host: &HostCpu) -> Result<Machine, String> {
        resolve_llvm(text, cpu_target(host)).map(|target| target.machine)
    }

    fn read_record(&self, text: &str, host: Machine) -> Option<Result<Target, String>> {
        if !self.is_named_by(text) {
            return Some(Err("the target is of another kind".to_owned()));
        }
        let host = Target { kind: &Llvm, text: HOST.to_owned(), machine: host };
        Some(resolve_llvm(text, host).map(|target| Target { text: text.to_owned(), ..target }))
    }

    fn code_generator(&self) -> Option<Generator> {
        Some(Generator::Llvm)
    }

    fn runs_on_cpus(&self) -> bool {
        true
    }

    fn has_host_peaks(&self) -> bool {
        true
    }

    fn record_word(&self) -> datasets::Target {
        datasets::Target::Llvm
    }
}

pub(crate) fn cpu_target(host: &HostCpu) -> Target {
    llvm_target(&host.name, &host.extensions, host.cores)
}

/// Processors, by LLVM's names, that have all extensions of [`HIDEABLE`].
const FP16_CPUS: [&str; 5] = ["sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids"];

/// Extensions that hypervisors hide from virtual machines although the processor has them, with LLVM's attribute that
/// excludes them from generated code.
const HIDEABLE: [(&str, &str); 3] =
    [("avx512_fp16", "-avx512fp16"), ("avx512_bf16", "-avx512bf16"), ("avx_vnni", "-avxvnni")];

pub fn llvm_target(cpu: &str, features: &[String], cores: usize) -> Target {
    let has = |name: &str| features.iter().any(|feature| feature == name);
    let (vector_lanes, vector_registers) = match (has("avx512f"), has("avx2") || has("avx")) {
        (true, _) => (16, 32),
        (false, true) => (8, 16),
        // Arm's Advanced SIMD has 32 registers of 4 floats, SSE 16.
        (false, false) if has("asimd") || has("neon") => (4, 32),
        (false, false) => (4, 16),
    };
    let cores = i64::try_from(cores).unwrap_or(1);
    // Zen 4 has 512-bit instructions, but 256-bit units.
    let is_halved = cpu == "znver4" && vector_lanes == 16;
    let is_intel = vector_lanes == 16 && !cpu.starts_with("znver");
    let mut text = serde_json::json!({ "kind": "llvm", "mcpu": cpu, "num-cores": cores });
    let mut attributes = Vec::new();
    if is_intel {
        // By default, LLVM limits vectors to 256 bits there, because of the lower clock of early processors. With
        // 512-bit vectors, eight networks took 0.96 to 1.02 of the time, median 0.98, on cores with the instructions of
        // Sapphire Rapids.
        attributes.push("-prefer-256-bit");
    }
    if FP16_CPUS.contains(&cpu) {
        attributes.extend(HIDEABLE.iter().filter(|(name, _)| !has(name)).map(|(_, attribute)| *attribute));
    }
    if !attributes.is_empty() {
        text["mattr"] = attributes.into();
    }
    Target {
        kind: &Llvm,
        text: text.to_string(),
        machine: Machine::Cpu(Cpu { vector_lanes, vector_registers, cores, is_halved, is_intel }),
    }
}

/// Returns the host's target or a described one, whose numbers of cores and vector registers default to the host's.
fn resolve_llvm(text: &str, host: Target) -> Result<Target, String> {
    if text == HOST {
        return Ok(host);
    }
    let mut json = crate::parse_checked(text)?;
    let fields = json.as_object_mut().expect("the description was checked");
    let Machine::Cpu(own) = &host.machine else { return Ok(Target { text: json.to_string(), ..host }) };
    let cores = fields.entry("num-cores").or_insert_with(|| own.cores.into()).as_i64().unwrap_or(own.cores);
    let word = |name: &str| fields.get(name).and_then(serde_json::Value::as_str).unwrap_or_default();
    let features = match crate::target_architecture(text).as_str() {
        "aarch64" => Some("asimd"),
        "x86_64" => vector_feature(word("mcpu")),
        _ => None,
    };
    let cores = usize::try_from(cores).unwrap_or(1);
    let described = features.map(|feature| llvm_target(word("mcpu"), &[feature.to_owned()], cores).machine);
    Ok(Target { text: json.to_string(), machine: described.unwrap_or(host.machine), ..host })
}

/// Returns LLVM's name of the widest vector feature of an x86-64 processor; None for unknown names.
fn vector_feature(cpu: &str) -> Option<&'static str> {
    const AVX512: &str = "x86-64-v4 skylake-avx512 skx cascadelake cooperlake cannonlake icelake-client icelake-server rocketlake \
                          tigerlake sapphirerapids emeraldrapids graniterapids graniterapids-d diamondrapids znver4 znver5";
    const AVX: &str = "x86-64-v3 sandybridge ivybridge haswell broadwell skylake alderlake raptorlake meteorlake arrowlake \
                       arrowlake-s lunarlake pantherlake gracemont sierraforest grandridge clearwaterforest bdver1 bdver2 bdver3 \
                       bdver4 btver2 znver1 znver2 znver3";
    const SSE: &str = "x86-64 x86-64-v2 core2 penryn nehalem westmere silvermont goldmont tremont";
    let classes = [(AVX512, "avx512f"), (AVX, "avx2"), (SSE, "sse2")];
    classes.into_iter().find(|(names, _)| names.split_whitespace().any(|name| name == cpu)).map(|(_, feature)| feature)
}

#[cfg(test)]
mod tests {
    use super::{Llvm, llvm_target, resolve_llvm};
    use crate::{HostCpu, TargetKind};

    #[test]
    fn vectors_have_full_width_on_intel() {
        let text = |cpu, features: &str| {
            let features: Vec<String> = features.split(' ').map(str::to_owned).collect();
            llvm_target(cpu, &features, 2).text
        };
        assert_eq!(
            text("sapphirerapids", "avx512f avx512_fp16 avx512_bf16 avx_vnni"),
            r#"{"kind":"llvm","mattr":["-prefer-256-bit"],"mcpu":"sapphirerapids","num-cores":2}"#
        );
        assert_eq!(
            text("emeraldrapids", "avx512f avx512_bf16"),
            r#"{"kind":"llvm","mattr":["-prefer-256-bit","-avx512fp16","-avxvnni"],"mcpu":"emeraldrapids","num-cores":2}"#,
            "extensions that a virtual machine hides are not used"
        );
        assert_eq!(text("znver5", "avx512f"), r#"{"kind":"llvm","mcpu":"znver5","num-cores":2}"#);
        assert_eq!(text("haswell", "avx2"), r#"{"kind":"llvm","mcpu":"haswell","num-cores":2}"#);
    }

    #[test]
    fn a_description_wins_over_the_host() {
        let host = llvm_target("znver5", &["avx512f".to_owned()], 2);
        assert_eq!(resolve_llvm("llvm", host.clone()).unwrap(), host);
        let other = resolve_llvm(r#"{"kind": "llvm", "mcpu": "haswell"}"#, host.clone()).unwrap();
        assert_eq!(other.text, r#"{"kind":"llvm","mcpu":"haswell","num-cores":2}"#);
        assert_eq!(other.machine, llvm_target("haswell", &["avx2".to_owned()], 2).machine);
        let machine = |text: &str| resolve_llvm(text, host.clone()).unwrap().machine;
        assert_eq!(
            machine(r#"{"kind": "llvm", "mcpu": "x86-64", "num-cores": 8}"#),
            llvm_target("x86-64", &[], 8).machine
        );
        assert_eq!(
            machine(r#"{"kind": "llvm", "mcpu": "znver4"}"#),
            llvm_target("znver4", &["avx512f".to_owned()], 2).machine
        );
        let arm = r#"{"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}"#;
        assert_eq!(machine(arm), llvm_target("cortex-a72", &["asimd".to_owned()], 2).machine);
        // An unknown processor is assumed to equal the host's.
        assert_eq!(machine(r#"{"kind": "llvm", "mcpu": "znver99"}"#), host.machine);
        assert_eq!(machine(r#"{"kind": "llvm"}"#), host.machine);
        // Also before the compiler is asked, and for targets of records.
        let cpu = HostCpu { name: "znver".to_owned(), extensions: vec!["avx512f".to_owned()], cores: 2 };
        assert_eq!(Llvm.guess_machine(&other.text, &cpu), Ok(other.machine));
        assert_eq!(Llvm.read_record(&other.text, host.machine), Some(Ok(other.clone())));
        assert!(Llvm.is_named_by(&other.text));
        for foreign in [r#"{"kind": "cuda"}"#, "cuda", "{"] {
            assert!(!Llvm.is_named_by(foreign), "{foreign}");
        }
    }
}
