//! Uploaded files in the session's folder.

use super::{RequestRefusal, refuse_request};
use std::fs;
use std::path::{Path, PathBuf};

const NAME_BYTES_MAX: usize = 200;
const FILES_MAX: usize = 4096;

pub struct SessionFiles {
    folder: PathBuf,
    count: usize,
}

impl SessionFiles {
    pub fn new(folder: &Path) -> SessionFiles {
        SessionFiles { folder: folder.to_owned(), count: 0 }
    }

    /// Returns the path of a file in the folder. Rejects names that could refer to files outside of it.
    pub fn checked_path(&self, name: &str) -> Result<PathBuf, RequestRefusal> {
        let is_plain = !name.is_empty()
            && name.len() <= NAME_BYTES_MAX
            && !name.starts_with('.')
            && !name.contains(['/', '\\', '\0']);
        if is_plain { Ok(self.folder.join(name)) } else { refuse_request(format!("`{name}` is not a plain file name")) }
    }

    /// Writes a file. An existing file is removed first, so that a library loaded from it keeps its content.
    pub fn write_file(&mut self, name: &str, content: &[u8]) -> Result<(), RequestRefusal> {
        let path = self.checked_path(name)?;
        self.count += 1;
        if self.count > FILES_MAX {
            return refuse_request(format!("a session stores at most {FILES_MAX} files"));
        }
        let _ = fs::remove_file(&path);
        fs::write(&path, content).map_err(|error| RequestRefusal(format!("cannot store `{name}`: {error}")))
    }

    pub fn read_file(&self, name: &str) -> Result<Vec<u8>, RequestRefusal> {
        fs::read(self.checked_path(name)?).map_err(|error| RequestRefusal(format!("cannot read `{name}`: {error}")))
    }

    pub fn remove_file(&mut self, name: &str) -> Result<(), RequestRefusal> {
        fs::remove_file(self.checked_path(name)?)
            .map_err(|error| RequestRefusal(format!("cannot remove `{name}`: {error}")))?;
        self.count = self.count.saturating_sub(1);
        Ok(())
    }
}
