//! Fallback loader: the system's linker creates a shared library from the object, and the dynamic loader opens it.
//! Slower than loading in memory, but supports everything that the machine's toolchain supports.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::{Backing, LoadError, LoadedObject, context, on_loading};

/// Links an object and opens the resulting library, in a new folder below `parent` that is deleted before return. Other
/// users may write to `parent`, but the folder is private and its name unpredictable, so that no file can be planted.
///
/// # Safety
///
/// The system's linker and loader read an unchecked file. The caller accepts that they may crash this process.
///
/// # Errors
///
/// The library would run code when opened, files cannot be written, linking fails, or a symbol is missing.
pub unsafe fn load_through_linker(bytes: &[u8], parent: &Path) -> Result<LoadedObject, LoadError> {
    on_loading::reject_loading_code(bytes)?;
    let unavailable = |path: &Path| {
        let path = path.to_owned();
        |source| LoadError::LinkerUnavailable { path, source }
    };
    // An opened library stays mapped without its file.
    let folder = tempfile::Builder::new().prefix("opcollect-link-").tempdir_in(parent).map_err(unavailable(parent))?;
    let (object, linked) = (folder.path().join("kernel.o"), folder.path().join("kernel.so"));
    fs::write(&object, bytes).map_err(unavailable(&object))?;
    run_linker(&object, &linked)?;
    // SAFETY: the object has no initialisers. The file is the linker's, since the folder is private. The caller
    // accepts all other faults of the loader.
    let library = unsafe { Library::open(Some(&linked), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| LoadError::Open { message: with_cause(&error) })?;
    context::fill_library(&library)?;
    Ok(LoadedObject { backing: Arc::new(Backing::Library(library)) })
}

fn run_linker(object: &Path, linked: &Path) -> Result<(), LoadError> {
    let mut command = Command::new("ld");
    command.args(["-shared", "-z", "noexecstack", "-o"]).arg(linked).arg(object).stdin(Stdio::null());
    let output =
        command.output().map_err(|source| LoadError::LinkerUnavailable { path: PathBuf::from("ld"), source })?;
    if output.status.success() {
        return Ok(());
    }
    Err(LoadError::LinkerFailed {
        status: output.status.to_string(),
        message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

fn with_cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| cause.to_string())
}
