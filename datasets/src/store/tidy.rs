//! Keeps parts few while a store is written to: where a folder has many small ones, they are merged.
//!
//! Every campaign ends with a part of its own, however small, and a fleet makes thousands in a night; reading and resuming
//! take time for each. Unlike a compaction this looks at small parts alone, so a large store costs no more than a small one.

use super::Store;
use super::compact::PART_ROWS;
use super::damage::sound;
use super::names::is_part;
use crate::codec::parquet::PartCursor;
use crate::error::{Error, Result};
use crate::files::list;
use std::path::{Path, PathBuf};

/// Parts with fewer rows than one that is full which a folder may have.
pub const SMALL_PARTS: usize = 64;

impl Store {
    /// Merges the small parts of every folder that has more than [`SMALL_PARTS`] of them; how many there were.
    ///
    /// Where another process is at it, or compacts, that one does. Damaged parts are left for a compaction to tell of.
    pub fn tidy(&self) -> Result<u64> {
        let mut merged = 0;
        for folder in self.part_folders()? {
            if small_parts(&folder)?.len() <= SMALL_PARTS {
                continue;
            }
            let _lock = match self.lock_compaction() {
                Err(Error::Busy { .. }) => return Ok(merged),
                lock => lock?,
            };
            // Who had the lock before may have merged them.
            let (parts, _) = sound(small_parts(&folder)?)?;
            if parts.len() > SMALL_PARTS {
                self.compact_folder(&folder, &parts)?;
                self.forget(&parts)?;
                merged += parts.len() as u64;
            }
        }
        Ok(merged)
    }
}

fn small_parts(folder: &Path) -> Result<Vec<PathBuf>> {
    let parts = list(folder, is_part)?;
    // Without a look into any of them where even all are few.
    if parts.len() <= SMALL_PARTS {
        return Ok(Vec::new());
    }
    let mut small = Vec::new();
    for part in parts {
        match PartCursor::open(&part, &[]) {
            Ok(cursor) if cursor.rows() >= PART_ROWS => {}
            Ok(_) => small.push(part),
            // Merged meanwhile, or damaged.
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            Err(Error::Damaged { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(small)
}
