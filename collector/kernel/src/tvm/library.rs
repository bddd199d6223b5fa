//! Opens TVM's libraries and checks that they have the release that this program requires. TVM's handlers for fatal
//! signals are then removed, because they print a stack trace for half a second before the process ends.

use super::call;
use super::names::{ALL, NameRole};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use nix::sys::signal::{SigHandler, Signal, signal};
use std::path::{Path, PathBuf};
use worker::libraries;

/// TVM release that this program was tested with.
pub const TVM_VERSION: &str = "0.27.0.post1";

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum LibraryError {
    #[error("cannot find `libtvm_runtime.so`; looked in {}", format_paths(tried))]
    NotFound { tried: Vec<PathBuf> },
    #[error("cannot open `{}`: {why}", path.display())]
    CannotOpen { path: PathBuf, why: String },
    #[error("TVM in `{}` has version {found}, but this program needs {TVM_VERSION}", path.display())]
    WrongVersion { path: PathBuf, found: String },
    #[error("TVM in `{}` lacks the function `{name}`; is its version {TVM_VERSION}?", path.display())]
    MissingFunction { path: PathBuf, name: &'static str },
}

fn format_paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// TVM's release according to its wheel, or a content hash for libraries without a wheel.
    pub tvm: String,
    /// LLVM's major version; None outside builders.
    pub llvm: Option<String>,
    pub folder: PathBuf,
}

/// Opens the libraries of a role (runner or builder), checks the release and looks up every function of the table.
pub fn open_libraries(role: NameRole) -> Result<Versions, LibraryError> {
    let tried = libraries::tvm_folders();
    let folder = tried.iter().find(|folder| folder.join("libtvm_runtime.so").is_file()).cloned();
    let folder = folder.ok_or(LibraryError::NotFound { tried })?;
    let tvm = library_version(&folder)?;
    open_library(&folder.join("libtvm_runtime.so"))?;
    open_library(&folder.join("libtvm_runtime_extra.so"))?;
    if role == NameRole::Builder {
        open_library(&folder.join("libtvm_compiler.so"))?;
    }
    reset_signal_handlers();
    for name in ALL.iter().filter(|name| name.role == NameRole::Runner || role == NameRole::Builder) {
        if call::find_function(name).is_err() {
            return Err(LibraryError::MissingFunction { path: folder, name: name.text });
        }
    }
    let llvm = (role == NameRole::Builder)
        .then(|| call::call!(super::names::LLVM_VERSION).and_then(|version| version.as_integer()).ok())
        .flatten()
        .map(|version| version.to_string());
    Ok(Versions { tvm, llvm, folder })
}

/// Returns the version of the wheel with a folder's libraries, else a hash of them, so that times are not mixed.
fn library_version(folder: &Path) -> Result<String, LibraryError> {
    match wheel_version(folder) {
        Some(found) if found != TVM_VERSION => Err(LibraryError::WrongVersion { path: folder.to_owned(), found }),
        Some(found) => Ok(found),
        None => {
            let path = folder.join("libtvm_runtime.so");
            let unreadable =
                |error: std::io::Error| LibraryError::CannotOpen { path: path.clone(), why: error.to_string() };
            let mut hasher = blake3::Hasher::new();
            let file = std::fs::File::open(&path).map_err(unreadable)?;
            hasher.update_reader(file).map_err(unreadable)?;
            Ok(format!("unnamed-{}", &hasher.finalize().to_hex()[..16]))
        }
    }
}

/// Returns the version in the name of the wheel's metadata folder, or None without a wheel.
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

/// Returns the text of an error's cause, which is where the dynamic loader states its reason.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_without_a_wheel_are_named_by_their_content() {
        let folder = tempfile::tempdir().unwrap();
        let lib = folder.path().join("tvm/lib");
        std::fs::create_dir_all(&lib).unwrap();
        let named = |content: &str| {
            std::fs::write(lib.join("libtvm_runtime.so"), content).unwrap();
            library_version(&lib).unwrap()
        };
        let (one, other) = (named("one"), named("other"));
        assert!(one.starts_with("unnamed-") && one != other && one == named("one"), "{one} {other}");
        std::fs::create_dir(folder.path().join(format!("apache_tvm-{TVM_VERSION}.dist-info"))).unwrap();
        assert_eq!(named("one"), TVM_VERSION);
    }

    #[test]
    fn a_wheel_of_another_release_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("apache_tvm-0.1.dist-info")).unwrap();
        let refused = library_version(&folder.path().join("tvm/lib")).unwrap_err().to_string();
        assert!(refused.contains("has version 0.1, but this program needs 0.27"), "{refused}");
    }
}
