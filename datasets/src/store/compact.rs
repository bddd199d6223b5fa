//! Merges small parts into large ones.
//!
//! The result depends only on the rows: they are sorted, deduplicated, and cut into files of a fixed number of rows.
//! New parts are written and verified, then old parts removed, then the manifest written, without blocking readers or
//! writers. A part with a wrong hash is left unchanged, because a merge would give its rows a valid one.

use super::Store;
use super::damage::{Damage, split_sound};
use super::merge::{Merge, ROWS_OUT};
use super::names::is_part;
use super::seal::{SealOptions, SealReport, begin_part, keep_part};
use crate::codec::parquet::{PartWriter, ROW_GROUP_ROWS};
use crate::error::{Error, IoContext, Result};
use crate::files::{HashedScratch, list_leftovers, remove_if_exists, sync_folder, write_json};
use crate::layout::MANIFEST;
use crate::record::SCHEMA_VERSION;
use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const MAX_MANIFEST_BYTES: u64 = 256 << 20;

/// Rows of a part after compaction; the last part of a folder may have fewer.
pub(super) const PART_ROWS: u64 = 4 * ROW_GROUP_ROWS as u64;

// Merging returns rows in fixed portions, and parts can only be cut between them.
const _: () = assert!(PART_ROWS.is_multiple_of(ROWS_OUT as u64));

/// The result of a compaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CompactReport {
    /// Result of sealing the journals, the first step of a compaction.
    pub sealed: SealReport,
    /// Number of parts before the compaction.
    pub parts_before: u64,
    /// Number of parts after the compaction.
    pub parts_after: u64,
    /// Rows in all parts after the compaction, except damaged parts.
    pub rows: u64,
    /// Damaged parts, which were left unchanged.
    pub damage: Vec<Damage>,
    /// Number of removed temporary files of dead processes.
    pub leftovers: u64,
}

/// All parts at the end of the last compaction, by their path in the dataset folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    schema_version: i64,
    pub parts: BTreeMap<String, ManifestPart>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ManifestPart {
    pub rows: u64,
    pub bytes: u64,
}

impl Manifest {
    pub fn empty() -> Manifest {
        Manifest { schema_version: SCHEMA_VERSION, parts: BTreeMap::new() }
    }
}

impl Store {
    /// Seals journals, then merges the parts of each folder.
    pub fn compact(&self) -> Result<CompactReport> {
        let _lock = self.lock_compaction()?;
        let mut report =
            CompactReport { sealed: self.seal_journals(SealOptions::default())?, ..CompactReport::default() };
        let before = match self.read_manifest() {
            // A damaged manifest is rewritten at the end.
            Err(Error::Damaged { .. }) => Manifest::empty(),
            before => before?,
        };
        let mut manifest = Manifest::empty();
        for folder in self.written_folders()? {
            report.leftovers += remove_leftovers(&folder)?;
        }
        for folder in self.part_folders()? {
            let parts = crate::files::list_matching(&folder, is_part)?;
            report.parts_before += parts.len() as u64;
            let known = parts.iter().map(|part| before.parts.get_key_value(&self.name_of(part)));
            match known.collect::<Option<Vec<_>>>() {
                Some(known) => manifest.parts.extend(known.into_iter().map(|(name, part)| (name.clone(), *part))),
                None => {
                    let (parts, damage) = split_sound(parts)?;
                    report.damage.extend(damage);
                    manifest.parts.extend(self.compact_folder(&folder, &parts)?);
                }
            }
        }
        report.parts_after = manifest.parts.len() as u64 + report.damage.len() as u64;
        report.rows = manifest.parts.values().map(|part| part.rows).sum();
        write_json(&self.root.join(MANIFEST), &manifest)?;
        Ok(report)
    }

    /// Reads the result of the last compaction; empty if there was none.
    pub(super) fn read_manifest(&self) -> Result<Manifest> {
        let path = self.root.join(MANIFEST);
        if !path.exists() {
            return Ok(Manifest::empty());
        }
        let mut text = Vec::new();
        let file = File::open(&path).context("opening", &path)?;
        file.take(MAX_MANIFEST_BYTES).read_to_end(&mut text).context("reading", &path)?;
        serde_json::from_slice(&text).map_err(|error| Error::Damaged {
            file: path,
            problem: error.to_string(),
            hint: Some("the next compaction rewrites the manifest".to_owned()),
        })
    }

    pub(super) fn forget_parts(&self, gone: &[PathBuf]) -> Result<()> {
        let mut manifest = self.read_manifest()?;
        let before = manifest.parts.len();
        manifest.parts.retain(|name, _| gone.iter().all(|part| self.name_of(part) != *name));
        if manifest.parts.len() == before { Ok(()) } else { write_json(&self.root.join(MANIFEST), &manifest) }
    }

    pub(super) fn manifest_path(&self) -> PathBuf {
        self.root.join(MANIFEST)
    }

    pub(super) fn lock_compaction(&self) -> Result<File> {
        let path = self.root.join("compact.lock");
        let mut options = File::options();
        options.create(true).truncate(false).write(true).custom_flags(OFlag::O_NOFOLLOW.bits());
        let lock = options.open(&path).context("opening", &path)?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => Err(Error::Busy { doing: "compacted", path: self.root.clone() }),
            // Without file locks, concurrent compactions are safe, because they write the same parts.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(lock),
        }
    }

    pub(super) fn compact_folder(&self, folder: &Path, parts: &[PathBuf]) -> Result<Vec<(String, ManifestPart)>> {
        let mut compacted: Vec<(PathBuf, u64)> = Vec::new();
        let mut merge = Merge::new(parts.to_vec())?;
        let mut open: Option<(PartWriter<HashedScratch>, u64)> = None;
        while let Some(rows) = merge.next_rows()? {
            let (part, part_rows) = match &mut open {
                Some(open) => open,
                None => open.insert((begin_part(folder)?, 0)),
            };
            *part_rows += rows.len() as u64;
            part.push_batch(&rows)?;
            if *part_rows == PART_ROWS
                && let Some((part, part_rows)) = open.take()
            {
                compacted.push((keep_part(part, part_rows)?, part_rows));
            }
        }
        if let Some((part, part_rows)) = open {
            compacted.push((keep_part(part, part_rows)?, part_rows));
        }
        for part in parts.iter().filter(|part| compacted.iter().all(|(new, _)| new != *part)) {
            remove_if_exists(part)?;
        }
        sync_folder(folder)?;
        let entry = |(path, rows): (PathBuf, u64)| {
            let bytes = std::fs::metadata(&path).context("reading the metadata of", &path)?.len();
            Ok((self.name_of(&path), ManifestPart { rows, bytes }))
        };
        compacted.into_iter().map(entry).collect()
    }

    pub(super) fn name_of(&self, part: &Path) -> String {
        part.strip_prefix(self.dataset_folder()).unwrap_or(part).to_string_lossy().into_owned()
    }
}

fn remove_leftovers(folder: &Path) -> Result<u64> {
    let leftovers = list_leftovers(folder)?;
    leftovers.iter().try_for_each(|path| remove_if_exists(path))?;
    Ok(leftovers.len() as u64)
}
