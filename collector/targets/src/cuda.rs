//! `cuda`: NVIDIA GPUs, through CUDA C and NVIDIA's own compiler.

use crate::architecture::{Architecture, BLOCK_REGISTERS, BLOCK_THREADS, STATIC_SHARED_BYTES};
use crate::kind::{Generator, Host, HostCpu, OptionError, Refusal, Resolved, TargetKind, TargetOptions, TunerNeeds};
use crate::{Form, Machine, Target, limits};
use schedules::WARP_THREADS;
use serde_json::{Value as Json, json};

const CUDA: &str = "cuda";
const ARCHITECTURES_MAX: usize = 1024;

pub struct Cuda;

impl TargetKind for Cuda {
    fn name(&self) -> &'static str {
        CUDA
    }

    fn description_fields(&self) -> &'static [(&'static str, Form)] {
        &[
            ("arch", Form::Words),
            ("max_threads_per_block", Form::Number),
            ("max_shared_memory_per_block", Form::Number),
            ("thread_warp_size", Form::Number),
            ("registers_per_block", Form::Number),
        ]
    }

    fn apply_options(&self, text: String, mut options: TargetOptions) -> Result<String, OptionError> {
        options.refuse_board()?;
        if text == CUDA
            && let Some(names) = options.arch.take()
        {
            check_names(&names)?;
            return Ok(cuda_text(&names));
        }
        options.refuse_architectures()?;
        Ok(text)
    }

    fn parse(&self, text: &str) -> Result<Target, String> {
        parse_cuda(text)
    }

    fn resolve(&self, text: &str, host: &mut dyn Host) -> Result<Resolved, Refusal> {
        let own;
        let text = if text == CUDA {
            own = cuda_text(&[format!("sm_{}", host.gpu_capability()?)]);
            &own
        } else {
            text
        };
        let target = parse_cuda(text).map_err(Refusal::usage)?;
        let fields = serde_json::from_str(&target.text).unwrap_or_default();
        host.check_architectures(&parse_architectures(&fields).map_err(Refusal::usage)?)?;
        Ok(Resolved { target, is_host: false })
    }

    fn guess_machine(&self, text: &str, _host: &HostCpu) -> Result<Machine, String> {
        // The limits of a space are the same on all architectures.
        let any = cuda_text(&["sm_80".to_owned()]);
        Ok(parse_cuda(if text == CUDA { &any } else { text })?.machine)
    }

    fn read_record(&self, text: &str, _host: Machine) -> Option<Result<Target, String>> {
        Some(parse_cuda(text))
    }

    fn least_capability(&self) -> i64 {
        10
    }

    fn code_generator(&self) -> Option<Generator> {
        Some(Generator::CudaC)
    }

    fn runs_on_gpu(&self) -> bool {
        true
    }

    fn refuse_tuner(&self, tuner: &TunerNeeds) -> Option<String> {
        tuner.learns_cpu_loops.then(|| {
            format!(
                "`{}` learns from loops of CPU templates, so it does not support the target `cuda`; `draft`, \
                 `xgb_knob`, `ga`, `random`, `gridsearch` and `metaschedule` do",
                tuner.name
            )
        })
    }

    fn record_word(&self) -> datasets::Target {
        datasets::Target::Cuda
    }
}

fn check_names(names: &[String]) -> Result<(), OptionError> {
    let refuse = |found: String, allowed: &str| {
        Err(OptionError::NotAllowed { field: "arch", found, allowed: allowed.to_owned() })
    };
    match names.iter().find(|name| Architecture::parse_name(name).is_err()) {
        _ if names.is_empty() => refuse("empty".to_owned(), "give at least one"),
        _ if names.len() > ARCHITECTURES_MAX => refuse(format!("a list of {}", names.len()), "give at most 1024"),
        Some(name) => refuse(json!(name).to_string(), "write architectures like `sm_90`"),
        None => Ok(()),
    }
}

pub fn cuda_text(architectures: &[String]) -> String {
    json!({ "kind": "cuda", "arch": architectures }).to_string()
}

/// Parses a JSON description; missing limits get values that are valid on all architectures.
pub fn parse_cuda(text: &str) -> Result<Target, String> {
    if text == CUDA {
        return Err(
            "without a GPU on this machine, the target `cuda` needs an architecture; give `--arch`, such as `--arch \
             sm_90`"
                .to_owned(),
        );
    }
    let mut fields: Json = serde_json::from_str(text).map_err(|error| format!("target `{text}`: {error}"))?;
    let mut found = parse_architectures(&fields)?;
    found.sort();
    found.dedup();
    let names: Vec<String> = found.iter().map(ToString::to_string).collect();
    let object = fields.as_object_mut().ok_or_else(|| format!("target `{text}` is not a JSON object"))?;
    object.insert("arch".to_owned(), if let [only] = names.as_slice() { json!(only) } else { json!(names) });
    limits::add_limits(
        object,
        &[
            ("max_threads_per_block", BLOCK_THREADS),
            ("max_shared_memory_per_block", STATIC_SHARED_BYTES),
            ("thread_warp_size", WARP_THREADS),
            ("registers_per_block", BLOCK_REGISTERS),
        ],
    );
    let capability = found.iter().map(|architecture| architecture.number).min().unwrap_or(0);
    let machine = Machine::Gpu(limits::gpu_facts(text, object, capability)?);
    Ok(Target { kind: &Cuda, text: fields.to_string(), machine })
}

/// Parses the architectures of a description: `arch` is one name or a list of names.
pub fn parse_architectures(fields: &Json) -> Result<Vec<Architecture>, String> {
    let names: Vec<&Json> = match &fields["arch"] {
        Json::Null => Vec::new(),
        Json::Array(names) => names.iter().collect(),
        name => vec![name],
    };
    if names.is_empty() {
        return Err("a cuda target needs an architecture, such as `sm_90`".to_owned());
    }
    let read = |name: &Json| {
        let name = name.as_str().ok_or_else(|| format!("`{name}` is not the name of an architecture"))?;
        Architecture::parse_name(name).map_err(|error| error.to_string())
    };
    names.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::{Cuda, cuda_text, parse_cuda};
    use crate::TargetKind;

    #[test]
    fn a_description_is_completed_and_its_architectures_sorted() {
        let target = parse_cuda(&cuda_text(&["sm_90".to_owned(), "sm_75".to_owned(), "sm_90".to_owned()])).unwrap();
        let fields: serde_json::Value = serde_json::from_str(&target.text).unwrap();
        assert_eq!(fields["arch"], serde_json::json!(["sm_75", "sm_90"]));
        assert_eq!(fields["max_threads_per_block"], 1024);
        assert!([&*target.text, "cuda"].iter().all(|text| Cuda.is_named_by(text)));
        assert!(!["llvm", "{"].iter().any(|text| Cuda.is_named_by(text)));
    }

    #[test]
    fn invalid_descriptions_are_reported() {
        let refused = |text: &str| parse_cuda(text).unwrap_err();
        assert!(refused(r#"{"kind": "cuda"}"#).contains("needs an architecture"));
        assert!(refused(r#"{"kind": "cuda", "arch": "volta"}"#).contains("`volta`"));
        assert!(refused(r#"{"kind": "cuda", "arch": 90}"#).contains("`90`"));
        assert!(refused(r#"{"kind": "cuda", "arch": "sm_90", "thread_warp_size": 0}"#).contains("thread_warp_size"));
    }
}
