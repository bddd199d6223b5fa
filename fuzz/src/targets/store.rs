//! Puts arbitrary bytes into a store as one of its files; all readers must return.
//!
//! The first byte selects the file: `0` a journal, `1` the manifest, `2` the marker of a store, `3` a part under its
//! right name. Useful seeds are files of a small store after such a byte.

use datasets::{Choose, SealOptions, Store};

pub fn run(bytes: &[u8]) {
    let [choice, bytes @ ..] = bytes else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = folder.path().join("store");
    Store::create(&root).expect("a new folder becomes a store");
    let part = format!("part-{}.parquet", blake3::hash(bytes).to_hex());
    let file = match choice & 3 {
        0 => root.join("journal/bench-1-4294967295.jsonl"),
        1 => root.join("manifest.json"),
        2 => root.join("opcollect-store.json"),
        _ => root.join("dataset/part_target=llvm/part_host_class=fuzz").join(part),
    };
    std::fs::create_dir_all(file.parent().expect("it lies in the store")).expect("a folder can be made");
    std::fs::write(&file, bytes).expect("a file can be written");
    let Ok(store) = Store::open(&root) else { return };
    let _ = (store.read_keys(), store.stats(Choose::Middle), store.verify());
    if let Ok(records) = store.select_records(Choose::All) {
        records.map_while(Result::ok).take(10_000).for_each(drop);
    }
    let _ = (store.seal_journals(SealOptions { take_over: true }), store.compact(), store.quarantine());
    if let Ok(report) = store.verify() {
        assert!(report.rows == 0 || report.problems.is_empty(), "{:?}", report.problems);
    }
}
