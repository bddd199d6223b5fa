//! The store: what many processes write is all there, once, whatever happened in between.
#![allow(missing_docs)]

mod common;

use common::{failed, measured};
use datasets::store::{JournalLeft, SealReport};
use datasets::{Error, Format, Journal, Key, Origin, Outcome, Record, SealOptions, Store};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn new_store() -> (TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(&folder.path().join("store")).unwrap();
    (folder, store)
}

fn journal(store: &Store) -> Journal {
    let origin = Origin { host: "bench-1".into(), program: "test 0".into(), command: "test".into() };
    store.journal(origin).unwrap()
}

/// Writes records through a journal; sealed if wanted, else left as a running process leaves it.
fn write(store: &Store, records: &[Record]) -> SealReport {
    let mut journal = journal(store);
    records.iter().for_each(|record| journal.append(record).unwrap());
    journal.seal().unwrap()
}

fn records(store: &Store) -> Vec<Record> {
    store.records().unwrap().collect::<Result<_, _>>().unwrap()
}

fn sorted(mut records: Vec<Record>) -> Vec<Record> {
    records.sort_by(|a, b| (&a.op_kind, &a.task_hash, a.key).cmp(&(&b.op_kind, &b.task_hash, b.key)));
    records
}

/// Every file below a folder with its content.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                let name = entry.path().strip_prefix(folder).unwrap().to_owned();
                files.insert(name, std::fs::read(entry.path()).unwrap());
            }
        }
    }
    files
}

#[test]
fn records_are_there_before_and_after_sealing() {
    let (_folder, store) = new_store();
    let all: Vec<Record> = (0..20).map(measured).collect();
    let mut journal = journal(&store);
    all.iter().for_each(|record| journal.append(record).unwrap());
    assert_eq!(records(&store), sorted(all.clone()));
    assert_eq!(store.keys().unwrap().len(), 20);
    let report = journal.seal().unwrap();
    assert_eq!((report.journals, report.rows, report.parts.len()), (1, 20, 1));
    assert_eq!(records(&store), sorted(all));
    assert!(store.verify().unwrap().problems.is_empty());
    assert_eq!(std::fs::read_dir(store.root().join("journal")).unwrap().count(), 0);
}

#[test]
fn targets_and_classes_of_hosts_have_their_own_folders() {
    let (_folder, store) = new_store();
    let other = Record { host_class: "../a b".into(), ..measured(2) };
    write(&store, &[measured(1), other.clone()]);
    let names: Vec<_> =
        files(&store.root().join("dataset")).into_keys().map(|path| path.parent().unwrap().to_owned()).collect();
    assert_eq!(
        names,
        [
            Path::new("part_target=llvm/part_host_class=%2E.%2Fa%20b"),
            Path::new("part_target=llvm/part_host_class=epyc-2")
        ]
    );
    assert_eq!(records(&store), sorted(vec![measured(1), other]));
}

#[test]
fn of_two_rows_with_a_key_one_stays_wherever_they_are() {
    let (_folder, store) = new_store();
    let late = Record { started_at_us: measured(1).started_at_us + 9, ..measured(1) };
    write(&store, &[failed(1), late]);
    write(&store, &[measured(1), failed(2)]);
    let mut open = journal(&store);
    open.append(&failed(1)).unwrap();
    let expected = sorted(vec![measured(1), failed(2)]);
    assert_eq!(records(&store), expected);
    let stats = store.stats().unwrap();
    assert_eq!((stats.rows, stats.duplicates), (2, 2));
    store.compact().unwrap();
    assert_eq!(records(&store), expected);
    let keys = store.keys().unwrap();
    assert_eq!(keys.outcome(measured(1).key), Some(Outcome::Ok));
    assert_eq!(keys.outcome(measured(2).key), Some(Outcome::TimedOut));
    assert_eq!(keys.outcome(Key([7; 16])), None);
}

#[test]
fn a_running_journal_is_left_alone_and_a_dropped_one_is_sealed() {
    let (_folder, store) = new_store();
    let mut running = journal(&store);
    running.append(&measured(1)).unwrap();
    let mut dropped = journal(&store);
    dropped.append(&measured(2)).unwrap();
    drop(dropped);
    let report = store.seal(SealOptions::default()).unwrap();
    let left = JournalLeft { journal: running.path().to_owned(), reason: "its process is running".into() };
    assert_eq!((report.journals, report.rows, report.left), (1, 1, vec![left]));
    running.append(&measured(3)).unwrap();
    assert_eq!(records(&store).len(), 3);
}

#[test]
fn a_torn_tail_is_cut_and_reported() {
    let (_folder, store) = new_store();
    let mut journal = journal(&store);
    journal.append(&measured(1)).unwrap();
    let path = journal.path().to_owned();
    drop(journal);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(b"{\"schema_version\":1,\"key\":\"00");
    std::fs::write(&path, bytes).unwrap();
    let torn = store.records().unwrap().torn().to_vec();
    assert_eq!((torn.len(), torn[0].bytes), (1, 29));
    assert_eq!(store.verify().unwrap().torn, torn);
    assert_eq!(store.seal(SealOptions::default()).unwrap().torn, torn);
    assert_eq!(records(&store), [measured(1)]);
}

/// What a machine that loses power may leave of a line that spans blocks of the disk.
#[test]
fn zeros_in_the_last_line_are_a_torn_tail_and_elsewhere_damage() {
    let (_folder, store) = new_store();
    let mut journal = journal(&store);
    (1..4).for_each(|number| journal.append(&measured(number)).unwrap());
    let path = journal.path().to_owned();
    drop(journal);
    let whole = std::fs::read(&path).unwrap();
    assert!(whole.ends_with(b"}\n"), "a journal that is closed has no zeros");
    let lines: Vec<usize> =
        whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(end, _)| end + 1).collect();
    let with_zeros = |from: usize, to: usize| {
        let mut bytes = [&whole[..], &[0; 5000]].concat();
        bytes[from..to].fill(0);
        std::fs::write(&path, bytes).unwrap();
    };
    for (from, to) in
        [(lines[2], lines[2] + 50), (lines[2] + 9, lines[3] - 1), (lines[2] + 9, lines[3]), (lines[2], lines[3])]
    {
        with_zeros(from, to);
        assert_eq!(records(&store), sorted(vec![measured(1), measured(2)]), "zeros from {from} to {to}");
    }
    with_zeros(lines[1] + 9, lines[1] + 20);
    assert!(store.records().is_err());
    with_zeros(lines[0], lines[0]);
    assert_eq!(records(&store).len(), 3);
}

#[test]
fn a_journal_without_a_whole_header_holds_nothing() {
    let (_folder, store) = new_store();
    for (name, text) in [("bench-1-1-4294967295.jsonl", ""), ("bench-1-2-4294967295.jsonl", "{\"schema_ver")] {
        std::fs::write(store.root().join("journal").join(name), text).unwrap();
    }
    assert_eq!(records(&store), []);
    let report = store.seal(SealOptions { take_over: true }).unwrap();
    assert_eq!((report.journals, report.rows), (2, 0));
}

#[test]
fn a_damaged_journal_is_an_error_that_names_the_line_and_stays() {
    let (_folder, store) = new_store();
    let mut journal = journal(&store);
    journal.append(&measured(1)).unwrap();
    let path = journal.path().to_owned();
    drop(journal);
    let text = std::fs::read_to_string(&path).unwrap().replace("\"op_kind\":", "\"op_kid\":");
    std::fs::write(&path, &text).unwrap();
    let message = store.seal(SealOptions::default()).unwrap_err().to_string();
    assert!(message.contains(", line 2, field `op_kid`"), "{message}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    assert_eq!(store.verify().unwrap().problems.len(), 1);
}

#[test]
fn compaction_gives_the_same_bytes_for_any_order_of_parts() {
    let all: Vec<Record> = (0..300).map(measured).collect();
    let twice = Record { started_at_us: 1, ..measured(5) };
    let (_one, one) = new_store();
    all.chunks(40).for_each(|records| drop(write(&one, records)));
    write(&one, std::slice::from_ref(&twice));
    let (_other, other) = new_store();
    write(&other, &[twice]);
    all.rchunks(70).for_each(|records| drop(write(&other, records)));
    one.compact().unwrap();
    other.compact().unwrap();
    assert_eq!(files(one.root()), files(other.root()));
    let report = one.compact().unwrap();
    assert_eq!((report.parts_before, report.parts_after, report.rows), (1, 1, 300));
    assert_eq!(files(one.root()), files(other.root()));
}

#[test]
fn more_parts_than_are_read_at_once_compact_too() {
    let (_folder, store) = new_store();
    let all: Vec<Record> = (0..80).map(measured).collect();
    all.chunks(1).for_each(|records| drop(write(&store, records)));
    let report = store.compact().unwrap();
    assert_eq!((report.parts_before, report.parts_after, report.rows), (80, 1, 80));
    assert_eq!(records(&store), sorted(all));
}

#[test]
fn shards_merge_in_any_order_to_the_same_store() {
    let all: Vec<Record> = (0..60).map(measured).collect();
    let (_a, a) = new_store();
    let (_b, b) = new_store();
    write(&a, &all[..35]);
    write(&b, &all[25..50]);
    let mut running = journal(&b);
    all[50..].iter().for_each(|record| running.append(record).unwrap());
    let (_ab, ab) = new_store();
    let (_ba, ba) = new_store();
    ab.merge(&a).unwrap();
    ab.merge(&b).unwrap();
    let report = ba.merge(&b).unwrap();
    assert_eq!((report.parts, report.known, report.journal_rows), (1, 0, 10));
    ba.merge(&a).unwrap();
    assert_eq!(ba.merge(&b).unwrap().known, 1);
    ab.compact().unwrap();
    ba.compact().unwrap();
    assert_eq!(files(ab.root()), files(ba.root()));
    assert_eq!(records(&ab), sorted(all));
}

#[test]
fn a_part_with_another_content_than_its_name_says_is_not_taken() {
    let (_from, from) = new_store();
    let part = write(&from, &[measured(1)]).parts.remove(0);
    let mut bytes = std::fs::read(&part).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&part, bytes).unwrap();
    let (_to, to) = new_store();
    assert!(matches!(to.merge(&from).unwrap_err(), Error::Damaged { .. }));
    assert_eq!(records(&to), []);
    assert_eq!(from.verify().unwrap().problems.len(), 1);
}

#[test]
fn a_compacted_store_misses_a_lost_part() {
    let (_folder, store) = new_store();
    let part = write(&store, &[measured(1)]).parts.remove(0);
    store.compact().unwrap();
    assert!(store.verify().unwrap().problems.is_empty());
    std::fs::remove_file(part).unwrap();
    let problems = store.verify().unwrap().problems;
    assert!(problems.len() == 1 && problems[0].problem.contains("manifest"), "{problems:?}");
}

#[test]
fn every_export_imports_to_the_same_rows() {
    let (folder, store) = new_store();
    let all: Vec<Record> =
        (0..50).map(|number| if number % 7 == 0 { failed(number) } else { measured(number) }).collect();
    write(&store, &all);
    for &format in Format::ALL {
        let path = folder.path().join("export").with_extension(format.name());
        assert_eq!(store.export(&path, format).unwrap(), 50);
        let (_other, other) = new_store();
        assert_eq!(other.import(&path, format).unwrap().rows, 50);
        assert_eq!(records(&other), sorted(all.clone()));
        other.import(&path, format).unwrap();
        assert_eq!(other.stats().unwrap().parts.count, 1);
    }
}

#[test]
fn an_import_that_fails_leaves_what_was_whole() {
    let (folder, store) = new_store();
    let path = folder.path().join("wrong.csv");
    std::fs::write(&path, datasets::codec::csv::header() + "\n1,2,3\n").unwrap();
    assert!(matches!(store.import(&path, Format::Csv).unwrap_err(), Error::Row { number: 2, .. }));
    assert_eq!(records(&store), []);
}

#[test]
fn stats_count_what_is_there() {
    let (_folder, store) = new_store();
    assert_eq!(store.stats().unwrap(), Default::default());
    write(&store, &[measured(0), measured(1), failed(2)]);
    let mut open = journal(&store);
    open.append(&Record { host: "bench-2".into(), ..measured(30) }).unwrap();
    let mut stats = store.stats().unwrap();
    assert!(stats.parts.bytes > 1000 && stats.journals.bytes > 100);
    (stats.parts.bytes, stats.journals.bytes) = (0, 0);
    expect_test::expect![[r#"
        {
          "rows": 4,
          "duplicates": 0,
          "tasks": 2,
          "first_started_at_us": 1700000000000000,
          "last_started_at_us": 1700000000000030,
          "by_outcome": {
            "ok": 3,
            "timed_out": 1
          },
          "by_source": {
            "measured": 4
          },
          "by_target": {
            "llvm": 4
          },
          "by_host": {
            "bench-1": 3,
            "bench-2": 1
          },
          "by_operator": {
            "conv2d": 2,
            "dense": 2
          },
          "parts": {
            "count": 1,
            "bytes": 0
          },
          "journals": {
            "count": 1,
            "bytes": 0
          }
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&stats).unwrap());
}

#[test]
fn a_foreign_folder_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("thesis.tex"), "precious").unwrap();
    assert!(matches!(Store::create(folder.path()).unwrap_err(), Error::NotAStore { .. }));
    assert!(matches!(Store::open(folder.path()).unwrap_err(), Error::NotAStore { .. }));
    assert!(matches!(Store::open(&folder.path().join("none")).unwrap_err(), Error::NotAStore { .. }));
    assert_eq!(files(folder.path()).len(), 1);
}

#[test]
fn many_may_make_the_same_store_and_write_to_it_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("store");
    std::thread::scope(|scope| {
        for number in 0..8 {
            let root = &root;
            scope.spawn(move || {
                let store = Store::create(root).unwrap();
                write(&store, &[measured(number), measured(100)]);
                store.seal(SealOptions::default()).unwrap();
            });
        }
    });
    let store = Store::open(&root).unwrap();
    assert_eq!(records(&store).len(), 9);
    assert_eq!(store.verify().unwrap().problems, []);
}

#[test]
fn a_store_of_a_newer_program_is_refused_and_left_as_it_is() {
    let (_folder, store) = new_store();
    let marker = store.root().join("opcollect-store.json");
    std::fs::write(&marker, r#"{"store": "opcollect dataset", "schema_version": 99}"#).unwrap();
    let before = files(store.root());
    assert!(matches!(Store::create(store.root()).unwrap_err(), Error::Newer { found: 99, .. }));
    assert!(matches!(Store::open(store.root()).unwrap_err(), Error::Newer { found: 99, .. }));
    assert_eq!(files(store.root()), before);
}

#[test]
fn an_unfit_record_is_refused_before_it_is_written() {
    let (_folder, store) = new_store();
    let mut journal = journal(&store);
    let error = journal.append(&Record { median_ns: None, ..measured(1) }).unwrap_err();
    assert!(matches!(error, Error::Unfit(_)));
    journal.append(&measured(1)).unwrap();
    assert_eq!(records(&store), [measured(1)]);
}

#[test]
fn one_compaction_at_a_time() {
    let (_folder, store) = new_store();
    let lock = std::fs::File::create(store.root().join("compact.lock")).unwrap();
    lock.lock().unwrap();
    assert!(matches!(store.compact().unwrap_err(), Error::Busy { .. }));
}

#[test]
fn leftovers_of_a_crash_are_seen_and_then_removed() {
    let (_folder, store) = new_store();
    let part = write(&store, &[measured(1)]).parts.remove(0);
    let leftover = part.with_file_name(".tmp-crash");
    std::fs::write(&leftover, "PAR1").unwrap();
    assert_eq!(records(&store), [measured(1)]);
    assert_eq!(store.verify().unwrap().leftovers, std::slice::from_ref(&leftover));
    assert_eq!(store.compact().unwrap().leftovers, 1);
    assert!(!leftover.exists());
}
