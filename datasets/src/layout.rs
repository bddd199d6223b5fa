//! Names of the files and folders of a store.

use std::path::Path;

pub(crate) const MARKER: &str = "opcollect-store.json";
pub(crate) const MANIFEST: &str = "manifest.json";

/// Files and folders of a store that must not be symbolic links, which would redirect writes and deletions.
pub(crate) const OWN: [&str; 13] = [
    MARKER,
    "claims",
    "claims/turn",
    "compact.lock",
    "configs",
    "dataset",
    "hosts",
    "journal",
    MANIFEST,
    "quarantine",
    "sentinels",
    "status",
    "_delta_log",
];

/// Returns the root of the store to which a file would belong, if any. The path is absolute and need not exist.
pub(crate) fn owning_store(path: &Path) -> Option<&Path> {
    path.ancestors().skip(1).find(|root| {
        let is_own = |name: &str| path.strip_prefix(root).is_ok_and(|inner| inner.starts_with(name));
        OWN.iter().any(|name| is_own(name)) && root.join(MARKER).is_file()
    })
}
