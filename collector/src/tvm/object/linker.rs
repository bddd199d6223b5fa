//! The fallback: the system's linker makes a shared library of the object, and the dynamic loader opens it.
//!
//! Two milliseconds instead of some microseconds, but it takes whatever the toolchain of the machine understands.

use std::ffi::{CString, OsString, c_void};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::{Backing, LoadError, Loaded, context};

/// Links an object in the folder `dir` and opens the result; the files are removed before this returns.
///
/// The folder should be the process's own: whoever may write there could put another library in place of the result.
/// Unlike [`super::load`], opening a library runs the code that the object registered for loading, if any.
///
/// # Errors
///
/// The files cannot be written, there is no linker, it refuses the object, or a symbol is not to be found.
pub fn load_through_linker(bytes: &[u8], dir: &Path) -> Result<Loaded, LoadError> {
    let files = Files::named_in(dir);
    File::create_new(&files.object)
        .and_then(|mut file| file.write_all(bytes))
        .map_err(|source| LoadError::LinkerUnavailable { path: files.object.clone(), source })?;
    link(&files)?;
    // SAFETY: opening runs initialisers; kernels of a compiler have none, and only runner processes come here.
    let library = unsafe { Library::open(Some(&files.library), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| LoadError::Open { message: with_cause(&error) })?;
    context::fill_library(&library)?;
    Ok(Loaded { backing: Arc::new(Backing::Library(library)) })
}

/// The address of a symbol in a library or in those that it was linked with; the process counts as a library.
pub(super) fn find(library: &Library, name: &str) -> Option<NonNull<c_void>> {
    let name = CString::new(name).ok()?;
    // SAFETY: the symbol is only taken as an address.
    let symbol = unsafe { library.get::<*mut c_void>(name.as_c_str()) }.ok()?;
    NonNull::new(symbol.into_raw())
}

fn link(files: &Files) -> Result<(), LoadError> {
    let mut command = Command::new("ld");
    command.args(["-shared", "-z", "noexecstack", "-o"]).arg(&files.library).arg(&files.object).stdin(Stdio::null());
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

/// The dynamic loader keeps its reason in the cause.
fn with_cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| cause.to_string())
}

/// The two files of one link, removed on drop; an opened library stays mapped without its file.
struct Files {
    object: PathBuf,
    library: PathBuf,
}

impl Files {
    fn named_in(dir: &Path) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let stem = format!("kernel-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let file = |extension: &str| dir.join(OsString::from(format!("{stem}.{extension}")));
        Self { object: file("o"), library: file("so") }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // What is left after a failed removal is litter in a temporary folder, no reason to refuse a loaded kernel.
        let _ = fs::remove_file(&self.object);
        let _ = fs::remove_file(&self.library);
    }
}
