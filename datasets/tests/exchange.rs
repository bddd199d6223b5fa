//! Tests which rows and parts a store refuses from files and other stores, and where it does not write.
#![allow(missing_docs)]

mod common;

use common::{measured, memory_folder};
use datasets::{Choose, Error, Format, Origin, Record, Store};
use std::path::Path;
use tempfile::TempDir;

fn new_store() -> (TempDir, Store) {
    let folder = memory_folder();
    let store = Store::create(&folder.path().join("store")).unwrap();
    (folder, store)
}

fn origin() -> Origin {
    Origin { host: "bench-1".into(), program: "test 0".into(), command: "test".into() }
}

fn seal(store: &Store, records: &[Record]) {
    let mut journal = store.start_journal(origin()).unwrap();
    records.iter().for_each(|record| journal.append(record).unwrap());
    journal.seal().unwrap();
}

#[test]
fn exports_into_the_store_are_refused() {
    let (folder, store) = new_store();
    seal(&store, &[measured(1)]);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(store.root(), &link).unwrap();
    for place in ["store/rows.csv", "store/dataset/rows.csv", "link/rows.csv", "store/../store/opcollect-store.json"] {
        let path = folder.path().join(place);
        let error = store.export(&path, Format::Csv, Choose::All).unwrap_err();
        assert!(matches!(error, Error::InsideStore { .. }), "{place}: {error}");
    }
    assert!(!store.root().join("rows.csv").exists() && Store::open(store.root()).is_ok());
    store.export(&folder.path().join("rows.csv"), Format::Csv, Choose::All).unwrap();
    let absent = store.export(Path::new("/nowhere/rows.csv"), Format::Csv, Choose::All).unwrap_err();
    assert!(!matches!(absent, Error::InsideStore { .. }), "{absent}");
}
