//! The targets, one module each.

pub mod agent_session;
pub mod arrays;
pub mod bucket;
pub mod campaign;
pub mod chrome_trace;
pub mod config;
pub mod core_program;
pub mod fabric;
pub mod host_trace;
pub mod mapping;
pub mod object;
pub mod onnx;
pub mod perfetto;
pub mod perfetto_events;
pub mod plan;
pub mod predictor;
pub mod profile;
pub mod program;
pub mod pt2;
pub mod race;
pub mod records;
pub mod replay;
pub mod rpc_session;
pub mod rpc_tracker;
pub mod safetensors;
pub mod safetensors_index;
pub mod schedule;
pub mod stages;
pub mod store;
pub mod store_files;
pub mod target;
pub mod tensor_location;
pub mod tflite;
pub mod torchscript;
pub mod tpu;
pub mod tvm_report;
pub mod xgboost;

/// Returns the part of an input before its first byte that is not UTF-8.
fn valid_text(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    }
}
