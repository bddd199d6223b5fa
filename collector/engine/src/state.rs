//! State of this program on a machine, kept outside of stores, because other machines may also write to stores.

use crate::Result;
use crate::failure::{Failure, format_chain};
use datasets::Key;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

const MAX_BYTES: u64 = 1 << 20;

/// A file in the folder for state.
pub struct StateFile(PathBuf);

impl StateFile {
    /// Returns the state file of a `kind` that belongs to `folder`, such as a store. `state` is the folder for state.
    pub fn new(state: &Path, kind: &str, folder: &Path) -> StateFile {
        let folder = resolve_folder(folder);
        let host = nix::unistd::gethostname().unwrap_or_default();
        let text = format!("{}\n{}", host.to_string_lossy(), folder.display());
        StateFile(state.join(kind).join(format!("{}.json", Key::of_bytes(text.as_bytes()))))
    }

    /// Reads the value from the file. Returns None if the file is missing or unreadable.
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        let length = std::fs::symlink_metadata(&self.0).ok().filter(std::fs::Metadata::is_file)?.len();
        let text = (length <= MAX_BYTES).then(|| std::fs::read(&self.0).ok()).flatten()?;
        serde_json::from_slice(&text).ok()
    }

    /// Replaces the value in the file atomically.
    pub fn write<T: Serialize>(&self, value: &T) -> Result<()> {
        let folder = self.0.parent().expect("a state file has a parent folder");
        std::fs::create_dir_all(folder).map_err(Failure::of_file("create", folder))?;
        let text = serde_json::to_vec(value).map_err(Failure::environment)?;
        datasets::output::write_file(&self.0, text).map_err(|error| Failure::environment(format_chain(&error)))
    }

    /// Removes the state file.
    pub fn remove_file(&self) {
        // A file that cannot be removed does no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns the canonical path of a folder, which is the same before and after the folder is created.
fn resolve_folder(folder: &Path) -> PathBuf {
    if let Ok(path) = std::fs::canonicalize(folder) {
        return path;
    }
    match (folder.parent(), folder.file_name()) {
        (Some(parent), Some(name)) if parent.as_os_str().is_empty() => resolve_folder(Path::new(".")).join(name),
        (Some(parent), Some(name)) => resolve_folder(parent).join(name),
        _ => folder.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_its_file_once_it_exists() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", root.path().join("link")).unwrap();
        let folder = root.path().join("link/store/sentinels");
        let before = StateFile::new(root.path(), "kind", &folder);
        before.write(&"hash").unwrap();
        std::fs::create_dir_all(&folder).unwrap();
        assert_eq!(StateFile::new(root.path(), "kind", &folder).read::<String>().as_deref(), Some("hash"));
    }

    #[test]
    fn relative_folders_are_below_the_working_directory() {
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        assert_eq!(resolve_folder(Path::new("no/such/folder")), here.join("no/such/folder"));
        assert_eq!(resolve_folder(Path::new("src")), here.join("src"));
    }
}
