//! `torch`: PyTorch's library, which computes tasks on CPUs and compiles nothing.

use crate::kind::{Host, HostCpu, Refusal, Resolved, TargetKind, TunerNeeds};
use crate::llvm::cpu_target;
use crate::{Machine, Target};

/// Target kind of a library on CPUs, selected by `--backend torch` and by partners.
pub struct Torch;

impl TargetKind for Torch {
    fn name(&self) -> &'static str {
        "torch"
    }

    fn has_word(&self) -> bool {
        false
    }

    fn parse(&self, text: &str) -> Result<Target, String> {
        Err(format!("target `{text}` is a library, for which no code is compiled"))
    }

    fn resolve(&self, text: &str, _host: &mut dyn Host) -> Result<Resolved, Refusal> {
        self.parse(text).map(|target| Resolved { target, is_host: false }).map_err(Refusal::usage)
    }

    fn guess_machine(&self, _text: &str, host: &HostCpu) -> Result<Machine, String> {
        Ok(cpu_target(host).machine)
    }

    fn read_record(&self, text: &str, host: Machine) -> Option<Result<Target, String>> {
        Some(Ok(Target { kind: &Torch, text: text.to_owned(), machine: host }))
    }

    fn is_library(&self) -> bool {
        true
    }

    fn has_host_peaks(&self) -> bool {
        true
    }

    fn refuse_tuner(&self, tuner: &TunerNeeds) -> Option<String> {
        Some(format!("`{}` searches schedules, but a library has none", tuner.name))
    }

    fn record_word(&self) -> datasets::Target {
        datasets::Target::Torch
    }
}

pub fn torch_target(version: Option<&str>, host: &HostCpu) -> Target {
    let text = serde_json::json!({ "kind": "torch", "version": version }).to_string();
    Target { kind: &Torch, text, machine: cpu_target(host).machine }
}
