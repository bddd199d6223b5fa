//! Reads model files as graphs: one folder per format, one rule per operator of the format.

#![forbid(unsafe_code)]

pub mod archive;
mod bounds;
mod emit;
pub mod inputs;
mod limits;
mod narrow;
pub mod onnx;
mod sampling;
pub mod tflite;
pub mod torch;

pub(crate) use emit::Emit;

use bytes::Bytes;
use models::builder::GraphBuilder;
use models::error::{Error, Result};
use models::graph::{Graph, ValueId};
use models::types::DType;
use passes::drop_dead_code;
use reference::Tensor;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Clone, Debug)]
pub struct Options {
    pub batch: i64,
    /// Extent of each dimension whose name denotes a sequence length and for which the file states no number.
    pub sequence: Option<i64>,
    pub shapes: BTreeMap<String, Vec<i64>>,
    /// Tensors, by input name, that replace model inputs by constants, because their values determine shapes.
    pub bindings: BTreeMap<String, Tensor>,
    /// Like `bindings`, for inputs of ONNX files: one number for all elements, or one number for each element.
    pub values: BTreeMap<String, Vec<f64>>,
    pub skip_unsupported: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            batch: 1,
            sequence: None,
            shapes: BTreeMap::new(),
            bindings: BTreeMap::new(),
            values: BTreeMap::new(),
            skip_unsupported: false,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Imported {
    pub graph: Graph,
    pub skipped: Vec<Skipped>,
    pub notes: Vec<String>,
    /// Size of the model file, without external data files.
    pub bytes: u64,
    /// BLAKE3 hash (64 hexadecimal digits) of the model file, without external data files.
    pub hash: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Name of the skipped node or, if it has none, of its first output.
    pub place: String,
    pub operator: String,
    pub reason: String,
}

pub(crate) fn read_bounded(path: &Path, most_bytes: u64) -> Result<Bytes> {
    let unreadable = |reason: String| Error::Unreadable { file: path.display().to_string(), reason };
    let metadata = path.metadata().map_err(|error| unreadable(error.to_string()))?;
    if !metadata.is_file() {
        return Err(unreadable("not a regular file".to_owned()));
    }
    if metadata.len() > most_bytes {
        return Err(unreadable(format!("the file has {} bytes, more than the limit of {most_bytes}", metadata.len())));
    }
    std::fs::read(path).map(Bytes::from).map_err(|error| unreadable(error.to_string()))
}

pub(crate) fn escape_name(name: &str) -> String {
    const MAX_CHARS: usize = 120;
    const TAIL_CHARS: usize = 20;
    let escaped: String = name.chars().take(MAX_CHARS).flat_map(char::escape_debug).collect();
    let count = name.chars().count();
    if count <= MAX_CHARS {
        return escaped;
    }
    let end: String =
        name.chars().skip(count.saturating_sub(TAIL_CHARS).max(MAX_CHARS)).flat_map(char::escape_debug).collect();
    format!("{escaped}…{end} ({count} characters)")
}

pub(crate) fn finish_graph(
    builder: GraphBuilder,
    file: &str,
    mut outputs: Vec<ValueId>,
    loose_ends: &[ValueId],
) -> Result<Graph> {
    let malformed = |reason: String| Error::Malformed { file: file.to_owned(), place: String::new(), reason };
    for &id in loose_ends {
        if !builder.is_source(id) && !outputs.contains(&id) {
            outputs.push(id);
        }
    }
    if outputs.is_empty() {
        return Err(malformed("the graph has no outputs that can be computed".to_owned()));
    }
    let graph = builder.finish(&outputs).and_then(|graph| Ok(drop_dead_code(&graph)?.unwrap_or(graph)));
    graph.map_err(|error| malformed(error.to_string()))
}

#[derive(Debug)]
pub(crate) enum Refusal {
    Malformed(String),
    /// The node may be valid, but the graph cannot represent it.
    Unsupported(String),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Malformed(error.to_string())
    }
}

pub(crate) type Outcome<T> = Result<T, Refusal>;

pub(crate) enum Failure {
    Node(Refusal),
    /// An error inside a subgraph, which already names its node.
    Inside(Error),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::Node(refusal)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Inside(error)
    }
}

pub(crate) fn malformed<T>(reason: impl Into<String>) -> Outcome<T> {
    Err(Refusal::Malformed(reason.into()))
}

pub(crate) fn unsupported<T>(reason: impl Into<String>) -> Outcome<T> {
    Err(Refusal::Unsupported(reason.into()))
}

pub(crate) fn finite_range(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F64 => (f64::MIN, f64::MAX),
        DType::F32 => (f32::MIN.into(), f32::MAX.into()),
        DType::F16 => (-65504.0, 65504.0),
        DType::BF16 => (-3.389_531_389_251_535_5e38, 3.389_531_389_251_535_5e38),
        DType::I8 => (-128.0, 127.0),
        DType::I16 => (-32768.0, 32767.0),
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::I64 => (i64::MIN as f64, i64::MAX as f64),
        DType::U8 => (0.0, 255.0),
        DType::U16 => (0.0, 65535.0),
        DType::U32 => (0.0, u32::MAX.into()),
        DType::U64 => (0.0, u64::MAX as f64),
        DType::Bool => (0.0, 1.0),
    }
}
