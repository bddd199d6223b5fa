//! Reads TFLite files.
//!
//! The file is a flatbuffer; a small reader of our own checks every offset (`flatbuffer`), because generated accessors
//! are unsafe code and expect a verified file. Weights are slices of the file. Operators keep the scales of quantised
//! tensors: convolutions, dense layers and products of 8-bit integers become the exact integer operators that an ONNX
//! file of the same network becomes; everything else on quantised data is computed in floats between a dequantisation
//! and a quantisation, and operators that only move elements move the integers.
//!
//! TFLite's images have their channels last, our windows theirs before the image. Each window is put between two
//! transposes here, and a pass (`passes::layout`) removes those that meet.

mod call;
mod flatbuffer;
mod import;
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

/// Weights beyond two gigabytes lie after the flatbuffer.
pub const MAX_FILE_BYTES: u64 = 1 << 34;

pub fn load_file(path: &Path, options: &Options) -> Result<Imported> {
    import_bytes(crate::read_bounded(path, MAX_FILE_BYTES)?, &path.display().to_string(), options)
}

pub fn import_bytes(bytes: Bytes, file: &str, options: &Options) -> Result<Imported> {
    let (length, hash) = (bytes.len() as u64, blake3::hash(&bytes).to_hex().to_string());
    let buffer = Buffer::new(&bytes);
    let model = Model::parse_model(&buffer, &bytes).map_err(|reason| Error::Malformed {
        file: file.to_owned(),
        place: "as a whole".to_owned(),
        reason,
    })?;
    let (graph, skipped) = import::import_model(&model, file, options)?;
    Ok(Imported { graph, skipped, notes: Vec::new(), bytes: length, hash })
}
