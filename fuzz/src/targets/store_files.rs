//! Puts arbitrary bytes into a store as each of the small files next to its records: marker, manifest, claims, status,
//! configurations and peaks. Opening the store either fails with an error or succeeds; no record is lost.
//!
//! The first byte selects the file. Content-named files get the right name. Useful seeds are such files of a store.

use datasets::peaks::Peaks;
use datasets::store::config_hash;
use datasets::{Choose, Store};

fn name(choice: u8, content: &[u8]) -> String {
    match choice % 8 {
        0 => "opcollect-store.json".to_owned(),
        1 => "manifest.json".to_owned(),
        2 => "claims/1-2-elsewhere.txt".to_owned(),
        3 => "claims/turn".to_owned(),
        4 => "status/1-2-elsewhere.json".to_owned(),
        5 => format!("configs/{}.json", config_hash(&String::from_utf8_lossy(content))),
        6 => format!("hosts/host/peaks-{}.json", blake3::hash(content).to_hex()),
        _ => "hosts/host/peaks-0.json".to_owned(),
    }
}

pub fn run(bytes: &[u8]) {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let root = folder.path().join("store");
    Store::create(&root).expect("a new store");
    let path = root.join(name(first, rest));
    std::fs::create_dir_all(path.parent().expect("it lies in the store")).expect("a folder");
    std::fs::write(&path, rest).expect("a file");
    let Ok(store) = Store::open(&root) else { return };
    let _ = (store.read_statuses(), store.read_keys(), store.stats(Choose::All), store.verify());
    let _ = (store.config_texts(), store.read_config(&config_hash(&String::from_utf8_lossy(rest))));
    let measured = store.peaks().unwrap_or_default();
    if !measured.is_empty() {
        let mut peaks = Peaks::from_measurements(&measured);
        peaks.assume_peaks(2, (1e9, 1e9), &Default::default());
        assert!(peaks.is_sound());
        let _ = (peaks.flops_per_second(1.0), peaks.bytes_per_second(3.0, 4096.0));
    }
    let mut claims = store.create_claims().expect("a folder that can be written");
    claims.claim_free(&[]).expect("files of other processes do not stop this one");
}
