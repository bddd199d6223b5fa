//! State of this program on a machine, kept outside of stores, to which other machines may write.

use super::Result;
use datasets::Key;
use engine::failure::{Failure, chain};
use measure::host::exclusive;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// Variable that names another folder for the state.
const FOLDER_VARIABLE: &str = "OPCOLLECT_STATE";

/// Largest state file, in bytes.
const MOST_BYTES: u64 = 1 << 20;

/// State file.
pub struct Kept(PathBuf);

impl Kept {
    /// Returns the state file of this kind for a folder, such as a store, on this machine.
    pub fn about(kind: &str, folder: &Path) -> Kept {
        let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let host = nix::unistd::gethostname().unwrap_or_default();
        let text = format!("{}\n{}", host.to_string_lossy(), folder.display());
        Kept(home().join(kind).join(format!("{}.json", Key::of_bytes(text.as_bytes()))))
    }

    /// Returns a state file within a folder, for tests.
    #[cfg(test)]
    pub fn within(folder: &Path, name: &str) -> Kept {
        Kept(folder.join(name))
    }

    /// Reads the value; None if the file is missing or unreadable.
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        let length = std::fs::symlink_metadata(&self.0).ok().filter(std::fs::Metadata::is_file)?.len();
        let text = (length <= MOST_BYTES).then(|| std::fs::read(&self.0).ok()).flatten()?;
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
        // A file left behind does no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns the folder of state files: the user's state folder, or else the folder of the locks.
fn home() -> PathBuf {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named(FOLDER_VARIABLE)
        .or_else(|| Some(named("XDG_STATE_HOME")?.join("opcollect")))
        .or_else(|| Some(named("HOME")?.join(".local/state/opcollect")))
        .unwrap_or_else(|| exclusive::folder().join("state"))
}
