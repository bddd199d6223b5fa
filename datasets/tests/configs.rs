//! Tests that configurations travel with the records that refer to them.
#![allow(missing_docs)]

use datasets::{Error, Store};

fn store(folder: &tempfile::TempDir, name: &str) -> Store {
    Store::create(&folder.path().join(name)).unwrap()
}

#[test]
fn a_text_is_found_by_its_hash_and_merged() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (store(&folder, "one"), store(&folder, "other"));
    let hash = one.keep_config(r#"{"threads":[1]}"#).unwrap();
    assert_eq!(one.keep_config(r#"{"threads":[1]}"#).unwrap(), hash);
    assert_eq!(one.read_config(&hash).unwrap().as_deref(), Some(r#"{"threads":[1]}"#));
    assert_eq!(other.read_config(&hash).unwrap(), None);
    other.merge_with(&one, &|_| None).unwrap();
    assert_eq!(other.read_config(&hash).unwrap(), one.read_config(&hash).unwrap());
    for name in ["", "../../etc/passwd", "00000000000000000000000000000000"] {
        assert_eq!(one.read_config(name).unwrap(), None, "{name}");
    }
}

#[test]
fn a_damaged_text_is_named_not_merged_and_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (store(&folder, "one"), store(&folder, "other"));
    let hash = one.keep_config(r#"{"threads":[1]}"#).unwrap();
    let path = one.root().join("configs").join(format!("{hash}.json"));
    std::fs::write(&path, r#"{"threads":[2]}"#).unwrap();
    assert!(matches!(one.read_config(&hash), Err(Error::Damaged { .. })));
    let problems = one.verify().unwrap().problems;
    assert!(problems.len() == 1 && problems[0].file == path, "{problems:?}");
    other.merge_with(&one, &|_| None).unwrap();
    assert_eq!(other.read_config(&hash).unwrap(), None);
    one.keep_config(r#"{"threads":[1]}"#).unwrap();
    assert_eq!(one.verify().unwrap().problems, []);
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert_eq!(one.verify().unwrap().problems.len(), 1);
    assert_eq!(one.quarantine().unwrap().files.len(), 1);
    assert_eq!(one.verify().unwrap().problems, []);
}
