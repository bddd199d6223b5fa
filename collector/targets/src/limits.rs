//! The limits of a GPU in TVM's description of a target.

use crate::Gpu;
use serde_json::{Map, Value as Json, json};

/// Adds the limits that a description lacks, under TVM's names.
pub(super) fn add_limits(fields: &mut Map<String, Json>, limits: &[(&str, u32)]) {
    for (name, limit) in limits {
        fields.entry(*name).or_insert_with(|| json!(limit));
    }
}

/// Returns the GPU facts for schedule spaces from a complete description; `text` is the user's input, for messages.
pub(super) fn gpu_facts(text: &str, fields: &Map<String, Json>, capability: u32) -> Result<Gpu, String> {
    let number = |name: &str| {
        fields[name]
            .as_i64()
            .filter(|&number| number > 0)
            .ok_or_else(|| format!("target `{text}`: `{name}` is {}; it must be a number above 0", fields[name]))
    };
    Ok(Gpu {
        block_threads: number("max_threads_per_block")?,
        shared_bytes: number("max_shared_memory_per_block")?,
        warp_threads: number("thread_warp_size")?,
        capability,
    })
}
