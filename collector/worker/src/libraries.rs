//! Search for the libraries that workers load. TVM is searched only in the folder `OPCOLLECT_TVM`, if it is set;
//! otherwise in `lib` next to the program's folder, the wheel next to the one that contains the program, the folder
//! known at build time, and a `.venv` above the program. The working directory is never searched: it may be untrusted.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Environment variable that restricts the search to a single folder.
pub const FOLDER_VARIABLE: &str = "OPCOLLECT_TVM";

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Sets the program that [`base_program`] returns; must precede the first worker, and later calls have no effect.
pub fn set_program(path: PathBuf) {
    let _ = PROGRAM.set(path);
}

/// Returns the program relative to which workers and libraries are searched: this process's own by default.
pub fn base_program() -> std::io::Result<PathBuf> {
    PROGRAM.get().cloned().map_or_else(std::env::current_exe, Ok)
}

/// Returns the folders to search for TVM's library, in order of preference.
pub fn tvm_folders() -> Vec<PathBuf> {
    if let Some(folder) = std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty()) {
        return vec![PathBuf::from(folder)];
    }
    let mut folders: Vec<PathBuf> = bundled_folder().into_iter().collect();
    folders.extend(package_folder());
    folders.extend(option_env!("OPCOLLECT_TVM_LIB").map(PathBuf::from));
    let program = base_program().unwrap_or_default();
    for root in program.ancestors().skip(1).take(4) {
        if let Ok(entries) = root.join(".venv/lib").read_dir() {
            for entry in entries.flatten() {
                folders.push(entry.path().join("site-packages/tvm/lib"));
            }
        }
    }
    distinct_folders(folders)
}

/// Returns the folders of TVM's library, each followed by the folder of the interface library from the same install.
pub fn tvm_and_interface() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in tvm_folders() {
        let packages = folder.parent().and_then(Path::parent).map(|packages| packages.join("tvm_ffi/lib"));
        for folder in [Some(folder), packages].into_iter().flatten() {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
    }
    folders
}

pub fn wheel_folders() -> Vec<PathBuf> {
    let above = |tvm: PathBuf| Some(tvm.parent()?.parent()?.to_owned());
    tvm_folders().into_iter().filter_map(above).collect()
}

/// Removes folders that resolve to an earlier folder of the list.
fn distinct_folders(folders: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut kept: Vec<PathBuf> = Vec::new();
    for folder in folders {
        if !kept.iter().any(|known| is_same(known, &folder)) {
            kept.push(folder);
        }
    }
    kept
}

/// Returns whether two paths resolve to the same folder, or are equal if they do not exist.
fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(one) == real(other)
}

/// Returns TVM's folder if a wheel installed the program: `opcollect/bin` and `tvm/lib` share a folder.
fn package_folder() -> Option<PathBuf> {
    let program = base_program().ok()?;
    let folder = program.ancestors().nth(3)?.join("tvm/lib");
    folder.is_dir().then_some(folder)
}

/// Returns the folder `lib` next to the program's folder, for installations that bundle the libraries.
pub fn bundled_folder() -> Option<PathBuf> {
    let program = base_program().ok()?;
    Some(program.parent().and_then(Path::parent)?.join("lib"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_folders_are_listed_once() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let (real, linked) = (root.path().join("real"), root.path().join("linked"));
        std::fs::create_dir(&real).expect("a folder");
        std::os::unix::fs::symlink(&real, &linked).expect("a link");
        let gone = root.path().join("gone");
        let folders = vec![linked.clone(), gone.clone(), real, root.path().join("./real"), gone.clone()];
        assert_eq!(distinct_folders(folders), [linked, gone]);
    }
}
