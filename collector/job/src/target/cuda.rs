//! NVIDIA GPUs, through CUDA C and NVIDIA's own compiler.

use super::{Kind, Machine, Target, limits};
use crate::device::{Architecture, BLOCK_REGISTERS, BLOCK_THREADS, STATIC_SHARED_BYTES, WARP_THREADS};
use serde_json::{Value as Json, json};

/// Whether a text names a GPU: the word `cuda`, or a JSON description of that kind.
pub fn is_cuda(text: &str) -> bool {
    text == "cuda" || serde_json::from_str::<Json>(text).is_ok_and(|json| json["kind"] == "cuda")
}

/// The text of a target for these architectures.
pub fn cuda_text(architectures: &[String]) -> String {
    json!({ "kind": "cuda", "arch": architectures }).to_string()
}

/// The target of a JSON description, with the limits every architecture shares where it says none.
pub fn cuda(text: &str) -> Result<Target, String> {
    if text == "cuda" {
        return Err("the target `cuda` needs to know an architecture where there is no GPU; give `--arch`, such as \
                    `--arch sm_90`"
            .to_owned());
    }
    let mut fields: Json = serde_json::from_str(text).map_err(|error| format!("target `{text}`: {error}"))?;
    let mut found = architectures(&fields)?;
    found.sort();
    found.dedup();
    let names: Vec<String> = found.iter().map(ToString::to_string).collect();
    let object = fields.as_object_mut().ok_or_else(|| format!("target `{text}` is not a JSON object"))?;
    object.insert("arch".to_owned(), if let [only] = names.as_slice() { json!(only) } else { json!(names) });
    limits::complete(
        object,
        &[
            ("max_threads_per_block", BLOCK_THREADS),
            ("max_shared_memory_per_block", STATIC_SHARED_BYTES),
            ("thread_warp_size", WARP_THREADS),
            ("registers_per_block", BLOCK_REGISTERS),
        ],
    );
    let capability = found.iter().map(|architecture| architecture.number).min().unwrap_or(0);
    let machine = Machine::Gpu(limits::gpu(text, object, capability)?);
    Ok(Target { kind: Kind::Cuda, text: fields.to_string(), machine })
}

/// The architectures of a description: `arch` is one name or a list of names.
pub fn architectures(fields: &Json) -> Result<Vec<Architecture>, String> {
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
        Architecture::read(name).map_err(|error| error.to_string())
    };
    names.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::{cuda, cuda_text, is_cuda};

    #[test]
    fn a_description_is_completed_and_its_architectures_sorted() {
        let target = cuda(&cuda_text(&["sm_90".to_owned(), "sm_75".to_owned(), "sm_90".to_owned()])).unwrap();
        let fields: serde_json::Value = serde_json::from_str(&target.text).unwrap();
        assert_eq!(fields["arch"], serde_json::json!(["sm_75", "sm_90"]));
        assert_eq!(fields["max_threads_per_block"], 1024);
        assert!(is_cuda(&target.text) && is_cuda("cuda") && !is_cuda("llvm") && !is_cuda("{"));
    }

    #[test]
    fn a_wrong_description_says_what_is_wrong() {
        let refused = |text: &str| cuda(text).unwrap_err();
        assert!(refused(r#"{"kind": "cuda"}"#).contains("needs an architecture"));
        assert!(refused(r#"{"kind": "cuda", "arch": "volta"}"#).contains("`volta`"));
        assert!(refused(r#"{"kind": "cuda", "arch": 90}"#).contains("`90`"));
        assert!(refused(r#"{"kind": "cuda", "arch": "sm_90", "thread_warp_size": 0}"#).contains("thread_warp_size"));
    }
}
