//! The files that a client uploads: all in one folder, which ends with the session.

use super::{Refusal, refuse};
use std::fs;
use std::path::{Path, PathBuf};

/// A name may have so many bytes.
const NAME_BYTES_MAX: usize = 200;
/// A session may have so many files.
const FILES_MAX: usize = 4096;

/// The folder of a session.
pub struct Files {
    folder: PathBuf,
    count: usize,
}

impl Files {
    /// A folder that nobody else has.
    pub fn new(folder: &Path) -> Files {
        Files { folder: folder.to_owned(), count: 0 }
    }

    /// Where a file of this name lies; a name with folders would lead out of the session's own.
    pub fn path(&self, name: &str) -> Result<PathBuf, Refusal> {
        let is_plain = !name.is_empty()
            && name.len() <= NAME_BYTES_MAX
            && !name.starts_with('.')
            && !name.contains(['/', '\\', '\0']);
        if is_plain { Ok(self.folder.join(name)) } else { refuse(format!("`{name}` is no plain name of a file")) }
    }

    /// Stores a file. Where there was one of its name that is still loaded, that one stays as it was.
    pub fn write(&mut self, name: &str, content: &[u8]) -> Result<(), Refusal> {
        let path = self.path(name)?;
        self.count += 1;
        if self.count > FILES_MAX {
            return refuse(format!("a session stores at most {FILES_MAX} files"));
        }
        let _ = fs::remove_file(&path);
        fs::write(&path, content).map_err(|error| Refusal(format!("cannot store `{name}`: {error}")))
    }

    /// Reads a file back.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, Refusal> {
        fs::read(self.path(name)?).map_err(|error| Refusal(format!("cannot read `{name}`: {error}")))
    }

    /// Removes a file.
    pub fn remove(&mut self, name: &str) -> Result<(), Refusal> {
        fs::remove_file(self.path(name)?).map_err(|error| Refusal(format!("cannot remove `{name}`: {error}")))?;
        self.count = self.count.saturating_sub(1);
        Ok(())
    }
}
