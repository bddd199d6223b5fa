//! Output files. The path is checked before the work; the content goes to a temporary file, renamed when complete. A
//! full disk or a killed process leaves the old file unchanged. Pipes and devices are written directly.

use crate::error::{Error, IoContext, Result, UnwrittenFile};
use crate::files::Scratch;
use crate::layout::owning_store;
use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// An output file that becomes visible when it is kept.
pub struct Output {
    path: PathBuf,
    sink: OutputSink,
}

enum OutputSink {
    Beside { scratch: Scratch, name: OsString, before: Option<Permissions> },
    Through(File),
}

impl Output {
    /// Creates an output file, or fails if the path is unwritable. A link is followed: its target is replaced.
    pub fn create(path: &Path) -> Result<Output> {
        let place = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let whole = std::path::absolute(&place).unwrap_or_else(|_| place.clone());
        if let Some(folder) = owning_store(&whole) {
            return Err(Error::InsideStore { path: path.to_owned(), folder: folder.to_owned() });
        }
        let before = place.metadata().ok();
        let sink = match &before {
            Some(found) if found.is_dir() => return Err(no_file(path, "the path is a folder")),
            Some(found) if !found.is_file() => {
                OutputSink::Through(File::options().write(true).open(&place).context("opening", path)?)
            }
            _ => OutputSink::create_alongside(&place, path, before.map(|found| found.permissions()))?,
        };
        Ok(Output { path: path.to_owned(), sink })
    }

    /// Returns the final path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn name_file(&self, error: std::io::Error) -> std::io::Error {
        match error.kind() {
            // Callers repeat an interrupted write.
            ErrorKind::Interrupted => error,
            kind => std::io::Error::new(kind, UnwrittenFile { path: self.path.clone(), source: error }),
        }
    }

    /// Writes the whole content, and renames the file to its final path.
    pub fn keep_with(mut self, content: impl AsRef<[u8]>) -> Result<()> {
        self.write_all(content.as_ref()).map_err(|error| Error::unwritten(&self.path, error))?;
        self.keep()
    }

    /// Syncs the file and renames it to its final path.
    pub fn keep(self) -> Result<()> {
        match self.sink {
            OutputSink::Through(mut file) => file.flush().context("writing", &self.path),
            OutputSink::Beside { scratch, name, before } => {
                if let Some(before) = before {
                    scratch.file().set_permissions(before).context("writing", &self.path)?;
                }
                scratch.keep(&name).map(|_| ())
            }
        }
    }
}

impl OutputSink {
    fn create_alongside(place: &Path, path: &Path, before: Option<Permissions>) -> Result<OutputSink> {
        let name = place.file_name().ok_or_else(|| no_file(path, "the path has no file name"))?.to_owned();
        if place.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(no_file(path, "the path ends in a slash"));
        }
        // A read-only file must not be replaced.
        if before.as_ref().is_some_and(Permissions::readonly) {
            File::options().write(true).open(place).context("opening", path)?;
        }
        let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(OutputSink::Beside { scratch: Scratch::for_output(folder)?, name, before })
    }
}

impl Write for Output {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        let written = match &mut self.sink {
            OutputSink::Beside { scratch, .. } => scratch.write(buffer),
            OutputSink::Through(file) => file.write(buffer),
        };
        written.map_err(|error| self.name_file(error))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let flushed = match &mut self.sink {
            OutputSink::Beside { scratch, .. } => scratch.flush(),
            OutputSink::Through(file) => file.flush(),
        };
        flushed.map_err(|error| self.name_file(error))
    }
}

/// Writes a whole file.
pub fn write_file(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    Output::create(path)?.keep_with(content)
}

/// Fails if two outputs, each with its flag, are the same file. Pipes and devices may be shared.
pub fn check_distinct(outputs: &[(&str, Option<&Path>)]) -> Result<()> {
    let mut seen: Vec<(&str, PathBuf)> = Vec::new();
    for (flag, path) in outputs.iter().filter_map(|(flag, path)| Some((*flag, (*path)?))) {
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            continue;
        }
        let place = final_place(path);
        if let Some((other, _)) = seen.iter().find(|(_, known)| *known == place) {
            return Err(no_file(path, &format!("`{other}` and `{flag}` name the same file")));
        }
        seen.push((flag, place));
    }
    Ok(())
}

/// Returns the path without links, also for a file that does not exist yet.
fn final_place(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        match (absolute.parent().map(Path::canonicalize), absolute.file_name()) {
            (Some(Ok(folder)), Some(name)) => folder.join(name),
            _ => absolute,
        }
    })
}

fn no_file(path: &Path, problem: &str) -> Error {
    Error::Io {
        doing: "writing",
        path: path.to_owned(),
        source: std::io::Error::new(ErrorKind::InvalidFilename, problem),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn names(folder: &Path) -> Vec<OsString> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn outputs_to_one_file_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("x"), folder.path().join("link"));
        let check =
            |first: &Path, second: &Path| check_distinct(&[("--a", Some(first)), ("--b", None), ("--c", Some(second))]);
        symlink(folder.path(), &link).unwrap();
        for same in [file.clone(), folder.path().join("./x"), link.join("x")] {
            let error = check(&file, &same).unwrap_err();
            assert!(error.to_string().contains("writing") && !error.is_of_machine(), "{error}");
        }
        check(&file, &folder.path().join("y")).unwrap();
        check(Path::new("/dev/null"), Path::new("/dev/null")).unwrap();
        symlink("x", folder.path().join("z")).unwrap();
        fs::write(&file, "").unwrap();
        check(&file, &folder.path().join("z")).unwrap_err();
    }

    #[test]
    fn a_file_appears_whole_and_one_that_is_given_up_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        write_file(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let mut output = Output::create(&path).unwrap();
        output.write_all(b"new, but only ha").unwrap();
        drop(output);
        assert_eq!((fs::read(&path).unwrap(), names(folder.path())), (b"old".to_vec(), vec!["page.html".into()]));
        write_file(&path, "new").unwrap();
        assert_eq!((fs::read(&path).unwrap(), names(folder.path())), (b"new".to_vec(), vec!["page.html".into()]));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn files_of_killed_processes_are_removed_and_those_of_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        let writing = Output::create(&path).unwrap();
        for name in [".opcollect-unfinished-killed", ".tmp-of-another-program"] {
            fs::write(folder.path().join(name), "half").unwrap();
        }
        write_file(&path, "whole").unwrap();
        let mut left = names(folder.path());
        left.retain(|name| !name.as_bytes().starts_with(b".opcollect-unfinished-"));
        left.sort();
        assert_eq!(left, [".tmp-of-another-program", "page.html"]);
        assert_eq!(names(folder.path()).len(), 3, "a file that a process writes stays");
        drop(writing);
    }

    #[test]
    fn what_can_be_no_file_is_refused_at_the_beginning() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        for name in ["", ".", "none/page.html", "file/page.html", "new/"] {
            assert!(Output::create(&folder.path().join(name)).is_err(), "`{name}`");
        }
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn links_are_followed_and_names_may_be_any_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join(std::ffi::OsStr::from_bytes(b"\xff.csv"));
        write_file(&target, "old").unwrap();
        let link = folder.path().join("link");
        symlink(&target, &link).unwrap();
        write_file(&link, "new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(&target).unwrap(), b"new");
    }

    #[test]
    fn devices_are_written_and_not_replaced() {
        use std::os::unix::fs::FileTypeExt;
        write_file(Path::new("/dev/null"), "gone").unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        let error = write_file(Path::new("/dev/full"), "full").unwrap_err();
        assert!(matches!(error, Error::Full { .. }), "{error}");
    }
}
