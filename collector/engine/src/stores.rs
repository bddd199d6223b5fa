//! Opens stores for commands, and reports damage.

use crate::Result;
use crate::campaign::record::now_us;
use crate::failure::{Failure, format_chain};
use crate::observer::Observer;
use crate::soundness::wrong_schedule;
use datasets::store::{Damage, ImportReport, QuarantineReport, SealReport, TornTail, VerifyReport};
use datasets::{Format, Record, Store};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Default folder of records.
pub const DEFAULT_STORE: &str = "opcollect-data";

/// Opens the store that an option names, or the default one, and creates it if needed.
pub fn open_store(flag: Option<&Path>) -> Result<Store> {
    let path = flag.unwrap_or(Path::new(DEFAULT_STORE));
    Store::create(path).map_err(store_failure)
}

/// Opens a store; fails if it does not exist.
pub fn open_existing(path: &Path) -> Result<Store> {
    Store::open(path).map_err(store_failure)
}

/// Converts an error of a store or file to a command failure.
pub fn store_failure(error: datasets::Error) -> Failure {
    let text = format_chain(&error);
    if error.is_of_machine() { Failure::environment(text) } else { Failure::usage(text) }
}

/// Reports to the observer which damaged parts of a store were skipped.
pub fn note_damage(damage: &[Damage], observer: &dyn Observer) {
    observer.receive_notes(&damage.iter().map(ToString::to_string).collect::<Vec<_>>());
}

/// Describes the incomplete last line of a journal.
pub fn describe_torn(torn: &TornTail) -> String {
    let name = torn.journal.display();
    format!("`{name}` ended with an unfinished line of {} bytes, from an interrupted attempt", torn.bytes)
}

/// Reports to the observer which journals end in an incomplete line.
pub fn note_torn(torn: &[TornTail], observer: &dyn Observer) {
    observer.receive_notes(&torn.iter().map(describe_torn).collect::<Vec<_>>());
}

/// Reports to the observer which journals were not sealed, and what was lost while sealing.
pub fn note_sealed(sealed: &SealReport, observer: &dyn Observer) {
    note_torn(&sealed.torn, observer);
    let left = sealed.left.iter().map(|left| format!("`{}` was not sealed: {}", left.journal.display(), left.reason));
    observer.receive_notes(&left.collect::<Vec<_>>());
    note_damage(&sealed.damage, observer);
}

/// Result of checking a whole store.
#[derive(Clone, Debug, Serialize)]
pub struct StoreCheck {
    /// Counts of the files and rows that were read, and the problems found.
    #[serde(flatten)]
    pub found: VerifyReport,
    /// Damaged files and rows that were quarantined before the check; None if that was not requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<QuarantineReport>,
    /// Folder of quarantined files.
    #[serde(skip)]
    pub quarantine_folder: PathBuf,
}

impl StoreCheck {
    /// Returns whether no problem was found and nothing was quarantined.
    pub fn is_sound(&self) -> bool {
        self.found.problems.is_empty() && self.quarantine.as_ref().is_none_or(QuarantineReport::is_empty)
    }
}

/// Reads and checks a whole store. With `has_quarantine`, damaged files and rows are first moved to quarantine.
pub fn verify_store(store: &Path, has_quarantine: bool) -> Result<StoreCheck> {
    let store = open_existing(store)?;
    let set_aside = || store.quarantine_with(&wrong_schedule).map_err(store_failure);
    let quarantine = has_quarantine.then(set_aside).transpose()?;
    let found = store.verify_with(&wrong_schedule).map_err(store_failure)?;
    Ok(StoreCheck { found, quarantine, quarantine_folder: store.root().join("quarantine") })
}

/// Returns a note on times that were skipped because of other versions of TVM or of the code; None if there are none.
pub fn left_out_note(left_out: usize) -> Option<String> {
    let times = report::format_count(left_out, "time");
    (left_out > 0).then(|| format!("skipped {times} of other versions; `--all-versions` includes them"))
}

/// Adds records to a store, created if needed, as one table, because a journal would flush to disk after every row.
pub fn import_records(store: &Path, records: &[Record]) -> Result<ImportReport> {
    let folder = tempfile::tempdir().map_err(Failure::environment)?;
    let path = folder.path().join("rows.parquet");
    let file = std::fs::File::create(&path).map_err(Failure::environment)?;
    let mut writer = datasets::Writer::new(&path, Format::Parquet, file).map_err(store_failure)?;
    records.iter().try_for_each(|record| writer.write(record)).map_err(store_failure)?;
    writer.finish().map_err(store_failure)?;
    Store::import(store, &path, Format::Parquet).map_err(store_failure)
}

/// Adds the records of a file to a store, which is created if needed. Rejects records that [`verify_store`] rejects.
pub fn import_file(store: &Path, file: &Path, format: Format) -> Result<ImportReport> {
    let unreadable = |why: &dyn std::fmt::Display| Failure::usage(format!("cannot read `{}`: {why}", file.display()));
    let metadata = file.metadata().map_err(|error| unreadable(&error))?;
    if !metadata.is_file() {
        return Err(unreadable(&"it is not a file"));
    }
    Store::import_with(store, file, format, &wrong_schedule).map_err(store_failure)
}

/// Returns the run ID of imported rows. It depends only on the imported content and the options, so that a repeated
/// import adds no rows.
pub fn import_run_id(source: &str, parts: &[&str]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    format!("{source}-import-{}", &hasher.finalize().to_hex()[..32])
}

/// Returns a file's modification time in microseconds since 1970, or the current time if it is unknown.
pub fn modified_us(path: &Path) -> i64 {
    let modified = path.metadata().and_then(|metadata| metadata.modified());
    let since_1970 = modified.ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    since_1970.map_or_else(now_us, |time| i64::try_from(time.as_micros()).unwrap_or(i64::MAX))
}
