//! Reads ONNX files, and writes graphs as ONNX files. Weights are slices of the file, or stay in external data files.
//! Every node is converted from any operator set version to one form. Shapes that the file states are compared with
//! inferred ones. Operators over constants are computed during import, so shape arithmetic disappears.

mod bodies;
mod call;
mod fixed;
mod import;
mod inputs;
mod messages;
mod order;
mod rules;
mod scope;
mod sequence;
mod stated;
mod tensor;
#[cfg(test)]
mod tests;
mod weight;
mod write;

pub use fixed::with_extents;
pub(crate) use rules::resize::{ResizeAxis, ResizeFilter};
pub use write::write_graph;

use crate::{Imported, Options};
use bytes::Bytes;
use models::error::{Error, Result};
use prost::Message;
use reference::Tensor;
use std::collections::{BTreeSet, HashSet};
use std::path::{Component, Path, PathBuf};

/// Largest size of an ONNX file: a protobuf message has at most 2 GiB.
pub const MAX_FILE_BYTES: u64 = 1 << 31;

pub fn load_file(path: &Path, options: &Options) -> Result<Imported> {
    let folder = path.parent().map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder });
    import(read_file(path)?, &path.display().to_string(), folder, options)
}

pub fn read_file(path: &Path) -> Result<Bytes> {
    crate::read_bounded(path, MAX_FILE_BYTES)
}

/// Imports a model from memory. External data is read from `folder` and nowhere else.
pub fn import(bytes: Bytes, file: &str, folder: Option<&Path>, options: &Options) -> Result<Imported> {
    let (length, hash) = (bytes.len() as u64, blake3::hash(&bytes).to_hex().to_string());
    let (graph, skipped, notes) = import::import_model(&decode_model(bytes, file)?, file, folder, options)?;
    Ok(Imported { graph, skipped, notes, bytes: length, hash })
}

pub fn input_names(bytes: Bytes, file: &str) -> Result<Vec<String>> {
    let graph = decode_model(bytes, file)?.graph.unwrap_or_default();
    let constants: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    Ok(graph.input.iter().map(|info| info.name.clone()).filter(|name| !constants.contains(name.as_str())).collect())
}

pub fn output_count(bytes: Bytes, file: &str) -> Result<usize> {
    Ok(decode_model(bytes, file)?.graph.map_or(0, |graph| graph.output.len()))
}

/// Returns the external data files of a model, relative to its folder.
pub fn data_files(bytes: Bytes, file: &str) -> Result<BTreeSet<PathBuf>> {
    let graph = decode_model(bytes, file)?.graph.unwrap_or_default();
    let mut found = BTreeSet::new();
    for tensor in graph.initializer.iter().filter(|tensor| tensor.data_location == 1) {
        let location = tensor.external_data.iter().find(|entry| entry.key == "location");
        let path = PathBuf::from(location.map_or("", |entry| entry.value.as_str()));
        if !path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(Error::Malformed {
                file: file.to_owned(),
                place: format!("initializer `{}`", crate::escape_name(&tensor.name)),
                reason: "the external data lies outside of the model's folder".to_owned(),
            });
        }
        found.insert(path);
    }
    Ok(found)
}

/// Lists the operators of a model's main graph, without its functions and branches.
pub fn operator_names(bytes: Bytes, file: &str) -> Result<BTreeSet<String>> {
    let graph = decode_model(bytes, file)?.graph.unwrap_or_default();
    Ok(graph.node.into_iter().map(|node| node.op_type).collect())
}

/// Reads a name and a tensor from a `TensorProto` file, the format of ONNX test data.
pub fn read_tensor(bytes: Bytes, file: &str) -> Result<(String, Tensor)> {
    let message = messages::Tensor::decode(bytes).map_err(|error| decode_error(file, &error))?;
    let (ty, data) = tensor::constant_data(&message, None).map_err(|reason| Error::Malformed {
        file: file.to_owned(),
        place: format!("tensor `{}`", crate::escape_name(&message.name)),
        reason,
    })?;
    Ok((message.name, reference::constant_tensor(&ty, &data)?))
}

fn decode_model(bytes: Bytes, file: &str) -> Result<messages::Model> {
    if let Some(reason) = weight::excess_reason(&bytes) {
        return Err(Error::Malformed { file: file.to_owned(), place: String::new(), reason });
    }
    messages::Model::decode(bytes).map_err(|error| decode_error(file, &error))
}

fn decode_error(file: &str, error: &prost::DecodeError) -> Error {
    let reason = format!("the file is truncated, damaged or not an ONNX file ({error})");
    Error::Malformed { file: file.to_owned(), place: String::new(), reason }
}
