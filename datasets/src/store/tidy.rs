//! Merges small parts while a store is being written to. Every campaign writes at least one part, so a fleet of
//! machines creates thousands per night, which slows down reading. Unlike a compaction, this merges only small parts,
//! so the cost does not depend on the size of the store.

use super::Store;
use super::compact::PART_ROWS;
use super::damage::split_sound;
use super::names::is_part;
use crate::codec::parquet::PartCursor;
use crate::error::{Error, Result};
use crate::files::list_matching;
use std::path::{Path, PathBuf};

/// Number of parts below full size that a folder may contain; if there are more, they are merged.
pub const SMALL_PARTS: usize = 64;

impl Store {
    /// Merges the small parts of folders with more than [`SMALL_PARTS`] small parts; returns the number of merged
    /// parts. Stops if another process holds the compaction lock. Damaged parts are left to a compaction.
    pub fn merge_small_parts(&self) -> Result<u64> {
        let mut merged = 0;
        for folder in self.part_folders()? {
            if small_parts(&folder)?.len() <= SMALL_PARTS {
                continue;
            }
            let _lock = match self.lock_compaction() {
                Err(Error::Busy { .. }) => return Ok(merged),
                lock => lock?,
            };
            // The previous lock holder may have merged the small parts.
            let (parts, _) = split_sound(small_parts(&folder)?)?;
            if parts.len() > SMALL_PARTS {
                self.compact_folder(&folder, &parts)?;
                self.forget_parts(&parts)?;
                merged += parts.len() as u64;
            }
        }
        Ok(merged)
    }
}

fn small_parts(folder: &Path) -> Result<Vec<PathBuf>> {
    let parts = list_matching(folder, is_part)?;
    // With few parts there is nothing to merge, so sizes need not be read.
    if parts.len() <= SMALL_PARTS {
        return Ok(Vec::new());
    }
    let mut small = Vec::new();
    for part in parts {
        match PartCursor::open(&part, &[]) {
            Ok(cursor) if cursor.row_count() >= PART_ROWS => {}
            Ok(_) => small.push(part),
            // Another process has merged the part, or the part is damaged.
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            Err(Error::Damaged { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(small)
}
