//! Tests child processes of this program that are killed or run out of space; a variable holds the path of their store.
#![allow(missing_docs, clippy::print_stdout)] // children speak to their parent

mod common;

use common::{measured, memory_folder};
use datasets::{Choose, Error, Format, Origin, Outcome, Record, SealOptions, Store};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const STORE: &str = "DATASETS_TEST_STORE";

/// Number of kills; each round continues after the previous kill.
const ROUNDS: u64 = 100;

fn store_of_child() -> Option<Store> {
    std::env::var_os(STORE).map(|path| Store::open(&PathBuf::from(path)).unwrap())
}

fn child(test: &str, store: &Store) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]).env(STORE, store.root());
    command
}

/// Runs a child test with a file-size limit in blocks. `SIGXFSZ` is ignored, so writes over the limit return an error.
fn child_with_small_files(test: &str, store: &Store, blocks: u32) -> String {
    let mut command = Command::new("sh");
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" --exact {test} --ignored --nocapture");
    command.args(["-c", &script]).arg(std::env::current_exe().unwrap()).env(STORE, store.root());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

fn origin() -> Origin {
    Origin { host: "bench-1".into(), program: "test 0".into(), command: "test".into() }
}

fn records(store: &Store) -> Vec<Record> {
    store.select_records(Choose::All).unwrap().collect::<Result<_, _>>().unwrap()
}

fn number_after(word: &str, text: &str) -> Option<u64> {
    text.rsplit_once(word).and_then(|(_, rest)| rest.split_whitespace().next()).and_then(|number| number.parse().ok())
}

#[test]
#[ignore = "a child of `killing_a_writer_loses_at_most_the_record_in_flight`"]
fn child_writes_until_killed() {
    let Some(store) = store_of_child() else { return };
    let mut keys = store.read_keys().unwrap();
    let mut journal = store.start_journal(origin()).unwrap();
    for number in 0.. {
        let record = measured(number);
        if keys.contains(record.key) {
            continue;
        }
        journal.append(&record).unwrap();
        keys.insert(record.key, Outcome::Ok);
        println!("wrote {number}");
        if number % 7 == 6 {
            journal.seal().unwrap();
            journal = store.start_journal(origin()).unwrap();
        }
        if number % 40 == 39 {
            store.compact().unwrap();
        }
    }
}

#[test]
fn killing_a_writer_loses_at_most_the_record_in_flight() {
    let folder = memory_folder();
    let store = Store::create(&folder.path().join("store")).unwrap();
    let mut torn = 0;
    for round in 0..ROUNDS {
        let mut process = child("child_writes_until_killed", &store).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        // Kills the child a few lines into the round, at an arbitrary point of its work.
        let mut text = String::new();
        while text.matches("wrote").count() <= (round * 7 % 11) as usize {
            assert!(output.read_line(&mut text).unwrap() > 0, "the child ended by itself: {text}");
        }
        process.kill().unwrap();
        process.wait().unwrap();
        output.read_to_string(&mut text).unwrap();
        let told = number_after("wrote ", &text).expect("the loop above read a line");
        let keys = store.read_keys().unwrap();
        let count = keys.len() as u64;
        assert!(count == told + 1 || count == told + 2, "round {round}: {told} were told, {count} are there");
        assert!((0..count).all(|number| keys.contains(measured(number).key)), "round {round}: a record is missing");
        if round % 10 == 0 {
            // A kill between sealing and removing the journal leaves duplicate rows, which readers drop.
            assert_eq!(store.stats(Choose::All).unwrap().rows, count, "round {round}");
            let report = store.verify().unwrap();
            assert_eq!(report.problems, [], "round {round}");
            torn += report.torn.len();
        }
    }
    store.seal_journals(SealOptions::default()).unwrap();
    let report = store.compact().unwrap();
    let stats = store.stats(Choose::All).unwrap();
    assert_eq!((report.parts_after, stats.duplicates, stats.journals.count), (1, 0, 0), "{torn} torn tails");
    assert_eq!(store.verify().unwrap().leftovers, Vec::<PathBuf>::new());
}

#[test]
#[ignore = "a child of `a_full_disk_stops_a_journal_between_records`"]
fn child_writes_until_full() {
    let Some(store) = store_of_child() else { return };
    let mut journal = store.start_journal(origin()).unwrap();
    for number in 0.. {
        match journal.append(&measured(number)) {
            Ok(()) => {}
            Err(Error::Full { .. }) => {
                println!("wrote {number}");
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    // A record that does not fit now may fit later, and a smaller one may fit now.
    assert!(matches!(journal.append(&measured(0)), Err(Error::Full { .. })));
    assert!(std::fs::read(journal.path()).unwrap().ends_with(b"}\n"));
}

#[test]
fn a_full_disk_stops_a_journal_between_records() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(&folder.path().join("store")).unwrap();
    let text = child_with_small_files("child_writes_until_full", &store, 16);
    let wrote = number_after("wrote ", &text).unwrap();
    assert!(wrote > 3, "{text}");
    assert_eq!(records(&store).len() as u64, wrote);
    let report = store.seal_journals(SealOptions::default()).unwrap();
    assert_eq!((report.rows, report.torn), (wrote, vec![]));
}

#[test]
#[ignore = "a child of `a_full_disk_leaves_no_half_of_a_file`"]
fn child_cannot_seal_nor_export() {
    let Some(store) = store_of_child() else { return };
    let export = store.root().with_extension("csv");
    let new = store.root().with_extension("new");
    for result in [
        store.seal_journals(SealOptions::default()).map(|_| ()),
        store.export(&export, Format::Csv, Choose::All).map(|_| ()),
    ] {
        assert!(matches!(result, Err(Error::Full { .. })), "{result:?}");
    }
    let rows = store.root().with_file_name("rows.csv");
    let imported = Store::import(&new, &rows, Format::Csv);
    assert!(matches!(imported, Err(Error::Full { .. })) && !new.exists(), "{imported:?}");
    assert!(matches!(datasets::output::write_file(&rows, "half"), Err(Error::Full { .. })));
    assert!(matches!(store.start_journal(origin()), Err(Error::Full { .. })));
}

#[test]
fn a_full_disk_leaves_no_half_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(&folder.path().join("store")).unwrap();
    let mut journal = store.start_journal(origin()).unwrap();
    (0..50).for_each(|number| journal.append(&measured(number)).unwrap());
    drop(journal);
    let rows = folder.path().join("rows.csv");
    store.export(&rows, Format::Csv, Choose::All).unwrap();
    let exported = std::fs::read(&rows).unwrap();
    let before = names(folder.path());
    child_with_small_files("child_cannot_seal_nor_export", &store, 0);
    let mut after = names(folder.path());
    after.retain(|name| !name.ends_with("dataset/part_target=llvm") && !name.ends_with("part_host_class=epyc-2"));
    assert_eq!(after, before);
    assert_eq!(std::fs::read(&rows).unwrap(), exported);
    assert_eq!(records(&store).len(), 50);
}

fn names(folder: &Path) -> Vec<PathBuf> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        names.push(entry.path());
        if entry.file_type().unwrap().is_dir() {
            names.extend(self::names(&entry.path()));
        }
    }
    names.sort();
    names
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error() {
    // Permissions do not stop root, but no user can create folders here.
    let error = Store::create(Path::new("/proc/no-store-here")).unwrap_err();
    assert!(matches!(error, Error::Io { doing: "creating", .. }), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let store = Store::create(folder.path()).unwrap();
    std::fs::remove_dir(folder.path().join("journal")).unwrap();
    std::fs::write(folder.path().join("journal"), "a file").unwrap();
    assert!(matches!(store.start_journal(origin()).unwrap_err(), Error::Io { .. }));
}
