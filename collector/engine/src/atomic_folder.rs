//! Atomic creation of folders: written under a temporary name next to the destination, renamed when complete; and
//! temporary folders, of which those of killed processes are removed by the next process.

use crate::Result;
use crate::failure::Failure;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// A folder that is written under a temporary name next to its destination.
pub struct AtomicFolder(TemporaryFolder);

/// A folder that is removed when it is dropped.
pub struct TemporaryFolder {
    folder: TempDir,
    /// Holds a lock on the folder while it is used, on file systems that support locks.
    _lock: File,
}

const PREFIX: &str = ".opcollect-build-";

impl TemporaryFolder {
    /// Creates a folder whose name starts with `prefix`, and removes those that killed processes left behind.
    pub fn create_in(parent: &Path, prefix: &str) -> std::io::Result<TemporaryFolder> {
        remove_abandoned(parent, prefix);
        let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
        let lock = File::open(folder.path())?;
        // Network file systems may not support locks. There, `remove_abandoned` uses the age of a folder.
        let _ = lock.lock();
        Ok(TemporaryFolder { folder, _lock: lock })
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl AtomicFolder {
    /// Creates the temporary folder. Fails if something exists at the destination.
    pub fn create_temporary(out: &Path) -> Result<AtomicFolder> {
        let is_taken = out.exists() && out.read_dir().map_or(true, |mut entries| entries.next().is_some());
        if is_taken {
            return Err(Failure::usage(format!("`{}` exists and is not an empty folder", out.display()))
                .with_hint("choose another `--out`, or remove the folder"));
        }
        let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        TemporaryFolder::create_in(parent, PREFIX).map(AtomicFolder).map_err(|error| {
            let text = format!("cannot write to `{}`: {error}", parent.display());
            // A wrong path is a usage error; any other error is a problem of this machine.
            match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => Failure::usage(text),
                _ => Failure::environment(text),
            }
        })
    }

    /// Returns the path of the temporary folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Renames the folder to its destination.
    pub fn finish(self, out: &Path) -> Result<()> {
        if out.exists() {
            fs::remove_dir(out).map_err(Failure::of_file("replace", out))?;
        }
        let path = self.0.path();
        sync_folder(path)
            .map_err(|error| Failure::environment(format!("cannot write `{}`: {error}", path.display())))?;
        let written = self.0.folder.keep();
        fs::rename(&written, out).map_err(|error| {
            Failure::environment(format!("cannot move `{}` to `{}`: {error}", written.display(), out.display()))
        })
    }
}

fn sync_folder(folder: &Path) -> std::io::Result<()> {
    for entry in folder.read_dir()? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => sync_folder(&entry.path())?,
            false => File::open(entry.path())?.sync_all()?,
        }
    }
    File::open(folder)?.sync_all()
}

/// Removes temporary folders of killed processes, which are no longer locked.
fn remove_abandoned(parent: &Path, prefix: &str) {
    /// Age below which a folder is kept: the process that created it may not have locked it yet.
    const MIN_AGE: Duration = Duration::from_secs(60);
    /// Age above which a folder is certainly abandoned, even if its file system does not support locks.
    const ABANDONED_AGE: Duration = Duration::from_secs(24 * 3600);
    let entries = parent.read_dir().into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    for entry in named {
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        let age = age().unwrap_or_default();
        let is_left = File::open(entry.path()).is_ok_and(|folder| match folder.try_lock() {
            Ok(()) => age > MIN_AGE,
            Err(TryLockError::WouldBlock) => false,
            Err(TryLockError::Error(_)) => age > ABANDONED_AGE,
        });
        if is_left {
            // A folder that cannot be removed does not prevent writing a new one.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_killed_processes_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let [left, written, young] = ["left", "written", "young"].map(|name| {
            let path = parent.path().join(format!("{PREFIX}{name}"));
            fs::create_dir(&path).unwrap();
            path
        });
        let old = std::time::SystemTime::now() - Duration::from_secs(3600);
        for path in [&left, &written] {
            File::open(path).unwrap().set_modified(old).unwrap();
        }
        let lock = File::open(&written).unwrap();
        lock.lock().unwrap();
        let folder = AtomicFolder::create_temporary(&parent.path().join("out")).unwrap();
        assert_eq!([left.exists(), written.exists(), young.exists()], [false, true, true]);
        folder.finish(&parent.path().join("out")).unwrap();
        assert!(parent.path().join("out").is_dir());
    }
}
