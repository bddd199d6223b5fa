//! Folder with the files of a session. The agent and the session process hold a lock on a file in it, so that a later
//! agent can recognise folders that no process uses.

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc::O_NOFOLLOW;
use nix::unistd::geteuid;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const PREFIX: &str = "opcollect-board-";
/// Name of the lock file. It is hidden from clients, whose file names cannot start with a dot.
const LOCK: &str = ".lock";
/// Name of a file that exists while a board's accelerator core runs. If an old file is found, the core may still run.
pub const CORE_AT_WORK: &str = ".core-at-work";

/// Folder of a session's files. It is removed on drop.
pub struct SessionFolder {
    folder: TempDir,
    _lock: File,
}

impl SessionFolder {
    pub fn new() -> io::Result<SessionFolder> {
        loop {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir()?;
            let lock = File::create(folder.path().join(LOCK))?;
            // Until the lock is held, a starting agent may take the folder for a leftover and remove it.
            let is_removed = matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) || lock.metadata()?.nlink() == 0;
            if !is_removed {
                // The session process inherits the lock: if the agent is killed, the session may run a moment longer.
                fcntl(&lock, FcntlArg::F_SETFD(FdFlag::empty()))?;
                return Ok(SessionFolder { folder, _lock: lock });
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Keeps the folder if it contains the mark of a running accelerator core; removes the folder otherwise.
    pub fn into_marked(mut self) -> Option<MarkedFolder> {
        let path = self.path().to_owned();
        path.join(CORE_AT_WORK).exists().then(|| {
            self.folder.disable_cleanup(true);
            MarkedFolder { path, _lock: self._lock }
        })
    }
}

/// Folder of an ended session whose core may still run. Dropping it keeps the folder and its marker for the next agent.
pub struct MarkedFolder {
    path: PathBuf,
    _lock: File,
}

impl MarkedFolder {
    pub fn remove_folder(self) {
        // A folder that cannot be removed does not affect later sessions.
        let _ = std::fs::remove_dir_all(self.path);
    }
}

/// Removes left-over folders of this user. Folders with the mark of a running accelerator core are kept, and returned
/// if `serves_devmem`, that is, if this agent accesses the core by `/dev/mem`.
pub fn sweep_folders(parent: &Path, serves_devmem: bool) -> Vec<MarkedFolder> {
    let mut marked = Vec::new();
    for entry in parent.read_dir().into_iter().flatten().flatten() {
        let is_named = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // Neither call follows symbolic links.
        let is_own = entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw());
        if !is_named || !is_own {
            continue;
        }
        let path = entry.path();
        let is_marked = || path.join(CORE_AT_WORK).exists();
        // Checked without taking the lock, since an agent that serves the core may be trying to take it.
        if is_marked() && !serves_devmem {
            continue;
        }
        let lock = OpenOptions::new().read(true).write(true).custom_flags(O_NOFOLLOW).open(path.join(LOCK));
        if let Ok(lock) = lock
            && lock.try_lock().is_ok()
        {
            // The session may have set the mark in the meantime.
            let (is_marked, folder) = (is_marked(), MarkedFolder { path, _lock: lock });
            match is_marked {
                true if serves_devmem => marked.push(folder),
                true => {}
                false => folder.remove_folder(),
            }
        }
    }
    marked
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
        assert!(sweep_folders(parent.path(), true).is_empty());
        let mut left: Vec<_> = parent.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        let wanted = ["another", "opcollect-board-held", "opcollect-board-link", "opcollect-board-unlocked", "target"];
        assert_eq!(left, wanted);
        assert!(path("target/kept").exists());

        assert!(sweep_folders(&path("absent"), true).is_empty());
    }

    #[test]
    fn the_mark_of_a_running_core_stays_until_it_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("opcollect-board-ended");
        fs::create_dir(&path).unwrap();
        fs::write(path.join(LOCK), "").unwrap();
        fs::write(path.join(CORE_AT_WORK), "").unwrap();
        assert!(sweep_folders(parent.path(), false).is_empty() && path.exists(), "another agent removed the mark");
        for _ in 0..2 {
            let marked = sweep_folders(parent.path(), true);
            assert_eq!(marked.len(), 1);
            assert!(sweep_folders(parent.path(), true).is_empty(), "two agents have the folder");
            assert!(sweep_folders(parent.path(), false).is_empty());
            // Simulates an agent that ends before it serves a session.
            drop(marked);
            assert!(path.join(CORE_AT_WORK).exists());
        }
        sweep_folders(parent.path(), true).into_iter().for_each(MarkedFolder::remove_folder);
        assert!(!path.exists());
    }

    #[test]
    fn a_session_folder_is_kept_only_with_the_mark() {
        let folder = SessionFolder::new().unwrap();
        let path = folder.path().to_owned();
        assert!(folder.into_marked().is_none() && !path.exists());
        let folder = SessionFolder::new().unwrap();
        let path = folder.path().to_owned();
        fs::write(path.join(CORE_AT_WORK), "").unwrap();
        let marked = folder.into_marked().unwrap();
        assert!(path.exists());
        marked.remove_folder();
        assert!(!path.exists());
    }

    #[test]
    fn a_folder_in_use_is_kept() {
        let folder = SessionFolder::new().unwrap();
        sweep_folders(&std::env::temp_dir(), false);
        assert!(folder.path().exists());
    }
}
