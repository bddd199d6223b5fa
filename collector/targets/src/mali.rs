//! `mali`: Mali GPUs, through OpenCL C. Kernels are only compiled; this program cannot run them.

use crate::kind::{Generator, Host, HostCpu, Refusal, Resolved, TargetKind, TunerNeeds};
use crate::{Form, Machine, Target, limits};
use serde_json::{Value as Json, json};

pub(crate) const MALI: &str = "mali";

/// Maximum work-items of a work-group on the smallest Mali GPUs with OpenCL, the Midgard family.
const GROUP_ITEMS: u32 = 256;
/// Local memory of a work-group on the smallest Mali GPUs with OpenCL, in bytes.
const LOCAL_BYTES: u32 = 32 << 10;

pub struct Mali;

impl TargetKind for Mali {
    fn name(&self) -> &'static str {
        MALI
    }

    fn code_name(&self) -> &'static str {
        "opencl"
    }

    fn description_fields(&self) -> &'static [(&'static str, Form)] {
        &[
            ("device", Form::Word),
            ("max_threads_per_block", Form::Number),
            ("max_shared_memory_per_block", Form::Number),
            ("thread_warp_size", Form::Number),
        ]
    }

    fn parse(&self, text: &str) -> Result<Target, String> {
        parse_mali(text)
    }

    fn resolve(&self, text: &str, _host: &mut dyn Host) -> Result<Resolved, Refusal> {
        Ok(Resolved { target: parse_mali(text).map_err(Refusal::usage)?, is_host: false })
    }

    fn guess_machine(&self, text: &str, _host: &HostCpu) -> Result<Machine, String> {
        Ok(parse_mali(text)?.machine)
    }

    fn code_generator(&self) -> Option<Generator> {
        Some(Generator::OpenclC)
    }

    fn run_refusal(&self) -> Option<Refusal> {
        Some(Refusal::usage("no Mali GPU is available, because this program only compiles kernels for it").with_hint(
            "`opcollect build --target mali --out FOLDER` writes the kernels; a board or a phone with an OpenCL driver \
             compiles and runs them",
        ))
    }

    fn refuse_tuner(&self, tuner: &TunerNeeds) -> Option<String> {
        Some(format!("the tuner `{}` needs measurements, but this program cannot run OpenCL kernels", tuner.name))
    }

    fn record_word(&self) -> datasets::Target {
        datasets::Target::Other
    }
}

fn mali_text() -> String {
    json!({ "kind": "opencl", "device": "mali" }).to_string()
}

/// Parses a description; limits default to those of every Mali GPU. Warp size is 1, as no threads run in lockstep.
pub fn parse_mali(text: &str) -> Result<Target, String> {
    let any = mali_text();
    let text = if text == MALI { &any } else { text };
    let mut fields: Json = serde_json::from_str(text).map_err(|error| format!("target `{text}`: {error}"))?;
    let object = fields.as_object_mut().ok_or_else(|| format!("target `{text}` is not a JSON object"))?;
    limits::add_limits(
        object,
        &[
            ("max_threads_per_block", GROUP_ITEMS),
            ("max_shared_memory_per_block", LOCAL_BYTES),
            ("thread_warp_size", 1),
        ],
    );
    let machine = Machine::Gpu(limits::gpu_facts(text, object, 0)?);
    Ok(Target { kind: &Mali, text: fields.to_string(), machine })
}

#[cfg(test)]
mod tests {
    use super::{Mali, parse_mali};
    use crate::{Gpu, Machine, TargetKind};

    #[test]
    fn a_description_is_completed() {
        let Machine::Gpu(Gpu { block_threads, shared_bytes, capability, .. }) = parse_mali("mali").unwrap().machine
        else {
            panic!("a GPU")
        };
        assert_eq!((block_threads, shared_bytes, capability), (256, 32 << 10, 0));
        let larger = parse_mali(r#"{"kind": "opencl", "device": "mali", "max_threads_per_block": 512}"#).unwrap();
        assert!(
            Mali.is_named_by(&larger.text) && matches!(larger.machine, Machine::Gpu(Gpu { block_threads: 512, .. }))
        );
        assert!(Mali.is_named_by("mali") && !Mali.is_named_by("opencl") && !Mali.is_named_by(r#"{"kind": "cuda"}"#));
    }

    #[test]
    fn invalid_descriptions_are_reported() {
        let refused = parse_mali(r#"{"kind": "opencl", "max_threads_per_block": -1}"#).unwrap_err();
        assert!(refused.contains("max_threads_per_block"), "{refused}");
    }
}
