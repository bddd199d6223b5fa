//! Merges sorted parts into one sorted stream of distinct measurements with attempt numbers. Memory is bounded by the
//! number of open files: each needs one batch of rows and one page of every column. If there are too many files, they
//! are merged in several rounds through temporary files.

use super::Store;
use super::damage::Damage;
use super::journal_reader::{JournalReader, TornTail};
use super::seal::{SEAL_AT_ROWS, sort_and_dedup};
use crate::codec::all_columns;
use crate::codec::parquet::{PartCursor, PartWriter, SORTED_BY};
use crate::error::{Error, IoContext, Result};
use crate::record::batch::{Batch, BatchRow, Piece, Row};
use crate::record::choose::{order_attempts, order_copies};
use std::cmp::Ordering;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

const FAN_IN: usize = 256;

const ROWS_IN: usize = 1 << 16;
const ROWS_OF_A_FILE: usize = 1024;

pub(super) const ROWS_OUT: usize = 8192;

pub(super) struct Merge {
    cursors: Vec<Cursor>,
    /// Indices of the cursors that still have rows; the cursor with the smallest row is last.
    order: Vec<usize>,
    /// Last output row with its attempt number, if any.
    last: (Batch, i64),
    _scratch: Scratch,
}

struct Cursor {
    path: PathBuf,
    part: PartCursor,
    rows_in: usize,
    batch: Arc<Batch>,
    row: usize,
}

impl Merge {
    pub fn new(paths: Vec<PathBuf>) -> Result<Merge> {
        Merge::with_scratch(paths, Scratch::default())
    }

    fn with_scratch(mut paths: Vec<PathBuf>, mut scratch: Scratch) -> Result<Merge> {
        while paths.len() > FAN_IN {
            // Merges as few files as possible, the smallest first, because each merged file is copied once more.
            paths.sort_by_cached_key(|path| std::fs::metadata(path).map_or(0, |metadata| metadata.len()));
            let round: Vec<PathBuf> = paths.drain(..FAN_IN.min(paths.len() - FAN_IN + 1)).collect();
            let mut merge = Merge::new(round)?;
            paths.push(scratch.write_part(|writer| {
                while let Some(rows) = merge.next_rows()? {
                    writer.push_batch(&rows)?;
                }
                Ok(())
            })?);
        }
        let last = (Batch::all_columns(), 0);
        let mut merge = Merge { cursors: Vec::new(), order: Vec::new(), last, _scratch: scratch };
        let rows_in = (ROWS_IN / paths.len().max(1)).min(ROWS_OF_A_FILE);
        for path in paths {
            let mut cursor = Cursor::open(&path, rows_in)?;
            if cursor.fill_batch()? {
                merge.cursors.push(cursor);
                merge.enqueue(merge.cursors.len() - 1);
            }
        }
        Ok(merge)
    }

    /// Returns the next batch of rows, or None at the end. All batches but the last have the same size.
    pub fn next_rows(&mut self) -> Result<Option<Batch>> {
        // Selects the next rows first, then copies them column by column in parallel.
        let (mut pieces, mut picked): (Vec<Piece>, usize) = (Vec::new(), 0);
        while let Some(&first) = self.order.last() {
            let cursor = &self.cursors[first];
            let mut taken = 1;
            let is_known = pieces
                .last()
                .is_some_and(|(batch, rows)| compare_attempts(&batch.row(rows.end - 1), &cursor.head_row()).is_eq());
            if !is_known {
                if picked == ROWS_OUT {
                    break;
                }
                taken = self.run_length(first, ROWS_OUT - picked);
                picked += taken;
                pieces.push((Arc::clone(&cursor.batch), cursor.row..cursor.row + taken));
            }
            self.order.pop();
            if self.cursors[first].advance_by(taken)? {
                self.enqueue(first);
            }
        }
        let mut rows = Batch::gather_rows(&pieces);
        self.number_attempts(&mut rows);
        Ok(Some(rows).filter(|rows| !rows.is_empty()))
    }

    fn number_attempts(&mut self, rows: &mut Batch) {
        let Some(last) = rows.len().checked_sub(1) else { return };
        let (before, number) = &mut self.last;
        let mut numbers = Vec::with_capacity(rows.len());
        for index in 0..rows.len() {
            let row_before = match index {
                0 => before.rows().next(),
                _ => Some(rows.row(index - 1)),
            };
            let goes_on = row_before.is_some_and(|before| compare_keys(&before, &rows.row(index)).is_eq());
            *number = if goes_on { *number + 1 } else { 1 };
            numbers.push(*number);
        }
        rows.set_attempts(numbers);
        *before = Batch::all_columns();
        before.extend(rows, last..last + 1);
    }

    /// Returns how many distinct rows at the head of cursor `first`, at most `most`, precede the rows of other cursors.
    fn run_length(&self, first: usize, most: usize) -> usize {
        let cursor = &self.cursors[first];
        let next = self.order.len().checked_sub(2).map(|second| self.cursors[self.order[second]].head_row());
        let most = most.min(cursor.batch.len() - cursor.row);
        let continues = |row: usize| {
            let row_here = cursor.batch.row(row);
            let is_before = |next: &BatchRow<'_>| compare_copies(&row_here, next) == Ordering::Less;
            next.as_ref().is_none_or(is_before)
                && compare_attempts(&cursor.batch.row(row - 1), &row_here) == Ordering::Less
        };
        (1..most).find(|run| !continues(cursor.row + run)).unwrap_or(most)
    }

    fn enqueue(&mut self, index: usize) {
        let head = self.cursors[index].head_row();
        let is_behind = |other: &usize| compare_copies(&self.cursors[*other].head_row(), &head) == Ordering::Greater;
        // Parts of compacted stores hardly overlap, so the cursor usually stays first.
        let place = match self.order.last() {
            Some(last) if !is_behind(last) => self.order.partition_point(is_behind),
            _ => self.order.len(),
        };
        self.order.insert(place, index);
    }
}

impl Cursor {
    fn open(path: &Path, rows_in: usize) -> Result<Cursor> {
        let part = PartCursor::open(path, &all_columns())?;
        Ok(Cursor { path: path.to_owned(), part, rows_in, batch: Arc::new(Batch::of_rows(0)), row: 0 })
    }

    fn head_row(&self) -> BatchRow<'_> {
        self.batch.row(self.row)
    }

    /// Advances by some rows, but not beyond the start of the next batch. Returns false at the end.
    fn advance_by(&mut self, rows: usize) -> Result<bool> {
        self.row += rows;
        if self.row < self.batch.len() {
            self.check_order(&self.batch.row(self.row - 1))?;
            return Ok(true);
        }
        let last = Arc::clone(&self.batch);
        if !self.fill_batch()? {
            return Ok(false);
        }
        self.check_order(&last.row(last.len() - 1))?;
        Ok(true)
    }

    fn fill_batch(&mut self) -> Result<bool> {
        self.row = 0;
        match self.part.read_batch(self.rows_in)? {
            Some(batch) => self.batch = Arc::new(batch),
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Fails if the current row sorts before the previous one, because a merge needs sorted parts.
    fn check_order(&self, before: &BatchRow<'_>) -> Result<()> {
        match compare_attempts(before, &self.head_row()) {
            Ordering::Greater => Err(Error::damaged(&self.path, "the rows are not sorted; import the file instead")),
            _ => Ok(()),
        }
    }
}

/// Orders the rows of parts by experiment, then by time. Equal rows are the same attempt.
pub(super) fn compare_attempts(left: &impl Row, right: &impl Row) -> Ordering {
    compare_keys(left, right).then_with(|| order_attempts(left, right))
}

/// Orders like [`compare_attempts`], and copies of an attempt by their content.
fn compare_copies(left: &impl Row, right: &impl Row) -> Ordering {
    compare_keys(left, right).then_with(|| order_copies(left, right))
}

pub(super) fn compare_keys(left: &impl Row, right: &impl Row) -> Ordering {
    SORTED_BY
        .iter()
        .map(|&id| left.cell(id).compare_total(&right.cell(id)))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

#[derive(Default)]
struct Scratch {
    folder: Option<TempDir>,
    files: usize,
}

impl Scratch {
    fn write_part(&mut self, fill: impl FnOnce(&mut PartWriter<File>) -> Result<()>) -> Result<PathBuf> {
        let folder = match &self.folder {
            Some(folder) => folder,
            None => {
                let parent = std::env::temp_dir();
                let folder = TempDir::with_prefix("opcollect-merge-").context("creating a folder in", &parent)?;
                self.folder.insert(folder)
            }
        };
        let path = folder.path().join(format!("{}.parquet", self.files));
        self.files += 1;
        let mut writer = PartWriter::new(&path, File::create_new(&path).context("creating", &path)?)?;
        fill(&mut writer)?;
        writer.finish()?;
        Ok(path)
    }
}

pub(super) struct MergedRows {
    pub merge: Merge,
    pub torn: Vec<TornTail>,
    pub damage: Vec<Damage>,
}

impl Store {
    /// Returns all rows without duplicates, sorted by operator kind, task, key and time.
    pub(super) fn merged_rows(&self) -> Result<MergedRows> {
        let mut scratch = Scratch::default();
        let (mut paths, mut torn, mut damage) = (Vec::new(), Vec::new(), Vec::new());
        for path in self.list_journals()? {
            let mut reader = JournalReader::open(&path)?;
            loop {
                let rows = reader.next_rows(SEAL_AT_ROWS)?;
                if rows.is_empty() {
                    break;
                }
                let mut sorted = rows.iter().collect();
                sort_and_dedup(&mut sorted);
                paths.push(scratch.write_part(|writer| writer.push_all(&sorted))?);
            }
            torn.extend(reader.torn_tail());
            damage.extend(reader.damage());
        }
        let (parts, of_parts) = self.sound_parts()?;
        paths.extend(parts);
        damage.extend(of_parts);
        Ok(MergedRows { merge: Merge::with_scratch(paths, scratch)?, torn, damage })
    }
}
