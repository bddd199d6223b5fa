//! Reads a whole store and reports problems without changing anything.

use super::damage::{Damage, part_damage};
use super::journal_reader::{JournalReader, TornTail};
use super::merge::compare_attempts;
use super::names::{is_part, part_folder};
use super::seal::NO_HEADER;
use super::{Store, files};
use crate::codec::all_columns;
use crate::codec::parquet::PartCursor;
use crate::codec::rows::check_row;
use crate::error::{Error, Result};
use crate::files::list_leftovers;
use crate::layout::MARKER;
use crate::record::batch::{Batch, BatchRow};
use crate::record::table::Record;
use rayon::prelude::*;
use serde::Serialize;
use std::cmp::Ordering;
use std::path::{Path, PathBuf};

const ROWS: usize = 1024;

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Number of parts.
    pub parts: u64,
    /// Number of journals.
    pub journals: u64,
    /// Number of rows, including duplicates.
    pub rows: u64,
    /// Problems; empty for an intact store.
    pub problems: Vec<Problem>,
    /// Journals with an unfinished last line, from processes that died.
    pub torn: Vec<TornTail>,
    /// Temporary files of dead processes; the next compaction removes them.
    pub leftovers: Vec<PathBuf>,
    /// Files in quarantine, which are never read.
    pub quarantined: Vec<PathBuf>,
}

/// A problem of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Description of the problem, with a remedy.
    pub problem: String,
}

/// An additional check of rows by the caller. Returns the problem of a row, or None.
pub type RowCheck = dyn Fn(&Record) -> Option<String> + Sync;

impl Store {
    /// Reads every file and checks every row.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verify_with(&|_| None)
    }

    /// Reads every file and checks every row, also with the caller's check.
    pub fn verify_with(&self, check: &RowCheck) -> Result<VerifyReport> {
        let mut report = VerifyReport::default();
        let journals = self.list_journals()?;
        report.journals = journals.len() as u64;
        for path in journals {
            let result = verify_journal(&path, check, &mut report);
            report.note_problem(&path, result);
        }
        let parts = self.list_parts()?;
        report.parts = parts.len() as u64;
        let results: Vec<_> = parts.par_iter().with_max_len(1).map(|part| self.verify_part(part, check)).collect();
        for (path, (rows, result)) in parts.iter().zip(results) {
            report.rows += rows;
            report.note_problem(path, result);
        }
        self.verify_manifest(&parts, &mut report);
        self.find_strangers(&mut report)?;
        if let Some(why) = self.marker_problem() {
            let problem =
                format!("the content changed after it was written ({why}); `verify --quarantine` rewrites the file");
            report.note_problem(&self.root.join(MARKER), Ok(Some(problem)));
        }
        report.problems.extend(self.verify_configs()?);
        report.problems.extend(self.damaged_peaks()?);
        report.problems.extend(self.foreign_peaks()?);
        report.quarantined = self.quarantined_files()?;
        Ok(report)
    }

    pub(super) fn verify_part(&self, path: &Path, check: &RowCheck) -> (u64, Result<Option<String>>) {
        let mut rows = 0;
        let result = self.read_part(path, check, &mut rows);
        (rows, result)
    }

    /// Returns why a part must not be copied: damage, or a row that [`Store::verify_with`] rejects.
    pub(super) fn part_problem(&self, path: &Path, check: &RowCheck) -> Result<Option<Damage>> {
        if let Some(damage) = part_damage(path)? {
            return Ok(Some(damage));
        }
        let problem = match self.verify_part(path, check).1 {
            Err(error) if is_of_content(&error) => Some(error.to_string()),
            result => result?,
        };
        let damage = |problem| {
            let problem = format!("{problem}; `dataset verify --quarantine` of its store keeps the valid rows");
            Damage { file: path.to_owned(), lines: None, problem }
        };
        Ok(problem.map(damage))
    }

    fn read_part(&self, path: &Path, check: &RowCheck, rows: &mut u64) -> Result<Option<String>> {
        if let Some(damage) = part_damage(path)? {
            return Ok(Some(damage.problem));
        }
        let mut cursor = PartCursor::open(path, &all_columns())?;
        let mut last: Option<Batch> = None;
        let mut problems = RowProblems::default();
        while let Some(batch) = cursor.read_batch(ROWS)? {
            for (index, row) in batch.rows().enumerate() {
                *rows += 1;
                let before = match index {
                    0 => last.as_ref().map(|last| last.row(last.len() - 1)),
                    _ => Some(batch.row(index - 1)),
                };
                problems.add_problem(self.row_problem(path, *rows, (before, row), check));
            }
            last = Some(batch);
        }
        Ok(problems.describe())
    }

    /// Returns the problem of a row of a part. `before` is the preceding row.
    fn row_problem(
        &self,
        path: &Path,
        number: u64,
        (before, row): (Option<BatchRow<'_>>, BatchRow<'_>),
        check: &RowCheck,
    ) -> Option<String> {
        let record = match check_row(path, number, row) {
            Ok(record) => record,
            Err(error) => return Some(error.to_string()),
        };
        if let Some(problem) = find_problem(&record, check) {
            return Some(format!("row {number}: {problem}"));
        }
        let folder = self.dataset_folder().join(part_folder(record.target.name(), &record.host_class));
        if path.parent() != Some(&folder) {
            return Some(format!("row {number} belongs to `{}`; import the file instead", folder.display()));
        }
        let is_unordered = before.is_some_and(|before| compare_attempts(&before, &row) == Ordering::Greater);
        is_unordered.then(|| format!("row {number} is out of order; import the file instead"))
    }

    fn verify_manifest(&self, parts: &[PathBuf], report: &mut VerifyReport) {
        let manifest = match self.read_manifest() {
            Ok(manifest) => manifest,
            Err(error) => return report.note_problem(&self.root, Err(error)),
        };
        let here: Vec<String> = parts.iter().map(|part| self.name_of(part)).collect();
        for name in manifest.parts.keys().filter(|name| !here.contains(name)) {
            let problem = "the part is in the manifest but missing; restore it from a copy of the store";
            report.note_problem(&self.dataset_folder().join(name), Ok(Some(problem.to_owned())));
        }
    }

    /// Reports files that do not belong to the store; readers ignore such files.
    fn find_strangers(&self, report: &mut VerifyReport) -> Result<()> {
        for folder in self.written_folders()? {
            report.leftovers.extend(list_leftovers(&folder)?);
        }
        let is_shown = |name: &str| !name.starts_with('.');
        let mut strangers = Vec::new();
        let folders = self.part_folders()?;
        for folder in &folders {
            strangers.extend(files::list_matching(folder, |name| is_shown(name) && !is_part(name))?);
        }
        // Parts are only read from folders with the expected names. Files with a leading underscore belong to other
        // engines, such as a table's log.
        let is_ours = |name: &str| is_shown(name) && !name.starts_with('_');
        let targets = files::list_matching(&self.dataset_folder(), is_ours)?;
        for target in &targets {
            let below = if target.is_dir() { files::list_matching(target, is_shown)? } else { Vec::new() };
            let is_read = |path: &PathBuf| folders.contains(path);
            match below.iter().any(is_read) {
                true => strangers.extend(below.into_iter().filter(|path| !is_read(path))),
                false if below.is_empty() && target.is_dir() => {}
                false => strangers.push(target.clone()),
            }
        }
        for path in strangers {
            report.note_problem(&path, Ok(Some("not a part, so it is ignored; import or remove the file".to_owned())));
        }
        let journals = self.list_journals()?;
        for path in
            files::list_matching(&self.journal_folder(), is_shown)?.iter().filter(|path| !journals.contains(path))
        {
            report.note_problem(path, Ok(Some("not a journal, so it is ignored; remove the file".to_owned())));
        }
        Ok(())
    }
}

/// Problems of the rows of a file.
#[derive(Default)]
struct RowProblems {
    first: Option<String>,
    /// Number of rows with a problem after the first one.
    more: usize,
}

impl RowProblems {
    fn add_problem(&mut self, problem: Option<String>) {
        match self.first {
            Some(_) => self.more += usize::from(problem.is_some()),
            None => self.first = problem,
        }
    }

    fn describe(self) -> Option<String> {
        let more = match self.more {
            0 => String::new(),
            1 => "; 1 more row has a problem".to_owned(),
            more => format!("; {more} more rows have problems"),
        };
        Some(self.first? + &more)
    }
}

fn verify_journal(path: &Path, check: &RowCheck, report: &mut VerifyReport) -> Result<Option<String>> {
    let mut reader = JournalReader::open(path)?;
    let mut problems = RowProblems::default();
    loop {
        let rows = reader.next_rows(ROWS)?;
        if rows.is_empty() {
            break;
        }
        report.rows += rows.len() as u64;
        for row in &rows {
            problems.add_problem(find_problem(row, check).map(|problem| format!("key {}: {problem}", row.key)));
        }
    }
    report.torn.extend(reader.torn_tail());
    // Journals get their name only after their header was written.
    if reader.header.is_none() && !reader.is_header_damaged() {
        let problem = format!("{NO_HEADER}; if not, `dataset seal --take-over` removes it");
        report.note_problem(path, Ok(Some(problem)));
    }
    if let Some(damage) = reader.damage() {
        report.problems.push(Problem { file: path.to_owned(), problem: damage.to_string() });
    }
    Ok(problems.describe())
}

/// Returns the problem of a record: a wrong key, a median far from the samples, or what the caller's check reports.
pub(super) fn find_problem(record: &Record, check: &RowCheck) -> Option<String> {
    let key = record.experiment_key();
    if key == record.key {
        samples_problem(record).or_else(|| check(record))
    } else {
        Some(format!("the key does not match the experiment, whose key is {key}"))
    }
}

/// Returns why the samples of a record cannot have its median. The median of a selection of the samples may lie outside
/// of the selection, but not far from it.
fn samples_problem(record: &Record) -> Option<String> {
    const ROUNDING: f64 = 1.0 + 1e-9;
    const SELECTION: f64 = 10.0;
    let samples = &record.samples_ns;
    let (median_ns, low) = (record.median_ns?, samples.iter().copied().reduce(f64::min)?);
    let high = samples.iter().copied().fold(low, f64::max);
    let factor = if samples.len() as u64 == record.n as u64 { ROUNDING } else { SELECTION };
    let is_possible = low / factor <= median_ns && median_ns <= high * factor;
    (!is_possible).then(|| {
        format!("the median of {median_ns} ns contradicts the samples in `samples_ns`, from {low} to {high} ns")
    })
}

pub(super) fn is_of_content(error: &Error) -> bool {
    matches!(error, Error::Row { .. } | Error::Damaged { .. })
}

impl VerifyReport {
    fn note_problem(&mut self, file: &Path, result: Result<Option<String>>) {
        let problem = match result {
            Ok(None) => return,
            Ok(Some(problem)) => problem,
            Err(error) => error.to_string(),
        };
        self.problems.push(Problem { file: file.to_owned(), problem });
    }
}
