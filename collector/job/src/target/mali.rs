//! Mali GPUs, through OpenCL C: compiled for, and run by nothing here.

use super::{Kind, Machine, Target, limits};
use serde_json::{Value as Json, json};

/// The word for [`mali_text`].
pub const MALI: &str = "mali";

/// Work-items of one group on the least of the Mali GPUs that know OpenCL, those of the Midgard family.
const GROUP_ITEMS: u32 = 256;
/// Bytes of local memory of one group there.
const LOCAL_BYTES: u32 = 32 << 10;

/// Whether a text names a Mali GPU: the word, or a JSON description of an OpenCL device.
pub fn is_mali(text: &str) -> bool {
    text == MALI || serde_json::from_str::<Json>(text).is_ok_and(|json| json["kind"] == "opencl")
}

/// The text of a target for any Mali GPU.
fn mali_text() -> String {
    json!({ "kind": "opencl", "device": "mali" }).to_string()
}

/// The target of a description, with the limits every such GPU has where it says none. Nothing there goes in step.
pub fn mali(text: &str) -> Result<Target, String> {
    let any = mali_text();
    let text = if text == MALI { &any } else { text };
    let mut fields: Json = serde_json::from_str(text).map_err(|error| format!("target `{text}`: {error}"))?;
    let object = fields.as_object_mut().ok_or_else(|| format!("target `{text}` is not a JSON object"))?;
    limits::complete(
        object,
        &[
            ("max_threads_per_block", GROUP_ITEMS),
            ("max_shared_memory_per_block", LOCAL_BYTES),
            ("thread_warp_size", 1),
        ],
    );
    let machine = Machine::Gpu(limits::gpu(text, object, 0)?);
    Ok(Target { kind: Kind::Opencl, text: fields.to_string(), machine })
}

#[cfg(test)]
mod tests {
    use super::{is_mali, mali};
    use crate::target::{Gpu, Machine};

    #[test]
    fn a_description_is_completed() {
        let Machine::Gpu(Gpu { block_threads, shared_bytes, capability, .. }) = mali("mali").unwrap().machine else {
            panic!("a GPU")
        };
        assert_eq!((block_threads, shared_bytes, capability), (256, 32 << 10, 0));
        let larger = mali(r#"{"kind": "opencl", "device": "mali", "max_threads_per_block": 512}"#).unwrap();
        assert!(is_mali(&larger.text) && matches!(larger.machine, Machine::Gpu(Gpu { block_threads: 512, .. })));
        assert!(is_mali("mali") && !is_mali("opencl") && !is_mali(r#"{"kind": "cuda"}"#));
    }

    #[test]
    fn a_wrong_description_says_what_is_wrong() {
        let refused = mali(r#"{"kind": "opencl", "max_threads_per_block": -1}"#).unwrap_err();
        assert!(refused.contains("max_threads_per_block"), "{refused}");
    }
}
