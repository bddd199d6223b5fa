//! Atomic file creation: files appear complete or not at all.

use crate::error::{Error, IoContext, Result};
use crate::holder::{self, Holder};
use serde::Serialize;
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Prefix of temporary files; readers ignore names with a leading dot.
const TEMPORARY: &str = ".tmp-";
/// Prefix of output files that are not complete, in folders with files of other programs.
const UNFINISHED: &str = ".opcollect-unfinished-";

/// A temporary file, which is deleted on drop unless it is kept.
pub(crate) struct Scratch {
    file: NamedTempFile,
    folder: PathBuf,
}

pub(super) struct HashedScratch {
    pub scratch: Scratch,
    hasher: blake3::Hasher,
}

impl Scratch {
    /// Creates a temporary file. The file is locked, so that cleanup can recognise files of dead writers.
    pub fn new(folder: &Path) -> Result<Scratch> {
        Scratch::with_prefix(folder, TEMPORARY)
    }

    /// Creates the temporary file of an output, and removes those that killed processes left in the folder.
    pub fn for_output(folder: &Path) -> Result<Scratch> {
        // A folder that cannot be listed can be written to.
        for left in list_abandoned(folder, |name| name.starts_with(UNFINISHED)).unwrap_or_default() {
            // A file that cannot be removed does not prevent writing another one.
            let _ = std::fs::remove_file(left);
        }
        Scratch::with_prefix(folder, UNFINISHED)
    }

    fn with_prefix(folder: &Path, prefix: &str) -> Result<Scratch> {
        loop {
            let mut builder = tempfile::Builder::new();
            // The umask decides the permissions, as for any new file.
            let builder = builder.prefix(prefix).permissions(Permissions::from_mode(0o666));
            let file = builder.tempfile_in(folder).context("creating a file in", folder)?;
            // Without file locks, cleanup cannot recognise leftovers; everything else works.
            let _ = file.as_file().lock();
            let is_there = file.as_file().metadata().context("reading the metadata of", file.path())?.nlink() > 0;
            if is_there {
                return Ok(Scratch { file, folder: folder.to_owned() });
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    pub fn file(&self) -> &File {
        self.file.as_file()
    }

    /// Syncs the file and renames it, replacing an existing file.
    pub fn keep(self, name: impl AsRef<OsStr>) -> Result<PathBuf> {
        let path = self.folder.join(name.as_ref());
        self.file.as_file().sync_all().context("writing", &path)?;
        self.file.persist(&path).map_err(|error| error.error).context("renaming", &path)?;
        sync_folder(&self.folder)?;
        Ok(path)
    }

    /// Syncs and renames the file unless the name is taken.
    pub fn keep_new(self, name: &str) -> Result<KeptFile> {
        let Scratch { file, folder } = self;
        let path = folder.join(name);
        file.as_file().sync_all().context("writing", &path)?;
        match file.persist_noclobber(&path) {
            Ok(file) => sync_folder(&folder).map(|()| KeptFile::Yes(path, file)),
            Err(error) if error.error.kind() == ErrorKind::AlreadyExists => {
                Ok(KeptFile::NameTaken(Scratch { file: error.file, folder }))
            }
            Err(error) => Err(Error::io("renaming", &path, error.error)),
        }
    }
}

pub(crate) enum KeptFile {
    /// The file got the requested name, and stays open and locked.
    Yes(PathBuf, File),
    /// The name was taken by another file; the temporary file is returned.
    NameTaken(Scratch),
}

impl Write for Scratch {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.file.as_file_mut().write(buffer)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.as_file_mut().flush()
    }
}

impl HashedScratch {
    pub fn new(folder: &Path) -> Result<HashedScratch> {
        Ok(HashedScratch { scratch: Scratch::new(folder)?, hasher: blake3::Hasher::new() })
    }

    pub fn content_hash(&self) -> blake3::Hash {
        self.hasher.finalize()
    }
}

impl Write for HashedScratch {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        let written = self.scratch.write(buffer)?;
        self.hasher.update(&buffer[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.scratch.flush()
    }
}

/// Writes a JSON file atomically.
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::damaged(path, error.to_string()))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().map_or_else(Default::default, |name| name.to_string_lossy().into_owned());
    let mut scratch = Scratch::new(folder)?;
    writeln!(scratch, "{text}").context("writing", path)?;
    scratch.keep(&name).map(|_| ())
}

/// Creates a folder and its parents, and syncs their names.
pub(super) fn make_folder(folder: &Path) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_folder(parent)?;
    }
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(Error::io("creating", folder, error)),
        _ => {}
    }
    match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_folder(parent),
        _ => sync_folder(Path::new(".")),
    }
}

pub(super) fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|file| file.sync_all()).context("writing", folder)
}

pub(super) fn remove_if_exists(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("removing", path, error)),
        _ => Ok(()),
    }
}

/// Lists all entries of a folder, including links; none if the folder does not exist.
pub(super) fn list_all(folder: &Path) -> Result<Vec<PathBuf>> {
    match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        entries => {
            let paths = entries.context("listing", folder)?.map(|entry| entry.map(|entry| entry.path()));
            paths.collect::<std::io::Result<_>>().context("listing", folder)
        }
    }
}

/// Lists files and folders whose names `is_wanted` accepts, sorted; none for a missing folder. Refuses links, which
/// would lead out of the folder. Skips pipes, because opening a pipe would block.
pub(super) fn list_matching(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.context("listing", folder)?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry.context("listing", folder)?;
        if !entry.file_name().to_str().is_some_and(&is_wanted) {
            continue;
        }
        let kind = entry.file_type().context("listing", folder)?;
        if kind.is_symlink() {
            return Err(Error::damaged(&entry.path(), "the file is a link, and a store must not contain links"));
        }
        if kind.is_file() || kind.is_dir() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

pub(super) fn is_temporary(name: &str) -> bool {
    name.starts_with(TEMPORARY)
}

pub(super) fn list_leftovers(folder: &Path) -> Result<Vec<PathBuf>> {
    list_abandoned(folder, is_temporary)
}

/// Lists temporary files that no process holds.
fn list_abandoned(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Result<Vec<PathBuf>> {
    let mut paths = list_matching(folder, is_wanted)?;
    paths.retain(|path| holder::open_lockable(path).is_ok_and(|file| Holder::probe_lock(&file) == Holder::Gone));
    Ok(paths)
}
