//! Tests that a store contains everything that many processes wrote, exactly once, despite crashes and disk errors.
#![allow(missing_docs)]

mod common;

use common::{failed, measured, memory_folder};
use datasets::store::{JournalLeft, SMALL_PARTS, SealReport};
use datasets::{Choose, Error, Format, Journal, Key, Origin, Outcome, Record, SealOptions, Store};
use models::Choice;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn new_store() -> (TempDir, Store) {
    let folder = memory_folder();
    let store = Store::create(&folder.path().join("store")).unwrap();
    (folder, store)
}

fn journal(store: &Store) -> Journal {
    let origin = Origin { host: "bench-1".into(), program: "test 0".into(), command: "test".into() };
    store.start_journal(origin).unwrap()
}

fn write(store: &Store, records: &[Record]) -> SealReport {
    let mut journal = journal(store);
    records.iter().for_each(|record| journal.append(record).unwrap());
    journal.seal().unwrap()
}

fn records(store: &Store) -> Vec<Record> {
    store.select_records(Choose::All).unwrap().collect::<Result<_, _>>().unwrap()
}

fn sorted(mut records: Vec<Record>) -> Vec<Record> {
    records.sort_by(|a, b| (&a.op_kind, &a.task_hash, a.key).cmp(&(&b.op_kind, &b.task_hash, b.key)));
    records
}

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

/// Older programs recorded zoo networks under whichever alias the user typed; reading replaces it by the current name.
#[test]
fn networks_of_the_zoo_have_one_name() {
    let (_folder, store) = new_store();
    let of_model = |number: u64, source: &str, name: &str| Record {
        model_source: Some(source.to_owned()),
        model_name: Some(name.to_owned()),
        ..measured(number)
    };
    write(&store, &[of_model(0, "local", "ResNet"), of_model(1, "local", "resnet-18"), of_model(2, "onnx", "ResNet")]);
    let mut names: Vec<_> = records(&store).into_iter().filter_map(|record| record.model_name).collect();
    names.sort();
    assert_eq!(names, ["ResNet", "resnet-18", "resnet-18"]);
}

#[test]
fn records_are_there_before_and_after_sealing() {
    let (_folder, store) = new_store();
    let all: Vec<Record> = (0..20).map(measured).collect();
    let mut journal = journal(&store);
    all.iter().for_each(|record| journal.append(record).unwrap());
    assert_eq!(records(&store), sorted(all.clone()));
    assert_eq!(store.read_keys().unwrap().len(), 20);
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

fn attempts(store: &Store, choose: Choose) -> Vec<(i64, i64)> {
    let records = store.select_records(choose).unwrap().map(Result::unwrap);
    records.map(|record| (record.attempt, record.started_at_us)).collect()
}

#[test]
fn every_attempt_is_kept_and_numbered_wherever_it_is() {
    let (folder, store) = new_store();
    let start = measured(1).started_at_us;
    let later = |seconds: i64, median: f64| Record {
        started_at_us: start + seconds,
        median_ns: Some(median),
        p95_ns: Some(1e9),
        ..measured(1)
    };
    // All attempts have number 1; the failure was first, and one attempt is in two parts and a journal.
    write(&store, &[Record { started_at_us: start - 1, ..failed(1) }, later(9, 1003.0)]);
    write(&store, &[later(9, 1003.0), failed(2)]);
    let mut open = journal(&store);
    [later(9, 1003.0), later(4, 1001.0), later(5, 1002.0)].iter().for_each(|record| open.append(record).unwrap());
    let (one, two) = ([(1, start - 1), (2, start + 4), (3, start + 5), (4, start + 9)], (1, failed(2).started_at_us));
    let check = |store: &Store| {
        let of = |chosen: &[(i64, i64)]| {
            let mut all = chosen.to_vec();
            all.push(two);
            all.sort();
            all
        };
        for (choose, chosen) in [(Choose::All, &one[..]), (Choose::Middle, &one[2..3]), (Choose::Latest, &one[3..])] {
            let mut found = attempts(store, choose);
            found.sort();
            assert_eq!(found, of(chosen), "{choose:?}");
            let stats = store.stats(choose).unwrap();
            assert_eq!(
                (stats.rows, stats.experiments, stats.measurements),
                (chosen.len() as u64 + 1, 2, 5),
                "{choose:?}"
            );
        }
    };
    check(&store);
    assert_eq!(store.stats(Choose::All).unwrap().duplicates, 2);
    let keys = store.read_keys().unwrap();
    assert_eq!(
        (keys.known_outcome(measured(1).key), keys.known_outcome(failed(2).key)),
        (Some(Outcome::Ok), Some(Outcome::TimedOut))
    );
    assert_eq!((keys.known_outcome(Key([7; 16])), keys.attempts(Key([7; 16]))), (None, 0));
    open.seal().unwrap();
    store.compact().unwrap();
    check(&store);
    assert_eq!(store.stats(Choose::All).unwrap().duplicates, 0);
    assert_eq!(store.read_keys().unwrap().attempts(measured(1).key), 4);
    assert_eq!(store.verify().unwrap().problems, []);
    // Exports to every format, imports into a store that has one of the attempts, and reads back.
    for &format in Format::ALL {
        let path = folder.path().join("all").with_extension(format.name());
        assert_eq!(store.export(&path, format, Choose::All).unwrap().rows, 5);
        let (_other, other) = new_store();
        write(&other, &[later(5, 1002.0)]);
        Store::import(other.root(), &path, format).unwrap();
        check(&other);
        let (_merged, merged) = new_store();
        merged.merge_with(&other, &|_| None).unwrap();
        merged.merge_with(&store, &|_| None).unwrap();
        check(&merged);
    }
}

#[test]
fn failed_attempts_are_counted_once() {
    let (_folder, store) = new_store();
    let start = measured(1).started_at_us;
    let lost = |attempt| Record { attempt, started_at_us: start + attempt, ..failed(1) };
    let kept = |attempt| Record { attempt, started_at_us: start + attempt, ..measured(1) };
    write(&store, &[kept(1), lost(2), kept(3), lost(4)]);
    write(&store, &[lost(2)]);
    let mut keys = store.read_keys().unwrap();
    let key = measured(1).key;
    assert_eq!((keys.known_outcome(key), keys.attempts(key), keys.failed_attempts(key)), (Some(Outcome::Ok), 4, 2));
    assert_eq!(keys.recorded_attempts(key), 4);
    keys.insert(measured(2).key, Outcome::Crashed);
    keys.insert(measured(2).key, Outcome::Crashed);
    assert_eq!(keys.failed_attempts(measured(2).key), 2);
    assert_eq!(keys.failed_attempts(measured(3).key), 0);
}

#[test]
fn a_store_moved_during_a_run_and_its_new_records_can_be_united() {
    let (folder, store) = new_store();
    let mut claims = store.create_claims().unwrap();
    let mut journal = journal(&store);
    journal.append(&measured(1)).unwrap();
    let moved = folder.path().join("moved");
    std::fs::rename(store.root(), &moved).unwrap();
    assert!(matches!(claims.claim_free(&[]), Err(Error::Gone { .. })));
    journal.append(&measured(2)).unwrap();
    drop(journal);
    assert_eq!(records(&store), sorted(vec![measured(1), measured(2)]));
    let moved = Store::open(&moved).unwrap();
    moved.merge_with(&Store::open(store.root()).unwrap(), &|_| None).unwrap();
    assert_eq!(records(&moved), sorted(vec![measured(1), measured(2)]));
}

#[test]
fn rows_of_other_places_are_counted() {
    let (_folder, store) = new_store();
    let at = |place: &str| Record { place: Some(place.to_owned()), ..measured(1) };
    write(&store, &[at("a"), at("b")]);
    write(&store, &[at("a")]);
    let stats = store.stats(Choose::All).unwrap();
    assert_eq!((stats.rows, stats.duplicates, records(&store).len()), (2, 1, 2));
}

#[test]
fn attempts_lost_with_a_damaged_part_are_not_counted() {
    let (_folder, store) = new_store();
    let visit = |attempt| Record { attempt, started_at_us: attempt, ..measured(1) };
    let lost = write(&store, &[visit(1)]).parts.remove(0);
    write(&store, &[visit(2)]);
    let counts = |store: &Store| {
        let keys = store.read_keys().unwrap();
        (keys.recorded_attempts(measured(1).key), keys.attempts(measured(1).key))
    };
    assert_eq!(counts(&store), (2, 2));
    std::fs::remove_file(lost).unwrap();
    assert_eq!(counts(&store), (1, 2), "the next attempt is the third");
}

#[test]
fn an_experiment_may_have_any_number_of_attempts() {
    let (_folder, store) = new_store();
    let start = measured(1).started_at_us;
    let many: Vec<Record> = (0..20_001).map(|number| Record { started_at_us: start + number, ..measured(1) }).collect();
    write(&store, &many[..9000]);
    write(&store, &[&many[8000..], &[measured(2), measured(7)]].concat());
    assert_eq!(store.stats(Choose::Latest).unwrap().duplicates, 1000);
    let all = attempts(&store, Choose::All);
    assert_eq!(all.iter().map(|(number, _)| *number).max(), Some(20_001));
    assert_eq!(all.len(), 20_003);
    assert_eq!(attempts(&store, Choose::Latest).len(), 3);
    assert!(attempts(&store, Choose::Latest).contains(&(20_001, start + 20_000)));
    assert!(attempts(&store, Choose::Middle).contains(&(10_001, start + 10_000)));
}

#[test]
fn a_running_journal_is_left_alone_and_a_dropped_one_is_sealed() {
    let (_folder, store) = new_store();
    let mut running = journal(&store);
    running.append(&measured(1)).unwrap();
    let mut dropped = journal(&store);
    dropped.append(&measured(2)).unwrap();
    drop(dropped);
    let report = store.seal_journals(SealOptions::default()).unwrap();
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
    let torn = store.select_records(Choose::All).unwrap().torn().to_vec();
    assert_eq!((torn.len(), torn[0].bytes), (1, 29));
    assert_eq!(store.verify().unwrap().torn, torn);
    assert_eq!(store.seal_journals(SealOptions::default()).unwrap().torn, torn);
    assert_eq!(records(&store), [measured(1)]);
}

/// Simulates a power loss during a line that spans disk blocks.
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
    assert_eq!(records(&store), sorted(vec![measured(1), measured(3)]));
    assert_eq!(store.select_records(Choose::All).unwrap().damage()[0].lines, Some(1));
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
    let report = store.verify().unwrap();
    assert!(report.problems.iter().all(|problem| problem.problem.starts_with("no header")), "{report:?}");
    assert_eq!((report.problems.len(), report.torn.len()), (2, 1));
    let report = store.seal_journals(SealOptions::default()).unwrap();
    assert_eq!((report.journals, report.left.len()), (0, 2));
    let report = store.seal_journals(SealOptions { take_over: true }).unwrap();
    assert_eq!((report.journals, report.rows), (2, 0));
    assert_eq!(store.verify().unwrap().problems, []);
}

/// Returns a journal with five records of an ended process, its content, and the starts of its lines.
fn ended_journal(store: &Store) -> (PathBuf, Vec<u8>, Vec<usize>) {
    let mut journal = journal(store);
    (0..5).for_each(|number| journal.append(&measured(number)).unwrap());
    let path = journal.path().to_owned();
    drop(journal);
    let bytes = std::fs::read(&path).unwrap();
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(end, _)| end + 1);
    let starts = std::iter::once(0).chain(ends).collect();
    (path, bytes, starts)
}

#[test]
fn a_damaged_byte_anywhere_in_a_journal_costs_its_line_and_nothing_else() {
    let (_folder, store) = new_store();
    let (path, whole, starts) = ended_journal(&store);
    for place in (0..whole.len()).step_by(97).chain(starts[1..].iter().map(|start| start - 1)) {
        for bit in [0, 7] {
            let mut bytes = whole.clone();
            bytes[place] ^= 1 << bit;
            std::fs::write(&path, &bytes).unwrap();
            let line = starts.iter().rposition(|start| *start <= place).unwrap();
            let told = format!("bit {bit} of byte {place}, in line {line}");
            // A lost line end damages the next line, too.
            let lost = if whole[place] == b'\n' { line..line + 2 } else { line..line + 1 };
            let is_last = place == whole.len() - 1;
            let expected: Vec<Record> = (0..5).filter(|n| !lost.contains(&(*n as usize + 1))).map(measured).collect();
            let found = store.select_records(Choose::All).unwrap();
            assert!(is_last || found.damage().len() == 1, "{told}: {:?}", found.damage());
            assert_eq!(found.map(Result::unwrap).collect::<Vec<_>>(), sorted(expected.clone()), "{told}");
            assert_eq!(store.read_keys().unwrap().len(), expected.len(), "{told}");
            assert_eq!(store.stats(Choose::All).unwrap().rows, expected.len() as u64, "{told}");
            assert!(is_last || !store.verify().unwrap().problems.is_empty(), "{told}");
        }
    }
}

#[test]
fn a_damaged_line_is_set_aside_when_its_journal_is_sealed() {
    let (_folder, store) = new_store();
    let (path, mut bytes, starts) = ended_journal(&store);
    bytes[starts[2] + 40] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let report = store.seal_journals(SealOptions::default()).unwrap();
    assert_eq!((report.rows, report.damage.len(), report.damage[0].lines), (4, 1, Some(1)));
    assert!(report.damage[0].problem.starts_with("line 3: "), "{:?}", report.damage);
    assert!(!path.exists());
    assert_eq!(std::fs::read(&report.damage[0].file).unwrap(), bytes, "what is set aside stays as it was");
    assert_eq!(store.quarantined_files().unwrap(), [report.damage[0].file.clone()]);
    let report = store.verify().unwrap();
    assert_eq!((report.problems, report.quarantined.len(), report.rows), (vec![], 1, 4));
}

/// Simulates journals from before checksums.
#[test]
fn lines_without_a_checksum_are_read() {
    let (_folder, store) = new_store();
    let (path, bytes, _) = ended_journal(&store);
    let text = String::from_utf8(bytes).unwrap();
    let text = text.replace("\"has_checksums\":true,", "").replace(",\"lease_seconds\":900", "");
    let plain = |line: &str| line.split(",\"checksum\"").next().unwrap().to_owned() + "}\n";
    std::fs::write(&path, text.lines().map(plain).collect::<String>()).unwrap();
    assert_eq!(records(&store).len(), 5);
    assert_eq!(store.verify().unwrap().problems, []);
    assert_eq!(store.seal_journals(SealOptions::default()).unwrap().rows, 5);
}

/// Changes the boot in a journal's header, as if another host wrote it, and releases its lock.
fn of_another_boot(path: &Path) {
    let text = std::fs::read_to_string(path).unwrap();
    let (header, lines) = text.split_once('\n').unwrap();
    let header = header.split(",\"checksum\"").next().unwrap().to_owned() + "}";
    let mut header: serde_json::Value = serde_json::from_str(&header).unwrap();
    header["process"]["boot"] = "another".into();
    header["has_checksums"] = false.into();
    std::fs::write(path, format!("{header}\n{lines}")).unwrap();
}

/// Two hosts may share a machine ID and a file system without working locks.
#[test]
fn a_journal_of_another_boot_is_left_alone_until_its_lease_runs_out() {
    let (_folder, store) = new_store();
    let (path, ..) = ended_journal(&store);
    of_another_boot(&path);
    let report = store.seal_journals(SealOptions::default()).unwrap();
    assert_eq!((report.journals, report.left.len()), (0, 1));
    assert!(path.exists());
    let hour_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(hour_ago).unwrap();
    assert_eq!(store.seal_journals(SealOptions::default()).unwrap().rows, 5);
    // A journal without a lease, from an older version, is never taken over automatically.
    let (path, ..) = ended_journal(&store);
    of_another_boot(&path);
    let text = std::fs::read_to_string(&path).unwrap().replace("\"lease_seconds\":900", "\"lease_seconds\":null");
    std::fs::write(&path, text).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(hour_ago).unwrap();
    assert_eq!(store.seal_journals(SealOptions::default()).unwrap().left.len(), 1);
    assert_eq!(store.seal_journals(SealOptions { take_over: true }).unwrap().rows, 5);
}

#[test]
fn a_writer_whose_journal_is_taken_away_begins_another_with_all_it_has() {
    let (_folder, store) = new_store();
    let mut journal = journal(&store);
    (0..24).for_each(|number| journal.append(&measured(number)).unwrap());
    let first = journal.path().to_owned();
    std::fs::remove_file(&first).unwrap();
    (24..40).for_each(|number| journal.append(&measured(number)).unwrap());
    assert_ne!(journal.path(), first);
    assert_eq!(records(&store).len(), 40);
    // Another file with the same name is not the journal either.
    let second = journal.path().to_owned();
    std::fs::rename(&second, store.root().join("elsewhere")).unwrap();
    std::fs::write(&second, "").unwrap();
    journal.append(&measured(40)).unwrap();
    std::fs::remove_file(journal.path()).unwrap();
    let report = journal.seal().unwrap();
    assert_eq!(report.rows, 41, "taken away after the last record");
    assert_eq!(records(&store).len(), 41);
    let mut dropped = self::journal(&store);
    dropped.append(&measured(50)).unwrap();
    std::fs::remove_file(dropped.path()).unwrap();
    drop(dropped);
    assert_eq!(records(&store).len(), 42);
}

fn two_parts(store: &Store) -> (PathBuf, Vec<u8>) {
    write(store, &(0..40).map(measured).collect::<Vec<_>>());
    let part = write(store, &(40..100).map(measured).collect::<Vec<_>>()).parts.remove(0);
    let content = std::fs::read(&part).unwrap();
    (part, content)
}

#[test]
fn a_part_with_a_flipped_bit_is_never_used_nor_replaced() {
    let (folder, store) = new_store();
    let (part, content) = two_parts(&store);
    let rest: Vec<Record> = sorted((0..40).map(measured).collect());
    for place in (0..content.len()).step_by(content.len() / 12) {
        let mut bytes = content.clone();
        bytes[place] ^= 1 << (place % 8);
        std::fs::write(&part, &bytes).unwrap();
        let damage = || store.stats(Choose::All).unwrap().damage;
        assert_eq!((damage().len(), damage()[0].file.clone()), (1, part.clone()), "byte {place}");
        assert_eq!((records(&store), store.read_keys().unwrap().len()), (rest.clone(), 40), "byte {place}");
        let out = folder.path().join("out.csv");
        let report = store.export(&out, Format::Csv, Choose::All).unwrap();
        assert_eq!((report.rows, report.damage.len()), (40, 1), "byte {place}");
        let report = store.compact().unwrap();
        assert_eq!((report.rows, report.damage.len()), (40, 1), "byte {place}");
        assert_eq!(std::fs::read(&part).unwrap(), bytes, "byte {place}: it is left as it is");
    }
    // An intact copy from another store replaces the damaged file of the same name.
    let (_other, other) = new_store();
    two_parts(&other);
    assert_eq!(store.merge_with(&other, &|_| None).unwrap().mended, 1);
    assert_eq!(records(&store).len(), 100);
    assert_eq!(store.verify().unwrap().problems, []);
}

#[test]
fn a_damaged_part_is_set_aside_and_its_rows_are_said_to_be_lost() {
    let (_folder, store) = new_store();
    let (part, mut content) = two_parts(&store);
    store.compact().unwrap();
    let compacted = files(&store.root().join("dataset")).into_keys().next().unwrap();
    let compacted = store.root().join("dataset").join(compacted);
    assert!(!part.exists());
    content[200] ^= 4;
    std::fs::write(&part, &content).unwrap();
    let mut bytes = std::fs::read(&compacted).unwrap();
    let end = bytes.len() - 1;
    bytes[end] ^= 1;
    std::fs::write(&compacted, &bytes).unwrap();
    let mut report = store.quarantine().unwrap();
    report.files.sort_by_key(|aside| aside.rows_lost);
    let lost: Vec<_> = report.files.iter().map(|aside| (aside.file.clone(), aside.rows_lost)).collect();
    // The row count is in the footer of one part and in the manifest for the other.
    assert_eq!(lost, [(part, Some(60)), (compacted, Some(100))]);
    assert_eq!(std::fs::read(&report.files[0].to).unwrap(), content);
    let after = store.verify().unwrap();
    assert_eq!((after.problems, after.quarantined.len(), records(&store).len()), (vec![], 2, 0));
    assert!(store.quarantine().unwrap().is_empty());
}

/// The row is intact but has a wrong key.
#[test]
fn an_import_without_rows_creates_no_store() {
    let folder = tempfile::tempdir().unwrap();
    let empty = Store::create(&folder.path().join("empty")).unwrap();
    for &format in Format::ALL {
        let path = folder.path().join("rows").with_extension(format.name());
        empty.export(&path, format, Choose::All).unwrap();
        let new = folder.path().join("new");
        assert_eq!(Store::import(&new, &path, format).unwrap().rows, 0, "{format:?}");
        assert!(!new.exists(), "{format:?}");
    }
}

#[test]
fn a_row_with_the_key_of_another_experiment_is_found_and_the_others_are_kept() {
    let (_folder, store) = new_store();
    let stranger = Record { key: Key([9; 16]), ..measured(3) };
    let other = Record { key: Key([8; 16]), ..measured(4) };
    let part = write(&store, &[measured(1), stranger.clone(), other, measured(2)]).parts.remove(0);
    let mut open = journal(&store);
    open.append(&stranger).unwrap();
    let found = store.verify().unwrap();
    let problems = found.problems;
    assert_eq!((found.rows, problems.len()), (5, 2));
    assert!(problems.iter().all(|found| found.problem.contains("key")), "{problems:?}");
    assert!(problems[1].problem.ends_with("; 1 more row has a problem"), "{problems:?}");
    drop(open);
    std::fs::remove_dir_all(store.root().join("journal")).unwrap();
    let report = store.quarantine().unwrap();
    assert_eq!((report.files.len(), report.files[0].rows_lost), (1, Some(2)));
    assert!(!part.exists());
    assert_eq!(records(&store), sorted(vec![measured(1), measured(2)]));
    assert_eq!(store.verify().unwrap().problems, []);
}

#[test]
fn a_damaged_manifest_stops_nothing() {
    let (_folder, store) = new_store();
    two_parts(&store);
    store.compact().unwrap();
    std::fs::write(store.root().join("manifest.json"), b"\xff{").unwrap();
    assert_eq!(store.verify().unwrap().problems.len(), 1);
    assert_eq!(records(&store).len(), 100);
    assert_eq!(store.compact().unwrap().rows, 100);
    assert_eq!(store.verify().unwrap().problems, []);
    std::fs::write(store.root().join("manifest.json"), "{").unwrap();
    assert_eq!(store.quarantine().unwrap().files.len(), 1);
    assert_eq!(store.verify().unwrap().problems, []);
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
    assert_eq!((report.parts_before, report.parts_after, report.rows), (1, 1, 301));
    assert_eq!(files(one.root()), files(other.root()));
}

#[test]
fn more_parts_than_are_read_at_once_compact_too() {
    let (_folder, store) = new_store();
    let all: Vec<Record> = (0..260).map(measured).collect();
    all.chunks(1).for_each(|records| drop(write(&store, records)));
    let report = store.compact().unwrap();
    assert_eq!((report.parts_before, report.parts_after, report.rows), (260, 1, 260));
    assert_eq!(records(&store), sorted(all));
}

#[test]
fn small_parts_are_merged_where_there_are_many() {
    let (_folder, store) = new_store();
    let all: Vec<Record> = (0..140).map(measured).collect();
    // A part left by a compaction may be small, too, and must stay in the manifest.
    write(&store, &all[..2]);
    store.compact().unwrap();
    let (mut merged, mut most) = (0, 0);
    for record in &all[2..] {
        write(&store, std::slice::from_ref(record));
        merged += store.merge_small_parts().unwrap();
        most = most.max(store.stats(Choose::All).unwrap().parts.count);
    }
    // 65 parts become one, and so do that one and 64 others.
    assert_eq!((merged, most), (130, SMALL_PARTS as u64));
    assert_eq!(records(&store), sorted(all));
    assert!(store.verify().unwrap().problems.is_empty());
}

#[test]
fn small_parts_are_left_to_who_compacts_and_damaged_ones_alone() {
    let (_folder, store) = new_store();
    let all: Vec<Record> = (0..67).map(measured).collect();
    let parts: Vec<PathBuf> = all.iter().flat_map(|record| write(&store, std::slice::from_ref(record)).parts).collect();
    let lock = std::fs::File::create(store.root().join("compact.lock")).unwrap();
    lock.lock().unwrap();
    assert_eq!(store.merge_small_parts().unwrap(), 0);
    drop(lock);
    let mut flipped = std::fs::read(&parts[0]).unwrap();
    flipped[100] ^= 1;
    std::fs::write(&parts[0], flipped).unwrap();
    std::fs::write(&parts[1], b"PAR1").unwrap();
    assert_eq!(store.merge_small_parts().unwrap(), 65);
    assert!(parts[..2].iter().all(|part| part.exists()), "they are evidence");
    assert_eq!(records(&store), sorted(all[2..].to_vec()));
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
    ab.merge_with(&a, &|_| None).unwrap();
    ab.merge_with(&b, &|_| None).unwrap();
    let report = ba.merge_with(&b, &|_| None).unwrap();
    assert_eq!((report.parts, report.known, report.journal_rows), (1, 0, 10));
    ba.merge_with(&a, &|_| None).unwrap();
    assert_eq!(ba.merge_with(&b, &|_| None).unwrap().known, 1);
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
    let report = to.merge_with(&from, &|_| None).unwrap();
    assert_eq!((report.parts, report.damage.len(), records(&to)), (0, 1, vec![]));
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
        assert_eq!(store.export(&path, format, Choose::All).unwrap().rows, 50);
        let (_other, other) = new_store();
        assert_eq!(Store::import(other.root(), &path, format).unwrap().rows, 50);
        assert_eq!(records(&other), sorted(all.clone()));
        Store::import(other.root(), &path, format).unwrap();
        assert_eq!(other.stats(Choose::All).unwrap().parts.count, 1);
    }
}

#[test]
fn an_import_that_fails_leaves_what_was_whole() {
    let (folder, store) = new_store();
    let path = folder.path().join("wrong.csv");
    std::fs::write(&path, datasets::codec::csv::header_line() + "\n1,2,3\n").unwrap();
    assert!(matches!(Store::import(store.root(), &path, Format::Csv).unwrap_err(), Error::Row { number: 2, .. }));
    assert_eq!(records(&store), []);
    // More rows than are sealed at once, with an invalid last one: neither rows nor a store are created.
    let new = folder.path().join("new");
    write(&store, &[measured(1)]);
    store.export(&path, Format::Csv, Choose::All).unwrap();
    let good = std::fs::read_to_string(&path).unwrap();
    let row = good.lines().last().unwrap();
    std::fs::write(&path, [&good, &format!("{row}\n").repeat(50_001), "1,2,3\n"].concat()).unwrap();
    assert!(matches!(Store::import(&new, &path, Format::Csv).unwrap_err(), Error::Row { .. }));
    assert!(!new.exists());
    assert!(matches!(Store::import(folder.path(), &path, Format::Csv).unwrap_err(), Error::NotAStore { .. }));
}

/// Verification would reject such a row in the store.
#[test]
fn a_row_with_the_key_of_another_experiment_is_not_imported() {
    let (folder, store) = new_store();
    write(&store, &[measured(1), Record { key: Key([9; 16]), ..measured(3) }, measured(2)]);
    for &format in Format::ALL {
        let path = folder.path().join("export").with_extension(format.name());
        store.export(&path, format, Choose::All).unwrap();
        let exported: Vec<Record> = datasets::read_records(&path, format).unwrap().map(Result::unwrap).collect();
        let place = exported.iter().position(|record| record.key == Key([9; 16])).unwrap() as u64;
        let header = u64::from(format == Format::Csv);
        let new = folder.path().join("new");
        let refused = Store::import(&new, &path, format).unwrap_err();
        assert!(matches!(refused, Error::Row { number, .. } if number == place + 1 + header), "{refused}");
        assert!(refused.to_string().contains("the key does not match the experiment"), "{refused}");
        assert!(!new.exists());
    }
}

#[test]
fn a_repeated_import_adds_only_new_rows() {
    let (folder, store) = new_store();
    let path = folder.path().join("rows.jsonl");
    let import = |records: &[Record], into: &Store| {
        let (_source, source) = new_store();
        write(&source, records);
        source.export(&path, Format::JsonLines, Choose::All).unwrap();
        let report = Store::import(into.root(), &path, Format::JsonLines).unwrap();
        (report.rows, report.new_rows)
    };
    assert_eq!(import(&[measured(1), measured(2)], &store), (2, 2));
    assert_eq!(import(&[measured(1), measured(2)], &store), (2, 0));
    assert_eq!(import(&[measured(2), measured(3)], &store), (2, 1));
    // A later attempt at a known experiment is new.
    assert_eq!(import(&[Record { started_at_us: 1, ..measured(3) }], &store), (1, 1));
}

#[test]
fn stats_count_what_is_there() {
    let (_folder, store) = new_store();
    assert_eq!(store.stats(Choose::Middle).unwrap(), Default::default());
    write(&store, &[measured(0), measured(1), failed(2)]);
    let mut open = journal(&store);
    open.append(&Record { host: "bench-2".into(), ..measured(30) }).unwrap();
    let mut stats = store.stats(Choose::Middle).unwrap();
    assert!(stats.parts.bytes > 1000 && stats.journals.bytes > 100);
    (stats.parts.bytes, stats.journals.bytes) = (0, 0);
    expect_test::expect![[r#"
        {
          "rows": 4,
          "experiments": 4,
          "measurements": 4,
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
          },
          "damage": []
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&stats).unwrap());
}

#[test]
fn a_foreign_folder_is_refused_and_left_as_it_is() {
    let folder = memory_folder();
    std::fs::write(folder.path().join("thesis.tex"), "precious").unwrap();
    assert!(matches!(Store::create(folder.path()).unwrap_err(), Error::NotAStore { .. }));
    assert!(matches!(Store::open(folder.path()).unwrap_err(), Error::NotAStore { .. }));
    assert!(matches!(Store::open(&folder.path().join("none")).unwrap_err(), Error::NotAStore { .. }));
    assert_eq!(files(folder.path()).len(), 1);
}

#[test]
fn many_may_make_the_same_store_and_write_to_it_at_once() {
    let folder = memory_folder();
    let root = folder.path().join("store");
    std::thread::scope(|scope| {
        for number in 0..8 {
            let root = &root;
            scope.spawn(move || {
                let store = Store::create(root).unwrap();
                write(&store, &[measured(number), measured(100)]);
                store.seal_journals(SealOptions::default()).unwrap();
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

#[test]
fn folders_and_files_in_each_others_place_stop_nobody_and_are_named() {
    let (_folder, store) = new_store();
    let part = write(&store, &[measured(1), measured(2)]).parts.remove(0);
    let root = store.root();
    let folders = [
        root.join("journal/stray.jsonl"),
        part.with_file_name(format!("part-{}.parquet", "0".repeat(64))),
        root.join("configs").join(format!("{}.json", "0".repeat(32))),
        root.join("hosts/bench-1/peaks-0.json"),
    ];
    folders.iter().for_each(|folder| std::fs::create_dir_all(folder).unwrap());
    let files = [
        root.join("journal/notes.txt"),
        root.join("dataset/part_target=cuda"),
        part.parent().unwrap().with_file_name("part_host_class=none"),
        // Some tools copy parts without their partition folders.
        root.join("dataset").join(part.file_name().unwrap()),
        root.join("hosts/notes.txt"),
    ];
    files.iter().for_each(|file| std::fs::write(file, "mine").unwrap());
    let leftover = root.join("hosts/bench-1/.tmp-crash");
    std::fs::write(&leftover, "").unwrap();

    assert_eq!(sorted(records(&store)), [measured(2), measured(1)]);
    assert_eq!((store.stats(Choose::Middle).unwrap().rows, store.read_keys().unwrap().len()), (2, 2));
    let (_other_folder, other) = new_store();
    assert_eq!(other.merge_with(&store, &|_| None).unwrap().parts, 1);
    assert_eq!(other.verify().unwrap().problems, []);
    assert_eq!(store.compact().unwrap().rows, 2);
    assert!(!leftover.exists());
    let named: Vec<PathBuf> = store.verify().unwrap().problems.into_iter().map(|problem| problem.file).collect();
    let wanted: Vec<&PathBuf> = folders.iter().chain(&files).collect();
    assert_eq!(named.len(), wanted.len(), "{named:?}");
    assert!(wanted.iter().all(|path| named.contains(path)), "{named:?}");
    store.quarantine().unwrap();
    assert_eq!(store.verify().unwrap().rows, 2);
}

/// A pipe would block a reader, and a link would redirect writes.
#[test]
fn pipes_are_passed_over_and_links_are_refused() {
    let (folder, store) = new_store();
    write(&store, &[measured(1)]);
    let root = store.root();
    for name in ["journal/pipe.jsonl", "claims/1-2-x.txt", "status/1-2-x.json", "configs/0.json", "hosts/peaks-0.json"]
    {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    }
    assert_eq!(store.stats(Choose::All).unwrap().rows, 1);
    assert_eq!(store.seal_journals(SealOptions::default()).unwrap().journals, 0);
    store.verify().unwrap();
    store.read_statuses().unwrap();
    store.create_claims().unwrap().claim_free(&[]).unwrap();
    let precious = folder.path().join("precious");
    std::fs::create_dir(&precious).unwrap();
    for name in ["claims", "journal", "quarantine/journal", "claims/turn", "compact.lock", "dataset"] {
        let copy = folder.path().join("copy");
        let store = Store::create(&copy).unwrap();
        let path = store.root().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = std::fs::remove_dir(&path);
        std::os::unix::fs::symlink(&precious, &path).unwrap();
        let refused = Store::open(&copy).unwrap_err().to_string();
        assert!(refused.contains(&format!("`{name}` is a link")), "{refused}");
        std::fs::remove_dir_all(&copy).unwrap();
    }
}

/// Skipped links would hide their records: a store that lost them would be called sound.
#[test]
fn links_to_parts_and_journals_are_refused() {
    for name in ["dataset/part_target=cpu", "dataset/part_target=cpu/part_host_class=c", "PART", "journal/a.jsonl"] {
        let (folder, store) = new_store();
        let report = write(&store, &[measured(1)]);
        let part = report.parts[0].clone();
        let mut folders = part.ancestors().skip(1);
        let path = match name {
            "PART" => part.clone(),
            "dataset/part_target=cpu" => folders.nth(1).unwrap().to_owned(),
            "journal/a.jsonl" => store.root().join(name),
            _ => folders.next().unwrap().to_owned(),
        };
        let moved = folder.path().join("moved");
        if path.exists() {
            std::fs::rename(&path, &moved).unwrap();
        }
        std::os::unix::fs::symlink(&moved, &path).unwrap();
        let other = Store::create(&folder.path().join("other")).unwrap();
        let export = folder.path().join("out.csv");
        for refused in [
            store.verify().map(drop),
            store.stats(Choose::All).map(drop),
            other.merge_with(&store, &|_| None).map(drop),
            store.export(&export, Format::Csv, Choose::All).map(drop),
        ] {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(&format!("`{}`", path.display())) && refused.contains("is a link"), "{refused}");
        }
    }
}

/// A flipped bit in the marker does not block a store, because each part has its own version.
#[test]
fn a_damaged_marker_is_named_and_written_anew() {
    let (_folder, store) = new_store();
    write(&store, &[measured(1), measured(2)]);
    let marker = store.root().join("opcollect-store.json");
    let sound = std::fs::read(&marker).unwrap();
    for place in 0..sound.len() {
        for bit in 0..8 {
            let mut flipped = sound.clone();
            flipped[place] ^= 1 << bit;
            std::fs::write(&marker, &flipped).unwrap();
            let opened = Store::open(store.root()).unwrap();
            assert_eq!(opened.stats(Choose::All).unwrap().rows, 2, "byte {place}, bit {bit}");
        }
    }
    std::fs::write(&marker, "{").unwrap();
    let problems = store.verify().unwrap().problems;
    assert!(problems.iter().any(|problem| problem.file == marker), "{problems:?}");
    store.quarantine().unwrap();
    assert_eq!(std::fs::read(&marker).unwrap(), sound);
    assert!(store.verify().unwrap().problems.is_empty());
}
