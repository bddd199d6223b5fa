//! Parses arbitrary texts as `model.safetensors.index.json`; the result is an error or tensors within two files.

use zoo::safetensors::list_folder;

const HEADER: &str =
    r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"I8","shape":[4],"data_offsets":[8,12]}}"#;
const DATA_BYTES: usize = 12;

pub fn run(bytes: &[u8]) {
    let root = tempfile::tempdir().expect("a temporary folder");
    let file = [&(HEADER.len() as u64).to_le_bytes(), HEADER.as_bytes(), &[0; DATA_BYTES]].concat();
    // An index must not refer to files outside of its folder.
    let inside = root.path().join("folder");
    std::fs::create_dir(&inside).expect("a folder");
    for path in [root.path().join("x"), inside.join("x"), inside.join("y")] {
        std::fs::write(path, &file).expect("a file");
    }
    std::fs::write(inside.join("model.safetensors.index.json"), bytes).expect("a file");
    let Ok(Some(entries)) = list_folder(&inside) else { return };
    for entry in entries.values() {
        assert_eq!(entry.path.parent(), Some(inside.as_path()));
        assert!(entry.offset + entry.length <= file.len() as u64);
        assert_eq!(entry.ty.size_bytes(), Some(entry.length));
    }
}
