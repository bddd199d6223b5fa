//! State of this program on a machine, kept outside of stores, because other machines may write to
//! those.

use crate::Result;
use crate::failure::{Failure, chain};
use datasets::Key;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// Largest state file, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// A file in the folder for state.
pub struct StateFile(PathBuf);

impl StateFile {
    /// Returns the file of a kind for a folder, such as a store, on this machine. `state` is the
    /// folder for state.
    pub fn new(state: &Path, kind: &str, folder: &Path) -> StateFile {
        let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let host = nix::unistd::gethostname().unwrap_or_default();
        let text = format!("{}\n{}", host.to_string_lossy(), folder.display());
        StateFile(state.join(kind).join(format!("{}.json", Key::of_bytes(text.as_bytes()))))
    }

    /// Reads the value. Returns None if the file is missing or unreadable.
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        let length = std::fs::symlink_metadata(&self.0).ok().filter(std::fs::Metadata::is_file)?.len();
        let text = (length <= MAX_BYTES).then(|| std::fs::read(&self.0).ok()).flatten()?;
        serde_json::from_slice(&text).ok()
    }

    /// Replaces the value atomically.
    pub fn write<T: Serialize>(&self, value: &T) -> Result<()> {
        let folder = self.0.parent().expect("it lies in a folder");
        std::fs::create_dir_all(folder).map_err(Failure::environment)?;
        let text = serde_json::to_vec(value).map_err(Failure::environment)?;
        datasets::output::write(&self.0, text).map_err(|error| Failure::environment(chain(&error)))
    }

    /// Removes the file.
    pub fn forget(&self) {
        // A file that cannot be removed does no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}
