//! What this program keeps for itself on a machine, outside of stores: others may write to those.

use super::Result;
use super::failure::{Failure, chain};
use datasets::Key;
use measure::host::exclusive;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// Names another folder.
const FOLDER_VARIABLE: &str = "OPCOLLECT_STATE";

/// Larger files are none of ours.
const MOST_BYTES: u64 = 1 << 20;

/// A file of this program's own.
pub struct Kept(PathBuf);

impl Kept {
    /// The file of some kind about a folder, such as a store, on this machine.
    pub fn about(kind: &str, folder: &Path) -> Kept {
        let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let host = nix::unistd::gethostname().unwrap_or_default();
        let text = format!("{}\n{}", host.to_string_lossy(), folder.display());
        Kept(home().join(kind).join(format!("{}.json", Key::of_bytes(text.as_bytes()))))
    }

    /// A file of a folder, for tests.
    #[cfg(test)]
    pub fn within(folder: &Path, name: &str) -> Kept {
        Kept(folder.join(name))
    }

    /// What is in it; nothing where it is not there or cannot be read.
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        let length = std::fs::symlink_metadata(&self.0).ok().filter(std::fs::Metadata::is_file)?.len();
        let text = (length <= MOST_BYTES).then(|| std::fs::read(&self.0).ok()).flatten()?;
        serde_json::from_slice(&text).ok()
    }

    /// Writes it whole, or leaves what was there.
    pub fn write<T: Serialize>(&self, value: &T) -> Result<()> {
        let folder = self.0.parent().expect("it lies in a folder");
        std::fs::create_dir_all(folder).map_err(Failure::environment)?;
        let text = serde_json::to_vec(value).map_err(Failure::environment)?;
        datasets::output::write(&self.0, text).map_err(|error| Failure::environment(chain(&error)))
    }

    /// Removes it.
    pub fn forget(&self) {
        // What is left behind is no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The folder of all such files: where programs of a user keep what is theirs, or else where the locks are.
fn home() -> PathBuf {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named(FOLDER_VARIABLE)
        .or_else(|| Some(named("XDG_STATE_HOME")?.join("opcollect")))
        .or_else(|| Some(named("HOME")?.join(".local/state/opcollect")))
        .unwrap_or_else(|| exclusive::folder().join("state"))
}
