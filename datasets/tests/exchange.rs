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

/// A row whose columns changed after its key was computed; the hashes of its file are right.
fn changed(number: u64) -> Record {
    Record { threads: Some(64), ..measured(number) }
}

#[test]
fn merges_copy_no_part_with_a_wrong_key() {
    let (_from, from) = new_store();
    seal(&from, &[measured(1)]);
    seal(&from, &[measured(2), changed(3)]);
    let (_to, to) = new_store();
    let report = to.merge_with(&from, &|_| None).unwrap();
    assert_eq!((report.parts, report.damage.len()), (1, 1), "{report:?}");
    let damage = report.damage[0].to_string();
    assert!(damage.contains("part-") && damage.contains("the key does not match the experiment"), "{damage}");
    assert!(damage.contains("`dataset verify --quarantine`"), "{damage}");
    assert!(to.verify().unwrap().problems.is_empty());
    // The valid rows of the part follow once the part is repaired.
    from.quarantine().unwrap();
    let report = to.merge_with(&from, &|_| None).unwrap();
    assert_eq!((report.parts, report.known, report.damage.len()), (1, 1, 0), "{report:?}");
    assert_eq!(to.stats(Choose::All).unwrap().rows, 2);
}

#[test]
fn merges_copy_no_row_of_a_journal_with_a_wrong_key() {
    let (_from, from) = new_store();
    let mut running = from.start_journal(origin()).unwrap();
    for record in [measured(1), changed(2), measured(3), changed(4)] {
        running.append(&record).unwrap();
    }
    let (_to, to) = new_store();
    let report = to.merge_with(&from, &|_| None).unwrap();
    assert_eq!((report.journal_rows, report.damage.len(), report.damage[0].lines), (2, 1, Some(2)), "{report:?}");
    assert_eq!(to.stats(Choose::All).unwrap().rows, 2);
}

#[test]
fn medians_far_from_the_samples_are_refused() {
    let imported = |samples_ns: &[f64], n: i64| {
        let (folder, store) = new_store();
        seal(&store, &[Record { samples_ns: samples_ns.to_vec(), n, ..measured(1) }]);
        let path = folder.path().join("rows.jsonl");
        store.export(&path, Format::JsonLines, Choose::All).unwrap();
        let (_other, other) = new_store();
        Store::import(other.root(), &path, Format::JsonLines)
            .map(|report| report.rows)
            .map_err(|error| error.to_string())
    };
    // The median of `measured` is 1000.5 ns.
    for (samples_ns, n) in [(&[][..], 3), (&[1000.5][..], 1), (&[990.0, 2000.0], 2), (&[1001.0, 1400.0], 9)] {
        assert_eq!(imported(samples_ns, n), Ok(1), "{samples_ns:?}");
    }
    for (samples_ns, n) in [(&[1001.0, 1400.0][..], 2), (&[990.0, 999.0], 2), (&[1.0, 2.0], 9), (&[1e6], 9)] {
        let error = imported(samples_ns, n).unwrap_err();
        let is_named = error.contains("the median of 1000.5 ns contradicts the samples in `samples_ns`, from ");
        assert!(is_named && error.contains("line 1"), "{samples_ns:?}: {error}");
    }
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
    // Other outputs may lie in the folder, but replace no file of any store.
    let (_other, other) = new_store();
    let part = std::fs::read_dir(store.root().join("dataset")).unwrap().next().unwrap().unwrap().path();
    for place in [store.root().join("opcollect-store.json"), part.join("part-1.parquet"), store.root().join("hosts")] {
        let error = other.export(&place, Format::Csv, Choose::All).unwrap_err();
        assert!(matches!(error, Error::InsideStore { .. }), "{}: {error}", place.display());
    }
    other.export(&store.root().join("page.csv"), Format::Csv, Choose::All).unwrap();
    let absent = store.export(Path::new("/nowhere/rows.csv"), Format::Csv, Choose::All).unwrap_err();
    assert!(!matches!(absent, Error::InsideStore { .. }), "{absent}");
}

/// Other programs write the JSON of a row with other spaces, and an export may add the times of all visits.
#[test]
fn copies_with_other_content_are_the_same_attempt() {
    let (folder, store) = new_store();
    let visit = |number| Record { started_at_us: number, median_ns: Some(990.0 + number as f64), ..measured(1) };
    seal(&store, &[visit(1), visit(2), visit(3), measured(2)]);
    let exported = folder.path().join("rows.jsonl");
    let middle = || -> Vec<_> {
        let rows = store.select_records(Choose::Middle).unwrap().map(Result::unwrap);
        rows.map(|row| (row.key, row.attempt, row.visits_ns, row.median_low_ns, row.median_high_ns)).collect()
    };
    let before = middle();
    for choose in [Choose::All, Choose::Middle] {
        store.export(&exported, Format::JsonLines, choose).unwrap();
        let text = std::fs::read_to_string(&exported).unwrap();
        std::fs::write(&exported, text.replace("\":", "\" : ").replace("[[1,3,8,8],", "[ [1, 3,8,8],")).unwrap();
        let report = Store::import(store.root(), &exported, Format::JsonLines).unwrap();
        assert_eq!((report.rows > 0, report.new_rows), (true, 0), "{choose:?}");
        assert_eq!(store.select_records(Choose::All).unwrap().count(), 4, "{choose:?}");
        assert_eq!(middle(), before, "{choose:?}");
    }
    store.compact().unwrap();
    assert_eq!(store.stats(Choose::All).unwrap().duplicates, 0);
    assert_eq!(store.select_records(Choose::All).unwrap().count(), 4);
}
