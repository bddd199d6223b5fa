//! Targets: the machines for which code is generated, one file per kind; [`KINDS`] lists them.

mod architecture;
mod board;
mod composite;
mod cuda;
mod fields;
mod fpga;
mod kind;
mod limits;
mod llvm;
mod mali;
mod pynq;
mod torch;

pub use architecture::{
    Architecture, BLOCK_REGISTERS, BLOCK_THREADS, Multiprocessor, STATIC_SHARED_BYTES, UnknownArchitecture,
};
pub use board::{BOARDS, Board, PYNQ, architecture_target, find_board, target_architecture};
pub use composite::{Composite, parse_composite};
pub use cuda::{cuda_text, parse_architectures, parse_cuda};
pub use fields::{Form, parse_checked};
pub use fpga::{FPGA, Fabric, fabric_text, parse_fabric};
pub use kind::{
    BenchKind, Generator, Host, HostCpu, OptionError, Refusal, Resolved, Setting, TargetKind, TargetOptions, TaskForm,
    TunerNeeds,
};
pub use llvm::{HOST, llvm_target};
pub use mali::parse_mali;
pub use pynq::ARM;
pub use schedules::{Cpu, Gpu, WARP_THREADS};
pub use torch::torch_target;

use datasets::Record;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

pub type Kind = &'static dyn TargetKind;

/// All kinds of targets, in the order in which messages list them.
pub static KINDS: &[Kind] = &[&llvm::Llvm, &cuda::Cuda, &pynq::Pynq, &mali::Mali, &torch::Torch, &fpga::Fpga];

static CODE_NAMES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let is_first = |place: &usize| KINDS[..*place].iter().all(|before| before.code_name() != KINDS[*place].code_name());
    (0..KINDS.len()).filter(is_first).map(|place| KINDS[place].code_name()).collect()
});

pub fn find_kind(text: &str) -> Option<Kind> {
    KINDS.iter().copied().find(|kind| kind.is_named_by(text))
}

pub fn find_unit(target: &str, unit: Option<&str>) -> Option<Kind> {
    let named = find_kind(target)?;
    let of_unit = unit.and_then(kind_of_unit).filter(|kind| kind.record_word() == named.record_word());
    Some(of_unit.unwrap_or(named))
}

pub fn kind_of_unit(unit: &str) -> Option<Kind> {
    KINDS.iter().copied().find(|kind| kind.unit_name() == Some(unit))
}

/// Returns the kind of target that a record was measured on, or None if this program lacks the kind.
pub fn kind_of_record(record: &Record) -> Option<Kind> {
    let mut kinds = KINDS.iter().copied().filter(|kind| kind.record_word() == record.target);
    kinds.clone().find(|kind| kind.unit_name() == record.unit.as_deref()).or_else(|| kinds.next())
}

pub fn host_kind() -> Kind {
    &llvm::Llvm
}

pub fn library_kind() -> Kind {
    KINDS.iter().copied().find(|kind| kind.is_library()).expect("one kind is a library")
}

pub fn allowed_names() -> String {
    let words = KINDS.iter().filter(|kind| kind.has_word()).map(|kind| match kind.run_refusal() {
        None => format!("`{}`", kind.name()),
        Some(_) => format!("`{}` (only for `build`)", kind.name()),
    });
    format!("give {}, or TVM's JSON description of such a target", words.collect::<Vec<_>>().join(", "))
}

/// A target with the machine facts that its schedule spaces depend on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    #[serde(deserialize_with = "read_kind")]
    pub kind: Kind,
    /// JSON description of the target, in TVM's format if TVM generates the code.
    pub text: String,
    pub machine: Machine,
}

impl Target {
    /// Checks a target from a file: its text must belong to its kind, and its machine facts must be plausible.
    pub fn check(&self) -> Result<(), String> {
        let Target { kind, text, machine } = self;
        if !kind.is_named_by(text) || !kind.has_artifacts_for(machine) {
            return Err(format!("the target has the kind `{kind}`, but fields of another kind"));
        }
        machine.check_facts(kind.least_capability())
    }
}

fn read_kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Kind, D::Error> {
    let name = String::deserialize(deserializer)?;
    let found = KINDS.iter().copied().find(|kind| kind.code_name() == name);
    found.ok_or_else(|| serde::de::Error::unknown_variant(&name, &CODE_NAMES))
}

impl Serialize for dyn TargetKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code_name())
    }
}

impl PartialEq for dyn TargetKind {
    fn eq(&self, other: &dyn TargetKind) -> bool {
        self.name() == other.name()
    }
}

impl fmt::Debug for dyn TargetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for dyn TargetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code_name())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Machine {
    Cpu(Cpu),
    Gpu(Gpu),
    Core(accelerator::Core),
}

type Bound = (&'static str, i64, RangeInclusive<i64>);

impl Machine {
    fn check_facts(self, least_capability: i64) -> Result<(), String> {
        let bounds: Vec<Bound> = match self {
            Machine::Cpu(Cpu { vector_lanes, vector_registers, cores, is_halved: _, is_intel: _ }) => vec![
                ("vector_lanes", vector_lanes, 1..=1024),
                ("vector_registers", vector_registers, 1..=1024),
                ("cores", cores, 1..=65_536),
            ],
            Machine::Core(core) => return core.check_encodable().map_err(|error| error.to_string()),
            Machine::Gpu(Gpu { block_threads, shared_bytes, warp_threads, capability }) => vec![
                ("block_threads", block_threads, 32..=65_536),
                ("shared_bytes", shared_bytes, 1024..=1 << 30),
                ("warp_threads", warp_threads, 1..=1024),
                ("capability", capability.into(), least_capability..=9999),
            ],
        };
        match bounds.iter().find(|(_, value, allowed)| !allowed.contains(value)) {
            Some((name, value, allowed)) => Err(format!("the target's `{name}` is {value}; allowed are {allowed:?}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    #[test]
    fn records_identify_their_kind() {
        let kind = |target, unit: Option<&str>| {
            let record = Record { target, unit: unit.map(str::to_owned), ..Record::default() };
            kind_of_record(&record).map(|kind| (kind.name(), kind.code_name()))
        };
        assert_eq!(kind(datasets::Target::Llvm, None), Some(("llvm", "llvm")));
        assert_eq!(kind(datasets::Target::Pynq, Some("arm")), Some(("pynq", "llvm")));
        assert_eq!(kind(datasets::Target::Pynq, None), Some(("pynq", "llvm")));
        assert_eq!(kind(datasets::Target::Pynq, Some("fpga")), Some(("fpga", "pynq")));
        assert_eq!(kind(datasets::Target::Other, None), Some(("mali", "opencl")));
        assert_eq!(kind(datasets::Target::Torch, None), Some(("torch", "torch")));
        assert_eq!(kind(datasets::Target::Tpu, None), None);
    }

    #[test]
    fn kinds_are_found_by_target_and_unit() {
        let kind = |target: &str, unit| find_unit(target, unit).map(|kind| kind.name());
        assert_eq!(kind("pynq", None), Some("pynq"));
        assert_eq!(kind("pynq", Some("fpga")), Some("fpga"));
        assert_eq!(kind("pynq", Some("mali")), Some("pynq"));
        assert_eq!(kind("llvm", Some("fpga")), Some("llvm"));
        assert_eq!(kind(&fabric_text(None, None, None).unwrap(), None), Some("fpga"));
        for unknown in ["torch", "fpga", "opencl", "cpu-vendor, llvm", r#"{"kind": "metal"}"#] {
            assert_eq!(kind(unknown, None), None, "{unknown}");
        }
    }

    #[track_caller]
    fn check_read(json: &str, expected: Expect) {
        let read: Result<Target, _> = serde_json::from_str(json);
        let checked = read.map_err(|error| error.to_string()).and_then(|target| target.check());
        expected.assert_eq(&checked.map_or_else(|why| why, |()| "sound".to_owned()));
    }

    #[test]
    fn targets_of_files_are_checked() {
        let cpu = r#"{"cpu": {"vector_lanes": 8, "vector_registers": 16, "cores": 2}}"#;
        let target = |kind: &str, text: &str, machine: &str| {
            format!(r#"{{"kind": "{kind}", "text": {}, "machine": {machine}}}"#, serde_json::json!(text))
        };
        check_read(&target("llvm", r#"{"kind": "llvm"}"#, cpu), expect!["sound"]);
        check_read(
            &target("cuda", r#"{"kind": "cuda"}"#, cpu),
            expect!["the target has the kind `cuda`, but fields of another kind"],
        );
        check_read(
            &target("opencl", r#"{"kind": "llvm"}"#, cpu),
            expect!["the target has the kind `opencl`, but fields of another kind"],
        );
        check_read(
            &target("llvm", "llvm", &cpu.replace("16", "0")),
            expect!["the target's `vector_registers` is 0; allowed are 1..=1024"],
        );
        check_read(
            &target("metal", "metal", cpu),
            expect![
                "unknown variant `metal`, expected one of `llvm`, `cuda`, `opencl`, `torch`, `pynq` at line 1 column 16"
            ],
        );
        let target = parse_mali("mali").unwrap();
        assert_eq!(serde_json::to_value(&target).unwrap()["kind"], "opencl");
    }

    #[test]
    fn allowed_names_are_those_of_the_kinds() {
        expect!["give `llvm`, `cuda`, `pynq`, `mali` (only for `build`), or TVM's JSON description of such a target"]
            .assert_eq(&allowed_names());
    }
}
