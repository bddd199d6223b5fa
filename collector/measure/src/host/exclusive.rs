//! Locks that allow one measurement at a time per CPU, across all stores of a host, because concurrent measurements
//! disturb each other. A process locks every CPU that it may use; the kernel releases the locks when the process ends.

use super::command;
use nix::unistd::Uid;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Environment variable that overrides the lock folder, for containers that share CPUs but not `/tmp`.
pub const FOLDER_VARIABLE: &str = "OPCOLLECT_LOCKS";

#[derive(Debug)]
pub struct Exclusive {
    _files: Vec<File>,
}

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ExclusiveError {
    #[error("another process measures on CPU {cpu}: {holder}")]
    Busy { cpu: usize, holder: String },
    #[error("another nightly run is in progress on this machine: {holder}")]
    Night { holder: String },
    #[error(
        "cannot keep locks in `{}`: {why}; set `{FOLDER_VARIABLE}` to another folder, the same for all processes that \
         measure here",
        folder.display()
    )]
    Folder { folder: PathBuf, why: String },
}

/// Returns the lock folder. Ignores `TMPDIR`, which may differ between shells.
pub fn lock_folder() -> PathBuf {
    match std::env::var_os(FOLDER_VARIABLE).filter(|name| !name.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(format!("/tmp/opcollect-{}", Uid::current())),
    }
}

impl Exclusive {
    /// Locks CPUs until drop, waiting at most `patience`; if they are locked, calls `waits` once with the holder.
    pub fn lock_cpus(
        folder: &Path,
        cpus: &[usize],
        patience: Duration,
        waits: &mut dyn FnMut(&ExclusiveError),
    ) -> Result<Exclusive, ExclusiveError> {
        Exclusive::wait_for_lock(folder, patience, waits, || try_all(folder, cpus))
    }

    /// Takes the machine-wide lock of nightly runs. The measurements of a nightly run lock their CPUs themselves.
    pub fn lock_night(
        folder: &Path,
        patience: Duration,
        waits: &mut dyn FnMut(&ExclusiveError),
    ) -> Result<Exclusive, ExclusiveError> {
        let night = |busy: HeldLock| match busy {
            HeldLock::Busy(holder) => ExclusiveError::Night { holder },
            HeldLock::Failed(error) => error,
        };
        Exclusive::wait_for_lock(folder, patience, waits, || {
            let mut file = try_one(folder, "night").map_err(night)?;
            write_owner(&mut file);
            Ok(Exclusive { _files: vec![file] })
        })
    }

    fn wait_for_lock(
        folder: &Path,
        patience: Duration,
        waits: &mut dyn FnMut(&ExclusiveError),
        take: impl Fn() -> Result<Exclusive, ExclusiveError>,
    ) -> Result<Exclusive, ExclusiveError> {
        const PAUSE: Duration = Duration::from_millis(200);
        prepare_folder(folder).map_err(|why| ExclusiveError::Folder { folder: folder.to_owned(), why })?;
        let start = Instant::now();
        let mut has_reported = false;
        loop {
            match take() {
                Err(busy @ (ExclusiveError::Busy { .. } | ExclusiveError::Night { .. }))
                    if start.elapsed() < patience =>
                {
                    if !has_reported {
                        waits(&busy);
                        has_reported = true;
                    }
                    std::thread::sleep(PAUSE.min(patience - start.elapsed().min(patience)));
                }
                result => return result,
            }
        }
    }
}

/// Creates the lock folder. Rejects a folder to which other users can write, because they could plant files.
fn prepare_folder(folder: &Path) -> Result<(), String> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.to_string()),
        _ => {}
    }
    let found = std::fs::symlink_metadata(folder).map_err(|error| error.to_string())?;
    match (found.is_dir(), found.uid() == Uid::current().as_raw(), found.mode() & 0o022 == 0) {
        (false, ..) => Err("the path is not a folder".to_owned()),
        (true, false, _) => Err("the folder belongs to another user".to_owned()),
        (true, true, false) => Err("other users can write to the folder".to_owned()),
        (true, true, true) => Ok(()),
    }
}

/// Locks all CPUs or none, which prevents deadlocks.
fn try_all(folder: &Path, cpus: &[usize]) -> Result<Exclusive, ExclusiveError> {
    let mut files = Vec::with_capacity(cpus.len());
    for &cpu in cpus {
        files.push(try_one(folder, &format!("cpu-{cpu}")).map_err(|held| match held {
            HeldLock::Busy(holder) => ExclusiveError::Busy { cpu, holder },
            HeldLock::Failed(error) => error,
        })?);
    }
    files.iter_mut().for_each(write_owner);
    Ok(Exclusive { _files: files })
}

/// Writes process id and command into the lock file. Ignores errors, because the lock is held anyway.
fn write_owner(file: &mut File) {
    let own = format!("{} ({})", std::process::id(), own_command());
    let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(own.as_bytes()));
}

enum HeldLock {
    Busy(String),
    Failed(ExclusiveError),
}

fn try_one(folder: &Path, name: &str) -> Result<File, HeldLock> {
    let path = folder.join(name);
    let failed = |why: String| HeldLock::Failed(ExclusiveError::Folder { folder: folder.to_owned(), why });
    let mut options = OpenOptions::new();
    let file = options.create(true).truncate(false).read(true).write(true).mode(0o600).open(&path);
    let mut file = file.map_err(|error| failed(format!("`{}`: {error}", path.display())))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(HeldLock::Busy(read_holder(&mut file))),
        Err(TryLockError::Error(error)) => Err(failed(error.to_string())),
    }
}

fn read_holder(file: &mut File) -> String {
    let mut text = String::new();
    match file.take(400).read_to_string(&mut text) {
        Ok(_) if !text.is_empty() => text.replace(char::is_control, " "),
        _ => "process and command are unknown".to_owned(),
    }
}

fn own_command() -> String {
    command::own_command().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn take(folder: &Path, cpus: &[usize]) -> Result<Exclusive, ExclusiveError> {
        Exclusive::lock_cpus(folder, cpus, Duration::ZERO, &mut |_| ())
    }

    #[test]
    fn a_cpu_is_held_once_and_others_are_free() {
        let folder = tempfile::tempdir().unwrap();
        let held = take(folder.path(), &[0, 1]).unwrap();
        let busy = take(folder.path(), &[1, 2]).unwrap_err().to_string();
        let pid = std::process::id().to_string();
        assert!(busy.starts_with("another process measures on CPU 1: ") && busy.contains(&pid), "{busy}");
        let beside = take(folder.path(), &[2, 3]).unwrap();
        drop(held);
        take(folder.path(), &[0, 1]).unwrap();
        drop(beside);
        let night = || Exclusive::lock_night(folder.path(), Duration::ZERO, &mut |_| ());
        let _first = night().unwrap();
        assert!(night().unwrap_err().to_string().starts_with("another nightly run is in progress on this machine: "));
        take(folder.path(), &[0, 1]).unwrap();
    }

    #[test]
    fn a_second_waits_and_says_so_once() {
        let folder = tempfile::tempdir().unwrap();
        let held = take(folder.path(), &[0]).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let mut told = 0;
                let taken = Exclusive::lock_cpus(folder.path(), &[0], Duration::from_secs(60), &mut |_| told += 1);
                (taken.is_ok(), told)
            });
            std::thread::sleep(Duration::from_millis(500));
            drop(held);
            assert_eq!(waiting.join().unwrap(), (true, 1));
        });
    }

    #[test]
    fn a_folder_of_others_is_not_used() {
        let parent = tempfile::tempdir().unwrap();
        let check = |folder: &Path, why: &str| {
            let refused = take(folder, &[0]).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        };
        let open = parent.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        check(&open, "other users can write to the folder");
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(parent.path(), &link).unwrap();
        check(&link, "the path is not a folder");
        check(&parent.path().join("absent/deeper"), "No such file");
    }
}
