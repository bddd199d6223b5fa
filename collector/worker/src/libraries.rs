//! Where the libraries lie that workers open when they start.
//!
//! TVM's are looked for in a `lib` folder beside the program's own, in the wheel beside the one that brought the program, in the
//! folder known when the program was built, in a `.venv` above the program; never in the working folder, which may be a
//! stranger's; or, where the variable `OPCOLLECT_TVM` names a folder, in that one and no other. The wheels of one environment stand
//! beside each other, so that NVIDIA's are found from there.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Names the only folder to be searched.
pub const FOLDER_VARIABLE: &str = "OPCOLLECT_TVM";

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Sets the program beside which workers and libraries lie, for a process that another program hosts, such as Python. Only the first
/// call has an effect, and only before the first worker starts.
pub fn set_program(path: PathBuf) {
    let _ = PROGRAM.set(path);
}

/// Returns the program beside which workers and libraries lie: the one of this process unless another was set.
pub fn program() -> std::io::Result<PathBuf> {
    PROGRAM.get().cloned().map_or_else(std::env::current_exe, Ok)
}

/// Folders that may hold TVM's libraries, best first.
pub fn tvm() -> Vec<PathBuf> {
    if let Some(folder) = std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty()) {
        return vec![PathBuf::from(folder)];
    }
    let mut folders: Vec<PathBuf> = beside_program().into_iter().collect();
    folders.extend(beside_package());
    folders.extend(option_env!("OPCOLLECT_TVM_LIB").map(PathBuf::from));
    let program = program().unwrap_or_default();
    for root in program.ancestors().skip(1).take(4) {
        if let Ok(entries) = root.join(".venv/lib").read_dir() {
            for entry in entries.flatten() {
                folders.push(entry.path().join("site-packages/tvm/lib"));
            }
        }
    }
    distinct(folders)
}

/// Folders of TVM's libraries, each followed by the folder of its interface in the same environment.
pub fn tvm_and_interface() -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in tvm() {
        let packages = folder.parent().and_then(Path::parent).map(|packages| packages.join("tvm_ffi/lib"));
        for folder in [Some(folder), packages].into_iter().flatten() {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
    }
    folders
}

/// Folders of installed wheels, those of TVM's first.
pub fn packages() -> Vec<PathBuf> {
    let above = |tvm: PathBuf| Some(tvm.parent()?.parent()?.to_owned());
    tvm().into_iter().filter_map(above).collect()
}

/// Each folder once, however many ways lead to it.
fn distinct(folders: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut kept: Vec<PathBuf> = Vec::new();
    for folder in folders {
        if !kept.iter().any(|known| is_same(known, &folder)) {
            kept.push(folder);
        }
    }
    kept
}

/// Whether two paths lead to one folder, or are one path to none.
fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(one) == real(other)
}

/// TVM's folder where a wheel brought the program: `opcollect/bin` and `tvm/lib` stand in one folder of packages.
fn beside_package() -> Option<PathBuf> {
    let program = program().ok()?;
    let folder = program.ancestors().nth(3)?.join("tvm/lib");
    folder.is_dir().then_some(folder)
}

/// The folder `lib` beside the program's own, for installations that bring the libraries along.
pub fn beside_program() -> Option<PathBuf> {
    let program = program().ok()?;
    Some(program.parent().and_then(Path::parent)?.join("lib"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_to_which_several_ways_lead_is_named_once() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let (real, linked) = (root.path().join("real"), root.path().join("linked"));
        std::fs::create_dir(&real).expect("a folder");
        std::os::unix::fs::symlink(&real, &linked).expect("a link");
        let gone = root.path().join("gone");
        let folders = vec![linked.clone(), gone.clone(), real, root.path().join("./real"), gone.clone()];
        assert_eq!(distinct(folders), [linked, gone]);
    }
}
