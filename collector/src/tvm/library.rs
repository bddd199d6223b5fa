//! Opens TVM's libraries and checks that they are the ones this program was written for.
//!
//! Search order: a `lib` folder beside the program's own, the folder known when the program was built, a `.venv` in
//! the working folder or above the program; or, where the variable `OPCOLLECT_TVM` names a folder, that one and no
//! other. What was tried is part of the error. After opening, TVM's handlers for
//! fatal signals are removed: they spend half a second on a stack print before the process dies.

use super::call;
use super::names::{ALL, Role};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use nix::sys::signal::{SigHandler, Signal, signal};
use std::path::{Path, PathBuf};

/// The release these calls were tried with.
pub const TVM_VERSION: &str = "0.27.0.post1";

/// Why TVM cannot be used here.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum LibraryError {
    #[error("cannot find `libtvm_runtime.so`; looked in {}", list(tried))]
    NotFound { tried: Vec<PathBuf> },
    #[error("cannot open `{}`: {why}", path.display())]
    CannotOpen { path: PathBuf, why: String },
    #[error("TVM in `{}` is {found}, this program needs {TVM_VERSION}", path.display())]
    WrongVersion { path: PathBuf, found: String },
    #[error("TVM in `{}` lacks the function `{name}`: not version {TVM_VERSION}?", path.display())]
    MissingFunction { path: PathBuf, name: &'static str },
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ")
}

/// What was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// TVM's release, as its wheel states it.
    pub tvm: String,
    /// LLVM's major version; only a builder knows.
    pub llvm: Option<String>,
    /// The folder the libraries came from.
    pub folder: PathBuf,
}

/// Names the only folder to be searched.
pub const FOLDER_VARIABLE: &str = "OPCOLLECT_TVM";

/// Folders that may hold TVM's libraries, best first.
pub fn candidates() -> Vec<PathBuf> {
    if let Some(folder) = std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty()) {
        return vec![PathBuf::from(folder)];
    }
    let mut folders = Vec::new();
    let program = std::env::current_exe().unwrap_or_default();
    if let Some(folder) = program.parent().and_then(Path::parent) {
        folders.push(folder.join("lib"));
    }
    if let Some(built_with) = option_env!("OPCOLLECT_TVM_LIB") {
        folders.push(PathBuf::from(built_with));
    }
    let working = std::env::current_dir().unwrap_or_default();
    for root in std::iter::once(working.as_path()).chain(program.ancestors().skip(1).take(4)) {
        if let Ok(entries) = root.join(".venv/lib").read_dir() {
            for entry in entries.flatten() {
                folders.push(entry.path().join("site-packages/tvm/lib"));
            }
        }
    }
    folders
}

/// Opens what the role needs, checks the release and looks up every function of the table.
pub fn open(role: Role) -> Result<Versions, LibraryError> {
    let tried = candidates();
    let folder = tried.iter().find(|folder| folder.join("libtvm_runtime.so").is_file()).cloned();
    let folder = folder.ok_or(LibraryError::NotFound { tried })?;
    let tvm = wheel_version(&folder).unwrap_or_else(|| TVM_VERSION.to_owned());
    if tvm != TVM_VERSION {
        return Err(LibraryError::WrongVersion { path: folder, found: tvm });
    }
    open_library(&folder.join("libtvm_runtime.so"))?;
    open_library(&folder.join("libtvm_runtime_extra.so"))?;
    if role == Role::Builder {
        open_library(&folder.join("libtvm_compiler.so"))?;
    }
    reset_signal_handlers();
    for name in ALL.iter().filter(|name| name.role == Role::Runner || role == Role::Builder) {
        if call::function(name).is_err() {
            return Err(LibraryError::MissingFunction { path: folder, name: name.text });
        }
    }
    let llvm = (role == Role::Builder)
        .then(|| call::call!(super::names::LLVM_VERSION).and_then(|version| version.integer()).ok())
        .flatten()
        .map(|version| version.to_string());
    Ok(Versions { tvm, llvm, folder })
}

/// The version in the name of the wheel's metadata folder; nothing when the libraries did not come from a wheel.
pub fn wheel_version(folder: &Path) -> Option<String> {
    let packages = folder.parent()?.parent()?;
    packages.read_dir().ok()?.flatten().find_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        Some(name.strip_prefix("apache_tvm-")?.strip_suffix(".dist-info")?.to_owned())
    })
}

fn open_library(path: &Path) -> Result<(), LibraryError> {
    // SAFETY: these are TVM's own libraries, whose initialisers only register functions; they are never unloaded.
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) };
    let library =
        library.map_err(|error| LibraryError::CannotOpen { path: path.to_owned(), why: with_cause(&error) })?;
    std::mem::forget(library);
    Ok(())
}

/// The dynamic loader keeps its reason in the cause.
fn with_cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| cause.to_string())
}

fn reset_signal_handlers() {
    for fatal in [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGILL, Signal::SIGFPE, Signal::SIGABRT] {
        // SAFETY: restoring the default action installs no handler of ours; Rust's own stack-overflow message is
        // lost, which a worker can do without.
        let _ = unsafe { signal(fatal, SigHandler::SigDfl) };
    }
}
