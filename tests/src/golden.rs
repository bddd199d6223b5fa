//! Golden files of generated texts. `UPDATE_GOLDEN=1 cargo test` rewrites them.

use crate::workspace::root;

/// Compares a generated text with a file, given by its path from the workspace root.
#[track_caller]
pub fn check(path: &str, actual: &str) {
    let file = root().join(path);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(file.parent().expect("a file lies in a folder")).expect("a folder can be made");
        std::fs::write(&file, actual).expect("a golden file can be written");
        return;
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    let difference = expected.lines().zip(actual.lines()).position(|(old, new)| old != new);
    let first = difference.unwrap_or(expected.lines().count().min(actual.lines().count()));
    let line = |text: &str| text.lines().nth(first).unwrap_or("(end of text)").to_owned();
    assert!(
        expected == actual,
        "`{path}` differs from line {} on; if that is intended, run again with UPDATE_GOLDEN=1\nfile:      {}\ngenerated: {}",
        first + 1,
        line(&expected),
        line(actual)
    );
}
