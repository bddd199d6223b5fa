//! A folder that appears whole or not at all: written beside its place, moved there when it is done.

use super::Result;
use super::failure::Failure;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A folder being written beside its final place.
pub struct Appearing(TempDir);

impl Appearing {
    /// Refuses a place where something is.
    pub fn begin(out: &Path) -> Result<Appearing> {
        let is_taken = out.exists() && out.read_dir().map_or(true, |mut entries| entries.next().is_some());
        if is_taken {
            return Err(Failure::usage(format!("`{}` exists and is not an empty folder", out.display()))
                .with_hint("choose another `--out`, or remove it"));
        }
        let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = tempfile::Builder::new().prefix(".opcollect-build-").tempdir_in(parent);
        folder
            .map(Appearing)
            .map_err(|error| Failure::usage(format!("cannot write to `{}`: {error}", parent.display())))
    }

    /// Where it is written.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Moves it into place.
    pub fn finish(self, out: &Path) -> Result<()> {
        if out.exists() {
            fs::remove_dir(out).map_err(Failure::environment)?;
        }
        let written = self.0.keep();
        fs::rename(&written, out).map_err(|error| {
            Failure::environment(format!("cannot move `{}` to `{}`: {error}", written.display(), out.display()))
        })
    }
}
