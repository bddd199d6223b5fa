//! Trees as compressed bytes that are unpacked at the first question.

use learn::trees::Trees;
use learn::trees::columns::{Reader, TreeWriter};
use std::sync::{Arc, OnceLock};

/// Most bytes that one set of trees unpacks to.
const MAX_BYTES: usize = 1 << 28;
const LEVEL: i32 = 19;

/// Trees that are unpacked when they are first asked.
#[derive(Clone, Debug, Default)]
pub struct PackedTrees {
    bytes: Arc<Vec<u8>>,
    /// Hash that the bytes of a file must have.
    hash: Arc<str>,
    trees: Arc<OnceLock<Result<Trees, String>>>,
}

impl PackedTrees {
    /// Keeps trees that were just grown, rounded to what predictions need.
    pub fn of(mut trees: Trees) -> PackedTrees {
        trees.round();
        let cell = OnceLock::new();
        let _ = cell.set(Ok(trees));
        PackedTrees { trees: Arc::new(cell), ..PackedTrees::default() }
    }

    /// Keeps the bytes of a file and the hash that they must have.
    pub fn of_bytes(bytes: Vec<u8>, hash: String) -> PackedTrees {
        PackedTrees { bytes: Arc::new(bytes), hash: hash.into(), trees: Arc::default() }
    }

    /// Returns the trees.
    pub fn open(&self) -> Result<&Trees, String> {
        self.trees.get_or_init(|| unpack(&self.bytes, &self.hash)).as_ref().map_err(Clone::clone)
    }

    /// Returns the compressed bytes for a file.
    pub fn to_bytes(&self) -> Result<Vec<u8>, String> {
        if !self.bytes.is_empty() {
            return Ok(self.bytes.to_vec());
        }
        let mut writer = TreeWriter::default();
        writer.put(self.open()?);
        zstd::bulk::compress(&writer.into_bytes(), LEVEL).map_err(|error| error.to_string())
    }
}

fn unpack(bytes: &[u8], hash: &str) -> Result<Trees, String> {
    if blake3::hash(bytes).to_hex().as_str() != hash {
        return Err("it is damaged: trees do not have the hash that its header has of them".to_owned());
    }
    let unpacked = zstd::bulk::decompress(bytes, MAX_BYTES).map_err(|error| format!("it is damaged: {error}"))?;
    let mut reader = Reader::new(&unpacked)?;
    let trees = reader.take()?;
    reader.finish()?;
    Ok(trees)
}
