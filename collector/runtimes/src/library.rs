//! Search for a runtime's library.

use crate::error::{Result, RuntimeError};
use crate::runtime::RuntimeDescription;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub fn library_file(runtime: &RuntimeDescription) -> Result<PathBuf> {
    let folders: Vec<PathBuf> =
        worker::libraries::wheel_folders().into_iter().map(|packages| packages.join(runtime.folder)).collect();
    find_library(&folders, runtime.file).ok_or_else(|| RuntimeError::Missing {
        runtime: runtime.name,
        file: runtime.file,
        folders: join_folders(&folders),
    })
}

/// Returns a library by its name's prefix: from the first folder with a match, the file whose name sorts last.
fn find_library(folders: &[PathBuf], prefix: &str) -> Option<PathBuf> {
    let in_folder = |folder: &PathBuf| {
        let files = folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
        files.filter(|file| has_prefix(file, prefix)).max()
    };
    folders.iter().find_map(in_folder)
}

fn has_prefix(file: &Path, prefix: &str) -> bool {
    file.file_name().is_some_and(|name| name.as_bytes().starts_with(prefix.as_bytes()))
}

fn join_folders(folders: &[PathBuf]) -> String {
    match folders {
        [] => "any known folder".to_owned(),
        folders => folders.iter().map(|folder| format!("`{}`", folder.display())).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_first_folder_that_has_the_library_counts_and_its_last_file() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let folder = |name: &str| {
            let folder = root.path().join(name);
            fs::create_dir(&folder).expect("a folder");
            folder
        };
        let folders = [root.path().join("nowhere"), folder("other"), folder("first"), folder("second")];
        assert_eq!(find_library(&folders, "libone.so"), None);
        for file in ["other/libone.txt", "first/libone.so.1", "first/libone.so.2", "second/libone.so.3"] {
            fs::write(root.path().join(file), "").expect("a file");
        }
        assert_eq!(find_library(&folders, "libone.so"), Some(root.path().join("first/libone.so.2")));
        assert_eq!(find_library(&folders, "libtwo.so"), None);
    }

    #[test]
    fn an_error_says_where_was_looked() {
        assert_eq!(join_folders(&[]), "any known folder");
        assert_eq!(join_folders(&["/a".into(), "/b c".into()]), "`/a`, `/b c`");
    }
}
