//! Where the libraries lie that workers open when they start.
//!
//! TVM's are looked for in a `lib` folder beside the program's own, in the folder known when the program was built, in a
//! `.venv` in the working folder or above the program; or, where the variable `OPCOLLECT_TVM` names a folder, in that
//! one and no other. The wheels of one environment stand beside each other, so that NVIDIA's are found from there.

use std::path::{Path, PathBuf};

/// Names the only folder to be searched.
pub const FOLDER_VARIABLE: &str = "OPCOLLECT_TVM";

/// Folders that may hold TVM's libraries, best first.
pub fn tvm() -> Vec<PathBuf> {
    if let Some(folder) = std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty()) {
        return vec![PathBuf::from(folder)];
    }
    let mut folders: Vec<PathBuf> = beside_program().into_iter().collect();
    folders.extend(option_env!("OPCOLLECT_TVM_LIB").map(PathBuf::from));
    let working = std::env::current_dir().unwrap_or_default();
    let program = std::env::current_exe().unwrap_or_default();
    for root in std::iter::once(working.as_path()).chain(program.ancestors().skip(1).take(4)) {
        if let Ok(entries) = root.join(".venv/lib").read_dir() {
            for entry in entries.flatten() {
                folders.push(entry.path().join("site-packages/tvm/lib"));
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

/// The folder `lib` beside the program's own, for installations that bring the libraries along.
pub fn beside_program() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    Some(program.parent().and_then(Path::parent)?.join("lib"))
}
