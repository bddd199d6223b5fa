//! Exchanges records with other locations: push, pull, and merges of stores. A folder or a bucket receives the store's
//! parts unchanged, named by the hashes of their content, so an interrupted push resumes. A database receives rows. A
//! failed push loses no records, because the store keeps them.

mod bucket;
mod postgres;

use crate::Result;
use crate::failure::Failure;
use crate::observer::Observer;
use crate::soundness::wrong_schedule;
use crate::stores::{note_damage, note_torn, open_existing, store_failure};
pub use bucket::{Bucket, BucketServer, list_page};
use bucket::{BucketClient, ObjectCounts};
use datasets::store::MergeReport;
use datasets::{SealOptions, Store};
use measure::host::command::without_password;
pub use postgres::Database;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;

/// Address of a folder, bucket or database to exchange records with.
#[derive(Clone, Debug, PartialEq)]
pub enum Address {
    /// A folder.
    Folder(PathBuf),
    /// A folder in a bucket.
    Bucket(Bucket),
    /// A database.
    Postgres(Database),
}

impl Address {
    /// Parses `file:///folder`, `s3://bucket/folder` or `postgres://user@host/database`.
    pub fn parse(text: &str) -> Result<Address> {
        match text.split_once("://") {
            Some(("file", path)) if path.starts_with('/') => Ok(Address::Folder(PathBuf::from(path))),
            Some(("s3", rest)) => Bucket::parse(rest).map(Address::Bucket).map_err(|why| {
                Failure::usage(format!("`{text}` is not a valid destination: {why}"))
                    .with_hint("write `s3://bucket/prefix`; AWS_ENDPOINT_URL selects a server other than Amazon's")
            }),
            Some(("postgres" | "postgresql", _)) => Ok(Address::Postgres(Database::parse(text))),
            _ => Err(Failure::usage(format!("`{}` is not a valid destination", without_password(text)))
                .with_hint("write `file:///folder`, `s3://bucket/prefix` or `postgres://user@host/database`")),
        }
    }
}

/// Options of a transfer in addition to its address.
pub struct Transfer<'a> {
    /// S3 server with access keys, for transfers to and from buckets.
    pub server: &'a BucketServer,
    /// Number of the received signal, or 0. Transfers through external programs stop when it becomes non-zero.
    pub signal: &'a AtomicUsize,
    /// Receives notes about skipped parts.
    pub observer: &'a dyn Observer,
}

/// Counts of copied and skipped records of a transfer.
#[derive(Clone, Debug, Serialize)]
pub struct TransferReport {
    /// Address without a password.
    pub address: String,
    /// Parts or objects that were copied.
    pub parts: u64,
    /// Parts or objects that already existed.
    pub known: u64,
    /// Rows that were copied from journals that are not sealed yet, or into a database.
    pub rows: u64,
    /// Whether damaged parts were skipped.
    #[serde(skip)]
    pub has_losses: bool,
}

impl TransferReport {
    fn of_objects(address: &str, counts: ObjectCounts) -> TransferReport {
        let ObjectCounts { new, known, damaged } = counts;
        TransferReport { address: address.to_owned(), parts: new, known, rows: 0, has_losses: damaged > 0 }
    }
}

/// Seals a store, and copies its records to an address. Records still being written follow with the next push.
pub fn push_store(store: &Path, address: &str, transfer: &Transfer<'_>) -> Result<TransferReport> {
    Address::parse(address)?;
    let store = open_existing(store)?;
    let sealed = store.seal_journals(SealOptions::default()).map_err(store_failure)?;
    note_damage(&sealed.damage, transfer.observer);
    let report = push_sealed(&store, address, transfer)?;
    let has_losses = report.has_losses || !sealed.damage.is_empty();
    Ok(TransferReport { has_losses, ..report })
}

/// Copies the sealed records of a store to an address.
pub fn push_sealed(store: &Store, address: &str, transfer: &Transfer<'_>) -> Result<TransferReport> {
    match Address::parse(address)? {
        Address::Folder(folder) => {
            copy_store(store, &Store::create(&folder).map_err(store_failure)?, address, transfer.observer)
        }
        Address::Bucket(bucket) => {
            let client = BucketClient::new(&bucket, transfer.server, transfer.signal);
            Ok(TransferReport::of_objects(address, client.push(store)?))
        }
        Address::Postgres(database) => {
            let (rows, has_losses) = database.push(store, transfer.signal, transfer.observer)?;
            let address = database.address().to_owned();
            Ok(TransferReport { address, parts: 0, known: 0, rows, has_losses })
        }
    }
}

/// Copies the records of a folder or a bucket into a store, which is created if needed.
pub fn pull_store(store: &Path, address: &str, transfer: &Transfer<'_>) -> Result<TransferReport> {
    match Address::parse(address)? {
        Address::Folder(folder) => {
            let from = open_existing(&folder)?;
            copy_store(&from, &Store::create(store).map_err(store_failure)?, address, transfer.observer)
        }
        Address::Bucket(bucket) => {
            let client = BucketClient::new(&bucket, transfer.server, transfer.signal);
            Ok(TransferReport::of_objects(address, client.pull(store, transfer.observer)?))
        }
        Address::Postgres(_) => {
            Err(Failure::usage("records can be pulled only from folders and buckets; query a database with SQL")
                .with_hint("write `file:///folder` or `s3://bucket/prefix`, or see docs/guide/queries.md"))
        }
    }
}

fn copy_store(from: &Store, to: &Store, address: &str, observer: &dyn Observer) -> Result<TransferReport> {
    let report = to.merge_with(from, &wrong_schedule).map_err(store_failure)?;
    note_damage(&report.damage, observer);
    Ok(TransferReport {
        address: address.to_owned(),
        parts: report.parts + report.mended,
        known: report.known,
        rows: report.journal_rows,
        has_losses: !report.damage.is_empty(),
    })
}

/// Result of merging one store into another.
#[derive(Clone, Debug, Serialize)]
pub struct MergedStore {
    /// Folder of the store that was merged in.
    pub from: PathBuf,
    /// Counts of the merge.
    #[serde(flatten)]
    pub report: MergeReport,
}

/// Merges other stores into a store, which is created if needed.
pub fn merge_stores(store: &Path, others: &[PathBuf], observer: &dyn Observer) -> Result<Vec<MergedStore>> {
    let others = others.iter().map(|other| open_existing(other)).collect::<Result<Vec<_>>>()?;
    let store = Store::create(store).map_err(store_failure)?;
    let merge_one = |other: &Store| {
        let report = store.merge_with(other, &wrong_schedule).map_err(store_failure)?;
        note_torn(&report.torn, observer);
        note_damage(&report.damage, observer);
        Ok(MergedStore { from: other.root().to_owned(), report })
    };
    others.iter().map(merge_one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_folders_buckets_and_databases() {
        let parse = |text: &str| Address::parse(text).map_err(|failure| failure.message().to_owned());
        assert_eq!(parse("file:///a/b"), Ok(Address::Folder(PathBuf::from("/a/b"))));
        assert!(parse("postgres://u:p@h/d").is_ok());
        for wrong in ["file://a", "s3://UPPER", "/a/b", ""] {
            assert!(parse(wrong).is_err_and(|why| why.contains(wrong)));
        }
    }
}
