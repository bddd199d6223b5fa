//! Texts that are part of the product, kept in `golden/`. `UPDATE_GOLDEN=1 cargo test` writes them anew.

use std::path::Path;

/// Compares a text with the file of that name.
#[track_caller]
pub fn check(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().expect("a file lies in a folder")).expect("a folder can be made");
        std::fs::write(&path, actual).expect("a golden file can be written");
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    let difference = expected.lines().zip(actual.lines()).position(|(old, new)| old != new);
    let line = difference.unwrap_or(expected.lines().count().min(actual.lines().count())) + 1;
    assert!(
        expected == actual,
        "`{}` differs from line {line} on; if that is meant, run again with UPDATE_GOLDEN=1\n{actual}",
        path.display()
    );
}
