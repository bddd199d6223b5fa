//! Stores that commands open, and what is said of those that are damaged.

use crate::Result;
use crate::campaign::record::now_us;
use crate::failure::{Failure, chain};
use crate::observer::Observer;
use datasets::store::{Damage, ImportReport};
use datasets::{Format, Record, Store};
use std::path::Path;

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
