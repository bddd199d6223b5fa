//! The folder of a session's files. Its agent holds a lock in it, so that the next agent can tell what a killed one left behind.

use nix::libc::O_NOFOLLOW;
use nix::unistd::geteuid;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use tempfile::TempDir;

const PREFIX: &str = "opcollect-board-";
/// Clients cannot name files that begin with a dot.
const LOCK: &str = ".lock";
/// A file that is there from the start of a run on a board's core to its end: where it is left, the core may still be at work.
pub const CORE_AT_WORK: &str = ".core-at-work";

/// A folder that ends with this value.
pub struct SessionFolder {
    folder: TempDir,
    _lock: File,
}

impl SessionFolder {
    /// Makes a folder.
    pub fn new() -> io::Result<SessionFolder> {
        loop {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
            let lock = File::create(folder.path().join(LOCK))?;
            // An agent that starts may take the folder for a leftover until the lock is held.
            let is_swept = matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) || lock.metadata()?.nlink() == 0;
            if !is_swept {
                return Ok(SessionFolder { folder, _lock: lock });
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes folders of this user's agents that have ended without doing so. Returns whether one of them was in a run on the core.
pub fn sweep(parent: &Path) -> bool {
    let mut was_at_work = false;
    for entry in parent.read_dir().into_iter().flatten().flatten() {
        let is_named = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // Neither call follows links.
        let is_own = entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw());
        if !is_named || !is_own {
            continue;
        }
        let lock = OpenOptions::new().read(true).write(true).custom_flags(O_NOFOLLOW).open(entry.path().join(LOCK));
        if let Ok(lock) = lock
            && lock.try_lock().is_ok()
        {
            was_at_work |= entry.path().join(CORE_AT_WORK).exists();
            // A folder that cannot be removed hinders no session.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    was_at_work
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_folders_of_ended_agents_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let path = |name: &str| parent.path().join(name);
        let make = |name: &str| {
            fs::create_dir(path(name)).unwrap();
            fs::write(path(name).join(LOCK), "").unwrap();
        };
        let names = ["opcollect-board-ended", "opcollect-board-held", "another", "opcollect-board-unlocked", "target"];
        names.into_iter().for_each(make);
        fs::write(path("target/kept"), "").unwrap();
        symlink(path("target"), path("opcollect-board-link")).unwrap();
        symlink(path("target"), path("opcollect-board-ended/link")).unwrap();
        fs::remove_file(path("opcollect-board-unlocked").join(LOCK)).unwrap();
        symlink(path("target").join(LOCK), path("opcollect-board-unlocked").join(LOCK)).unwrap();
        let held = File::open(path("opcollect-board-held").join(LOCK)).unwrap();
        held.lock().unwrap();
        assert!(!sweep(parent.path()));
        let mut left: Vec<_> = parent.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        let wanted = ["another", "opcollect-board-held", "opcollect-board-link", "opcollect-board-unlocked", "target"];
        assert_eq!(left, wanted);
        assert!(path("target/kept").exists());

        make("opcollect-board-ended");
        fs::write(path("opcollect-board-ended").join(CORE_AT_WORK), "").unwrap();
        assert!(sweep(parent.path()), "its core may still be at work");
        assert!(!sweep(&path("absent")));
    }

    #[test]
    fn a_folder_in_use_is_kept() {
        let folder = SessionFolder::new().unwrap();
        sweep(&std::env::temp_dir());
        assert!(folder.path().exists());
    }
}
