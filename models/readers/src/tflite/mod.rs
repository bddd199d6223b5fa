//! Reads TFLite files. Every offset is checked. Weights are slices of the file. Convolutions, dense layers and products
//! of 8-bit integers become the same integer operators as in an ONNX file of the network. Operators that only move
//! elements move the integers. All other quantised operators compute in floats between a dequantisation and a
//! quantisation. TFLite images have channels last: each window operator gets a transpose before and after it, and
//! `passes::layout` removes adjacent pairs.

mod bodies;
mod call;
mod flatbuffer;
mod import;
mod joined;
mod rules;
mod schema;
mod stored;
#[cfg(test)]
mod tests;

use crate::{Imported, Options};
use bytes::Bytes;
use flatbuffer::Buffer;
use models::error::{Error, Result};
use schema::Model;
use std::path::Path;

/// Maximum file size. Weights beyond 2 GiB are stored after the flatbuffer.
pub const MAX_FILE_BYTES: u64 = 1 << 34;

pub fn load_file(path: &Path, options: &Options) -> Result<Imported> {
    import_bytes(crate::read_bounded(path, MAX_FILE_BYTES)?, &path.display().to_string(), options)
}

pub fn import_bytes(bytes: Bytes, file: &str, options: &Options) -> Result<Imported> {
    let (length, hash) = (bytes.len() as u64, blake3::hash(&bytes).to_hex().to_string());
    let buffer = Buffer::new(&bytes);
    let model = Model::parse_model(&buffer, &bytes).map_err(|reason| Error::Malformed {
        file: file.to_owned(),
        place: String::new(),
        reason,
    })?;
    let (graph, skipped) = import::import_model(&model, file, options)?;
    Ok(Imported { graph, skipped, notes: Vec::new(), bytes: length, hash })
}
