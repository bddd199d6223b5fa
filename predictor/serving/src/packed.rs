//! Trees stored as compressed bytes, which are unpacked on first use.

use learn::trees::columns::{Reader, TreeWriter};
use learn::trees::{ThresholdRanges, Trees};
use std::sync::{Arc, OnceLock};

/// Size limit of one unpacked set of trees, in bytes.
const MAX_BYTES: usize = 1 << 28;
const LEVEL: i32 = 19;

#[derive(Clone, Debug, Default)]
pub struct PackedTrees {
    bytes: Arc<Vec<u8>>,
    hash: Arc<str>,
    trees: Arc<OnceLock<Result<Trees, String>>>,
    thresholds: Arc<OnceLock<ThresholdRanges>>,
}

impl PackedTrees {
    /// Compresses new trees after rounding their values to the required precision.
    pub fn from_trees(mut trees: Trees) -> PackedTrees {
        trees.round_values();
        let cell = OnceLock::new();
        let _ = cell.set(Ok(trees));
        PackedTrees { trees: Arc::new(cell), ..PackedTrees::default() }
    }

    pub fn from_bytes(bytes: Vec<u8>, hash: String) -> PackedTrees {
        PackedTrees { bytes: Arc::new(bytes), hash: hash.into(), ..PackedTrees::default() }
    }

    pub fn unpack_once(&self) -> Result<&Trees, String> {
        self.trees.get_or_init(|| unpack_trees(&self.bytes, &self.hash)).as_ref().map_err(Clone::clone)
    }

    /// Returns the smallest and the largest threshold of a feature; None without a split by it.
    pub fn threshold_range(&self, feature: usize) -> Result<Option<(f32, f32)>, String> {
        let trees = self.unpack_once()?;
        Ok(self.thresholds.get_or_init(|| trees.threshold_ranges()).get(feature).copied().flatten())
    }

    pub fn to_bytes(&self) -> Result<Vec<u8>, String> {
        if !self.bytes.is_empty() {
            return Ok(self.bytes.to_vec());
        }
        let mut writer = TreeWriter::default();
        writer.write_trees(self.unpack_once()?);
        zstd::bulk::compress(&writer.into_bytes(), LEVEL).map_err(|error| error.to_string())
    }
}

/// Describes why the content of a file cannot be unpacked.
pub fn describe_unpack_error(error: std::io::Error) -> String {
    // The library for decompression has its own text for too little memory, without a kind.
    let text = error.to_string().to_lowercase();
    match text.contains("memory") || text.contains("allocation") {
        true => format!("there is too little memory to unpack the file: {error}"),
        false => format!("the file is damaged: {error}"),
    }
}

fn unpack_trees(bytes: &[u8], hash: &str) -> Result<Trees, String> {
    if blake3::hash(bytes).to_hex().as_str() != hash {
        return Err("the file is damaged: the trees do not match their hash".to_owned());
    }
    let unpacked = zstd::bulk::decompress(bytes, MAX_BYTES).map_err(describe_unpack_error)?;
    let mut reader = Reader::new(&unpacked)?;
    let trees = reader.read_trees()?;
    reader.check_finished()?;
    Ok(trees)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error, ErrorKind};

    #[test]
    fn too_little_memory_is_no_damage() {
        for error in [Error::from(ErrorKind::OutOfMemory), Error::other("Allocation error : not enough memory")] {
            let described = describe_unpack_error(error);
            assert!(described.starts_with("there is too little memory"), "{described}");
        }
        assert!(describe_unpack_error(Error::other("Data corruption detected")).starts_with("the file is damaged"));
    }
}
