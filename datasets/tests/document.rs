//! Tests that `docs/reference/dataset-format.md` matches the table of columns.
#![allow(missing_docs)]

use std::path::Path;

#[test]
fn the_document_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/dataset-format.md");
    let wanted = datasets::document::render_document();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/reference/dataset-format.md is out of date; run `UPDATE_GOLDEN=1 cargo test -p datasets --test document`"
    );
}
