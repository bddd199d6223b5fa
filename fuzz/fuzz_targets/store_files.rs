//! Puts arbitrary bytes into a store as each of the small files that lie beside its records: marker, manifest, claims, status,
//! configurations and peaks. Opening the store either fails with an error or succeeds; no record is lost.
//!
//! Run with `fuzz/run store_files`; good starts are such files of a store.

#![no_main]

use datasets::{Choose, Store};
use libfuzzer_sys::fuzz_target;

const FILES: [&str; 7] = [
    "opcollect-store.json",
    "manifest.json",
    "claims/1-2-elsewhere.txt",
    "claims/turn",
    "status/1-2-elsewhere.json",
    "configs/0123456789abcdef0123456789abcdef.json",
    "hosts/host/peaks-0.json",
];

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = folder.path().join("store");
    Store::create(&root).expect("a new store");
    let path = root.join(FILES[usize::from(first) % FILES.len()]);
    std::fs::create_dir_all(path.parent().expect("it lies in the store")).expect("a folder");
    std::fs::write(&path, rest).expect("a file");
    let Ok(store) = Store::open(&root) else { return };
    let _ = (store.statuses(), store.peaks(), store.keys(), store.stats(Choose::All), store.verify());
    if let Ok(mut claims) = store.claims() {
        let _ = claims.take(&[]);
    }
});
