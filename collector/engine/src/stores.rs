//! Stores that commands open, and what is said of those that are damaged.

use crate::Result;
use crate::campaign::record::now_us;
use crate::failure::{Failure, chain};
use crate::observer::Observer;
use crate::soundness::wrong_schedule;
use datasets::store::{Damage, ImportReport, QuarantineReport, SealReport, TornTail, VerifyReport};
use datasets::{Format, Record, Store};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Where records go when nothing is said.
pub const DEFAULT_STORE: &str = "opcollect-data";

/// The store of a flag, made if needed.
pub fn open_store(flag: Option<&Path>) -> Result<Store> {
    let path = flag.unwrap_or(Path::new(DEFAULT_STORE));
    Store::create(path).map_err(failed)
}

/// A store that must exist.
pub fn open(path: &Path) -> Result<Store> {
    Store::open(path).map_err(failed)
}

/// What is wrong with a store or file, and whose turn it is.
pub fn failed(error: datasets::Error) -> Failure {
    let text = chain(&error);
    if error.is_of_machine() { Failure::environment(text) } else { Failure::usage(text) }
}

/// Tells an observer what was left out.
pub fn note_damage(damage: &[Damage], observer: &dyn Observer) {
    observer.notes(&damage.iter().map(ToString::to_string).collect::<Vec<_>>());
}

/// Notes journals that end in an unfinished line.
pub fn note_torn(torn: &[TornTail], observer: &dyn Observer) {
    let text = |torn: &TornTail| {
        let name = torn.journal.display();
        format!("`{name}` ended in an unfinished line of {} bytes, of the attempt in flight", torn.bytes)
    };
    observer.notes(&torn.iter().map(text).collect::<Vec<_>>());
}

/// Notes journals that were not sealed, and what was lost while sealing.
pub fn note_sealed(sealed: &SealReport, observer: &dyn Observer) {
    note_torn(&sealed.torn, observer);
    let left = sealed.left.iter().map(|left| format!("`{}` is left alone: {}", left.journal.display(), left.reason));
    observer.notes(&left.collect::<Vec<_>>());
    note_damage(&sealed.damage, observer);
}

/// Result of reading a whole store.
#[derive(Clone, Debug, Serialize)]
pub struct StoreCheck {
    /// Everything that was read, and what is wrong with it.
    #[serde(flatten)]
    pub found: VerifyReport,
    /// What was set aside before reading; None if nothing was to be set aside.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<QuarantineReport>,
    /// Folder of files that were set aside.
    #[serde(skip)]
    pub quarantine_folder: PathBuf,
}

impl StoreCheck {
    /// Returns whether nothing is or was wrong.
    pub fn is_sound(&self) -> bool {
        self.found.problems.is_empty() && self.quarantine.as_ref().is_none_or(QuarantineReport::is_empty)
    }
}

/// Reads a whole store and checks it; with `has_quarantine`, damaged files and rows are set aside before.
pub fn verify(store: &Path, has_quarantine: bool) -> Result<StoreCheck> {
    let store = open(store)?;
    let set_aside = || store.quarantine_with(&wrong_schedule).map_err(failed);
    let quarantine = has_quarantine.then(set_aside).transpose()?;
    let found = store.verify_with(&wrong_schedule).map_err(failed)?;
    Ok(StoreCheck { found, quarantine, quarantine_folder: store.root().join("quarantine") })
}

/// Returns a note on the number of times that were left out because of their versions, if there are any.
pub fn left_out_note(left_out: usize) -> Option<String> {
    (left_out > 0).then(|| format!("{left_out} times of other versions are left out; `--all-versions` uses them, too"))
}

/// Takes rows over into a store that is made if needed: as a table in one go, where a journal would wait for the disk at every
/// row.
pub fn take_over(store: &Path, records: &[Record]) -> Result<ImportReport> {
    let folder = tempfile::tempdir().map_err(Failure::environment)?;
    let path = folder.path().join("rows.parquet");
    let file = std::fs::File::create(&path).map_err(Failure::environment)?;
    let mut writer = datasets::Writer::new(&path, Format::Parquet, file).map_err(failed)?;
    records.iter().try_for_each(|record| writer.write(record)).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Store::import(store, &path, Format::Parquet).map_err(failed)
}

/// Returns when a file was last written, in microseconds since 1970; the present time if that is unknown.
pub fn modified_us(path: &Path) -> i64 {
    let modified = path.metadata().and_then(|metadata| metadata.modified());
    let since_1970 = modified.ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    since_1970.map_or_else(now_us, |time| i64::try_from(time.as_micros()).unwrap_or(i64::MAX))
}
