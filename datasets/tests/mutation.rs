//! Tests that reading a damaged store returns a subset of the written rows, and no other rows.
#![allow(missing_docs)]

mod common;
#[path = "../../tests/damage.rs"]
mod damage;

use common::{measured, memory_folder};
use damage::Damage;
use datasets::{Choose, Format, Origin, Record, SealOptions, Store};
use models::Choice;
use proptest::prelude::*;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn damage() -> impl Strategy<Value = Damage> {
    let index = any::<prop::sample::Index>;
    let bytes = || {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 1..40),
            prop::sample::select(vec![&b"\n"[..], b"\0\0\0\0", b"{}\n", b"\"}\n{\"", b"\r\n", b"[[[[[[[["])
                .prop_map(<[u8]>::to_vec),
        ]
    };
    prop_oneof![
        1 => index().prop_map(Damage::Truncate),
        4 => (index(), 0..8u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        3 => (index(), bytes()).prop_map(|(at, bytes)| Damage::Overwrite(at, bytes)),
        2 => (index(), index(), 1..3000usize).prop_map(|(from, to, count)| Damage::Copy { from, to, count }),
        2 => (index(), bytes()).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
    ]
}

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    prop::collection::vec(damage(), 1..6)
}

/// A store with a compacted part, a later part and a journal of an ended process, five rows each.
struct Bench {
    _folder: TempDir,
    store: Store,
    journal: PathBuf,
    later: PathBuf,
}

fn bench() -> Bench {
    let folder = memory_folder();
    let store = Store::create(&folder.path().join("store")).unwrap();
    let write = |numbers: std::ops::Range<u64>| {
        let origin = Origin { host: "bench-1".into(), program: "test 0".into(), command: "test".into() };
        let mut journal = store.start_journal(origin).unwrap();
        numbers.for_each(|number| journal.append(&measured(number)).unwrap());
        journal
    };
    write(0..5).seal().unwrap();
    store.compact().unwrap();
    let later = write(5..10).seal().unwrap().parts.remove(0);
    let journal = write(10..15);
    let path = journal.path().to_owned();
    drop(journal);
    Bench { _folder: folder, store, journal: path, later }
}

fn change(path: &Path, damages: &[Damage]) {
    let mut bytes = std::fs::read(path).unwrap();
    damages.iter().for_each(|damage| damage.apply(&mut bytes));
    std::fs::write(path, bytes).unwrap();
}

/// Returns the numbers of the rows read, and checks that each row is unchanged.
fn numbers(store: &Store) -> HashSet<u64> {
    let rows: Vec<Record> = store.select_records(Choose::All).unwrap().map(Result::unwrap).collect();
    let number = |row: &Record| {
        let number = row.started_at_us.abs_diff(measured(0).started_at_us);
        assert_eq!(row, &Record { attempt: row.attempt, ..measured(number) });
        number
    };
    rows.iter().map(number).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_journal_costs_some_of_its_rows(damages in damages()) {
        let bench = bench();
        change(&bench.journal, &damages);
        let read = numbers(&bench.store);
        prop_assert!((0..10).all(|number| read.contains(&number)));
        prop_assert_eq!(bench.store.read_keys().unwrap().len(), read.len());
        prop_assert_eq!(bench.store.stats(Choose::Middle).unwrap().rows, read.len() as u64);
        let _ = bench.store.verify().unwrap();
        bench.store.seal_journals(SealOptions { take_over: true }).unwrap();
        prop_assert_eq!(numbers(&bench.store), read.clone());
        prop_assert!(!bench.journal.exists());
        bench.store.compact().unwrap();
        prop_assert_eq!(numbers(&bench.store), read);
        prop_assert_eq!(bench.store.verify().unwrap().problems, vec![]);
    }

    #[test]
    fn a_damaged_part_costs_its_rows_or_nothing(damages in damages()) {
        let bench = bench();
        let before = std::fs::read(&bench.later).unwrap();
        change(&bench.later, &damages);
        let is_same = std::fs::read(&bench.later).unwrap() == before;
        let expected: HashSet<u64> = (0..15).filter(|number| is_same || !(5..10).contains(number)).collect();
        prop_assert_eq!(numbers(&bench.store), expected.clone());
        bench.store.compact().unwrap();
        prop_assert_eq!(numbers(&bench.store), expected.clone());
        prop_assert_eq!(bench.store.quarantine().unwrap().is_empty(), is_same);
        prop_assert_eq!(bench.store.verify().unwrap().problems, vec![]);
        prop_assert_eq!(numbers(&bench.store), expected);
    }

    #[test]
    fn a_damaged_manifest_costs_nothing(damages in damages()) {
        let bench = bench();
        change(&bench.store.root().join("manifest.json"), &damages);
        let _ = bench.store.verify().unwrap();
        prop_assert_eq!(numbers(&bench.store).len(), 15);
        bench.store.compact().unwrap();
        prop_assert_eq!(bench.store.verify().unwrap().problems, vec![]);
        prop_assert_eq!(numbers(&bench.store).len(), 15);
    }

    #[test]
    fn a_damaged_mark_is_an_answer(damages in damages()) {
        let bench = bench();
        change(&bench.store.root().join("opcollect-store.json"), &damages);
        if let Ok(store) = Store::open(bench.store.root()) {
            prop_assert_eq!(numbers(&store).len(), 15);
        }
    }

    #[test]
    fn a_damaged_file_is_imported_whole_or_leaves_no_store(
        damages in damages(),
        format in prop::sample::select(Format::ALL),
    ) {
        let bench = bench();
        let path = bench.store.root().with_extension(format.name());
        bench.store.export(&path, format, Choose::All).unwrap();
        change(&path, &damages);
        let new = bench.store.root().with_extension("new");
        match Store::import(&new, &path, format) {
            Ok(report) => prop_assert!(report.rows <= 20, "{} rows", report.rows),
            Err(_) => prop_assert!(!new.exists()),
        }
    }
}
