//! The store: a folder of records with any number of writers on any number of hosts.
//!
//! ```text
//! store/
//!   opcollect-store.json                         marks the folder and its schema version
//!   journal/<host>-<start>-<pid>.jsonl           one per writing process: a header, then a line per record
//!   dataset/part_target=<t>/part_host_class=<c>/part-<hash>.parquet    immutable sealed rows, named by content
//!   hosts/<host>/peaks-<hash>.json               peak rates of a host, one file per measurement
//!   claims/<start>-<pid>-<boot>.txt              experiments claimed by a running process
//!   status/<start>-<pid>-<boot>.json             progress of a running process
//!   sentinels/<class>/                           code that `opcollect night` runs repeatedly; readers ignore it
//!   configs/<hash>.json                          configurations, by the `config_hash` of records
//!   manifest.json                                parts after the last compaction
//!   quarantine/                                  damaged files
//! ```
//!
//! No file has two writers, and sealed files never change. So writers need no locks, and any tool may copy parts in any
//! order. Duplicate rows count once, and attempts are numbered when read. A crash can only leave duplicate rows or a
//! temporary file. Hashes and checksums detect damaged content, which is skipped and reported.
//!
//! Readers read journals before parts, so that the rows of a journal that is sealed in the meantime are not missed.

mod checksum;
mod chosen;
mod claims;
mod compact;
mod configs;
mod counted;
mod damage;
mod hashing;
mod identity;
mod index;
mod journal;
mod journal_reader;
mod lease;
mod merge;
mod names;
mod peaks;
mod quarantine;
mod records;
mod seal;
mod stats;
mod status;
mod tidy;
mod transfer;
mod verify;

pub use claims::{Claims, TakenClaim};
pub use compact::CompactReport;
pub use configs::config_hash;
pub use damage::Damage;
pub use index::Keys;
pub use journal::{Journal, Origin};
pub use journal_reader::JournalHeader;
pub use journal_reader::TornTail;
pub use quarantine::{QuarantineReport, SetAside};
pub use records::Records;
pub use seal::{JournalLeft, SealOptions, SealReport};
pub use stats::{Files, Stats};
pub use status::{ProcessView, Status, StatusFile};
pub use tidy::SMALL_PARTS;
pub use transfer::{ExportReport, ImportReport, MergeReport};
pub use verify::{Problem, RowCheck, VerifyReport};

use crate::error::{Error, Result};
use crate::files::{self, make_folder};
use crate::layout::{MARKER, OWN};
use crate::record::SCHEMA_VERSION;
use crate::record::key::Key;
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

const KIND: &str = "opcollect dataset";

const ATTEMPTS: usize = 8;

/// An open store: a folder of records.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Marker {
    store: String,
    schema_version: i64,
    /// Hash of the other two fields; absent in older stores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    check: Option<String>,
}

impl Marker {
    fn new() -> Marker {
        let (store, schema_version) = (KIND.to_owned(), SCHEMA_VERSION);
        let check = Some(Marker::check_of(&store, schema_version));
        Marker { store, schema_version, check }
    }

    fn check_of(store: &str, schema_version: i64) -> String {
        Key::of_bytes(format!("{store} {schema_version}").as_bytes()).to_hex()
    }

    fn parse_marker(text: &str) -> std::result::Result<Marker, String> {
        let marker: Marker = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match &marker.check {
            Some(check) if *check != Marker::check_of(&marker.store, marker.schema_version) => {
                Err("the checksum does not match".to_owned())
            }
            _ => Ok(marker),
        }
    }
}

impl Store {
    /// Opens a store without writing. Fails if the folder is not a store or its version is newer than this program.
    pub fn open(root: &Path) -> Result<Store> {
        let marker = root.join(MARKER);
        let problem = |problem: String| Error::NotAStore { folder: root.to_owned(), problem };
        let mut bytes = Vec::new();
        match std::fs::File::open(&marker).and_then(|file| file.take(1 << 16).read_to_end(&mut bytes)) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(problem(if root.exists() {
                    format!("the folder has no `{MARKER}`")
                } else {
                    "the folder does not exist".to_owned()
                }));
            }
            Err(error) => return Err(Error::io("reading", &marker, error)),
        }
        let text = String::from_utf8_lossy(&bytes);
        Store::refuse_links(root)?;
        let store = Store { root: root.to_owned() };
        let marker = match Marker::parse_marker(&text) {
            // A damaged marker is not fatal, because every part states its version.
            Err(_) if store.journal_folder().is_dir() && store.dataset_folder().is_dir() => return Ok(store),
            Err(why) => return Err(problem(format!("`{MARKER}` is unreadable: {why}"))),
            Ok(marker) => marker,
        };
        if marker.store != KIND {
            return Err(problem(format!("`{MARKER}` belongs to another program")));
        }
        if marker.schema_version > SCHEMA_VERSION {
            return Err(Error::Newer { path: root.to_owned(), found: marker.schema_version, known: SCHEMA_VERSION });
        }
        Ok(store)
    }

    fn refuse_links(root: &Path) -> Result<()> {
        let inner = files::list_all(&root.join("quarantine"))?;
        let own = OWN.iter().map(|name| root.join(name)).chain(inner);
        let is_link = |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| found.is_symlink());
        match own.into_iter().find(is_link) {
            None => Ok(()),
            Some(link) => {
                let name = link.strip_prefix(root).unwrap_or(&link).display().to_string();
                let problem = format!("`{name}` is a link, and a store must not contain links");
                Err(Error::NotAStore { folder: root.to_owned(), problem })
            }
        }
    }

    fn marker_problem(&self) -> Option<String> {
        let bytes = std::fs::read(self.root.join(MARKER)).unwrap_or_default();
        Marker::parse_marker(&String::from_utf8_lossy(&bytes)).err()
    }

    fn write_marker(&self) -> Result<()> {
        files::write_json(&self.root.join(MARKER), &Marker::new())
    }

    /// Opens a store, or creates one in a new or empty folder.
    pub fn create(root: &Path) -> Result<Store> {
        if let Some(store) = Store::check_place(root)? {
            return Ok(store);
        }
        make_folder(root)?;
        let store = Store { root: root.to_owned() };
        store.write_marker()?;
        make_folder(&store.journal_folder())?;
        make_folder(&store.dataset_folder())?;
        Ok(store)
    }

    /// Returns the store in a folder, or `None` if a store can be created there.
    pub fn check_place(root: &Path) -> Result<Option<Store>> {
        if root.join(MARKER).exists() {
            return Store::open(root).map(Some);
        }
        // Another process may be creating the same store, so temporary files are ignored and the marker is checked
        // again.
        if !files::list_matching(root, |name| !files::is_temporary(name))?.is_empty() && !root.join(MARKER).exists() {
            let problem = format!("the folder has no `{MARKER}`, but other files");
            return Err(Error::NotAStore { folder: root.to_owned(), problem });
        }
        Ok(None)
    }

    /// Returns the folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn journal_folder(&self) -> PathBuf {
        self.root.join("journal")
    }

    fn dataset_folder(&self) -> PathBuf {
        self.root.join("dataset")
    }

    fn list_parts(&self) -> Result<Vec<PathBuf>> {
        let mut parts = Vec::new();
        for folder in self.part_folders()? {
            parts.extend(files::list_matching(&folder, names::is_part)?);
        }
        Ok(parts)
    }

    fn part_folders(&self) -> Result<Vec<PathBuf>> {
        let mut folders = Vec::new();
        let targets = files::list_matching(&self.dataset_folder(), |name| name.starts_with("part_target="))?;
        for target in targets.iter().filter(|target| target.is_dir()) {
            folders.extend(files::list_matching(target, |name| name.starts_with("part_host_class="))?);
        }
        folders.retain(|folder| folder.is_dir());
        Ok(folders)
    }

    fn written_folders(&self) -> Result<Vec<PathBuf>> {
        let own = [self.root.clone(), self.journal_folder(), self.config_folder()];
        Ok([own.into(), self.part_folders()?, self.host_folders()?].concat())
    }

    fn list_journals(&self) -> Result<Vec<PathBuf>> {
        let mut journals = files::list_matching(&self.journal_folder(), is_journal)?;
        journals.retain(|path| !path.is_dir());
        Ok(journals)
    }
}

fn is_journal(name: &str) -> bool {
    name.ends_with(".jsonl")
}

/// Repeats a read if a listed file has disappeared, because another process sealed or compacted it.
fn retry_if_missing<T>(read: impl Fn() -> Result<T>) -> Result<T> {
    for _ in 1..ATTEMPTS {
        match read() {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            result => return result,
        }
    }
    read()
}
