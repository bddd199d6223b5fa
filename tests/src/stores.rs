//! Reads and writes stores for tests.

use datasets::{Choose, Key, Origin, Record, Store};
use std::path::{Path, PathBuf};

/// Returns one record per experiment, ordered by start time.
#[track_caller]
pub fn records(path: &Path) -> Vec<Record> {
    chosen(path, Choose::Middle)
}

#[track_caller]
pub fn chosen(path: &Path, choose: Choose) -> Vec<Record> {
    let store = Store::open(path).unwrap_or_else(|error| panic!("{error}"));
    let records = store.select_records(choose).unwrap_or_else(|error| panic!("{error}"));
    let mut records: Vec<Record> = records.map(|record| record.unwrap_or_else(|error| panic!("{error}"))).collect();
    records.sort_by_key(|record| record.started_at_us);
    records
}

#[track_caller]
pub fn write(path: &Path, records: &[Record]) {
    let store = Store::create(path).unwrap_or_else(|error| panic!("{error}"));
    let origin = Origin { host: "elsewhere".to_owned(), program: "test".to_owned(), command: String::new() };
    let mut journal = store.start_journal(origin).expect("a new store takes journals");
    records.iter().for_each(|record| journal.append(record).expect("a sound record"));
    journal.seal().expect("a new part");
}

pub fn keys(records: &[Record]) -> Vec<Key> {
    records.iter().map(|record| record.key).collect()
}

/// Returns the complete lines of all journals, without headers.
pub fn journal_lines(path: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for journal in files(&path.join("journal")) {
        // The journal was sealed after it was listed.
        let Ok(bytes) = std::fs::read(journal) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        lines.extend(complete.lines().skip(1).map(str::to_owned));
    }
    lines
}

/// Returns all sealed parts: path in the store, and content.
pub fn parts(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut parts: Vec<(PathBuf, Vec<u8>)> = files(&path.join("dataset"))
        .into_iter()
        .map(|part| {
            let content = std::fs::read(&part).expect("a part is readable");
            (part.strip_prefix(path).expect("it lies in the store").to_owned(), content)
        })
        .collect();
    parts.sort();
    parts
}

#[track_caller]
pub fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).expect("it lies in the folder"));
        std::fs::create_dir_all(target.parent().expect("a file lies in a folder")).expect("a folder can be made");
        std::fs::copy(&file, &target).unwrap_or_else(|error| panic!("cannot copy `{}`: {error}", file.display()));
    }
}

/// Returns all files below a folder, or nothing if it does not exist.
pub fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = folder.read_dir() else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}
