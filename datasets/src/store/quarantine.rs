//! Moves damaged files into quarantine and reports the lost rows. A part with a wrong content hash is lost as a whole.
//! If the hash is right but some rows are invalid, the valid rows are first copied to a new part. Nothing is deleted:
//! files keep their relative path below `quarantine/`.

use super::Store;
use super::compact::Manifest;
use super::damage::part_damage;
use super::seal::SEAL_AT_ROWS;
use super::seal::{SealOptions, SealReport, seal_rows};
use super::verify::{RowCheck, find_problem, is_of_content};
use crate::codec::all_columns;
use crate::codec::parquet::PartCursor;
use crate::codec::rows::check_row;
use crate::error::{Error, Result};
use crate::layout::MARKER;
use crate::record::table::Record;
use serde::Serialize;
use std::path::{Path, PathBuf};

const ROWS: usize = 1024;

/// The result of a quarantine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct QuarantineReport {
    /// Files that were moved into quarantine.
    pub files: Vec<SetAside>,
    /// Result of sealing the journals first; `damage` lists their quarantined lines.
    pub sealed: SealReport,
}

/// A file in quarantine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetAside {
    /// Previous path.
    pub file: PathBuf,
    /// Path in quarantine.
    pub to: PathBuf,
    /// Problem of the file.
    pub problem: String,
    /// Number of lost rows; None if unknown.
    pub rows_lost: Option<u64>,
}

impl Store {
    /// Quarantines every damaged or invalid part, journal, manifest, configuration and peak measurement.
    pub fn quarantine(&self) -> Result<QuarantineReport> {
        self.quarantine_with(&|_| None)
    }

    /// Like [`Store::quarantine`], and also quarantines rows that the caller's check rejects.
    pub fn quarantine_with(&self, check: &RowCheck) -> Result<QuarantineReport> {
        let _lock = self.lock_compaction()?;
        let mut report =
            QuarantineReport { sealed: self.seal_journals(SealOptions::default())?, ..QuarantineReport::default() };
        if let Some(why) = self.marker_problem() {
            report.set_aside(self, &self.root.join(MARKER), why, Some(0))?;
            self.write_marker()?;
        }
        let manifest = match self.read_manifest() {
            Ok(manifest) => manifest,
            Err(error @ Error::Damaged { .. }) => {
                report.set_aside(self, &self.manifest_path(), error.to_string(), Some(0))?;
                Manifest::empty()
            }
            Err(error) => return Err(error),
        };
        for part in self.list_parts()? {
            if let Some((problem, rows_lost)) = self.take_apart(&part, check, &manifest)? {
                report.set_aside(self, &part, problem, rows_lost)?;
            }
        }
        for damaged in [self.damaged_peaks()?, self.verify_configs()?].concat() {
            report.set_aside(self, &damaged.file, damaged.problem, Some(0))?;
        }
        self.forget_parts(&report.files.iter().map(|aside| aside.file.clone()).collect::<Vec<_>>())?;
        Ok(report)
    }

    /// Copies a damaged part's valid rows to a new part. Returns the problem and the lost rows; None if intact.
    fn take_apart(&self, part: &Path, check: &RowCheck, manifest: &Manifest) -> Result<Option<(String, Option<u64>)>> {
        if let Some(damage) = part_damage(part)? {
            let listed = manifest.parts.get(&self.name_of(part)).map(|part| part.rows);
            return Ok(Some((
                damage.problem,
                listed.or_else(|| PartCursor::open(part, &[]).ok().map(|part| part.row_count())),
            )));
        }
        let (_, found) = self.verify_part(part, check);
        let problem = match found {
            Ok(None) => return Ok(None),
            Ok(Some(problem)) => problem,
            Err(error) if is_of_content(&error) => error.to_string(),
            Err(error) => return Err(error),
        };
        Ok(Some((problem, Some(self.keep_sound_rows(part, check)?))))
    }

    /// Copies the valid rows of a part to new parts; returns the number of invalid rows.
    fn keep_sound_rows(&self, part: &Path, check: &RowCheck) -> Result<u64> {
        let mut cursor = PartCursor::open(part, &all_columns())?;
        let (mut sound, mut read, mut kept) = (Vec::new(), 0, 0);
        let all = cursor.row_count();
        while let Ok(Some(batch)) = cursor.read_batch(ROWS) {
            for row in batch.rows() {
                read += 1;
                sound.extend(
                    check_row(part, read, row).ok().filter(|record: &Record| find_problem(record, check).is_none()),
                );
            }
            if sound.len() + ROWS > SEAL_AT_ROWS {
                kept += sound.len() as u64;
                seal_rows(self, &std::mem::take(&mut sound))?;
            }
        }
        kept += sound.len() as u64;
        seal_rows(self, &sound)?;
        Ok(all.max(read).saturating_sub(kept))
    }
}

impl QuarantineReport {
    fn set_aside(&mut self, store: &Store, file: &Path, problem: String, rows_lost: Option<u64>) -> Result<()> {
        let to = store.set_aside(file)?;
        self.files.push(SetAside { file: file.to_owned(), to, problem, rows_lost });
        Ok(())
    }

    /// Returns whether nothing was damaged.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.sealed.damage.is_empty()
    }
}
