//! The library opened, and what it gave and takes back.

use super::described::DESCRIBED;
use super::functions::{Base, Functions, VERSION};
use crate::error::{Result, RuntimeError};
use crate::given::{self, Handle, text_of};
use crate::library;
use libloading::Library;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::rc::Rc;

/// Only what goes wrong is to be said, on standard error.
const LOG_ERRORS: c_int = 3;

/// The library with its environment.
#[derive(Clone)]
pub struct OnnxRuntime(Rc<Opened>);

struct Opened {
    functions: Functions,
    environment: Handle,
    version: String,
    /// Keeps the functions' code mapped.
    _library: Library,
}

/// Opens the library.
pub fn open() -> Result<OnnxRuntime> {
    let file = library::file(&DESCRIBED)?;
    let unusable =
        |why: String| RuntimeError::Unusable { runtime: DESCRIBED.name, file: file.display().to_string(), why };
    // SAFETY: the file is the pinned wheel's library, whose initialisers are trusted as much as the program itself.
    let library = unsafe { Library::new(&file) }.map_err(|error| unusable(error.to_string()))?;
    // SAFETY: the name and the type are those of the interface's header.
    let base = unsafe { library.get::<unsafe extern "C" fn() -> *const Base>(b"OrtGetApiBase\0") };
    let base = base.map_err(|error| unusable(error.to_string()))?;
    // SAFETY: it takes nothing and answers with a constant of the library, or nothing.
    let base = unsafe { base().as_ref() }.ok_or_else(|| unusable("it has no interface".to_owned()))?;
    // SAFETY: both functions of a constant that the library keeps; the text ends in zero and is copied.
    let (table, version) = unsafe { ((base.table)(VERSION), text_of((base.version)())) };
    if table.is_null() {
        return Err(unusable(format!("its version {version} has no interface of version {VERSION}")));
    }
    // SAFETY: the library just gave the table for this version.
    let functions = unsafe { Functions::of(table) };
    let mut environment = null_mut();
    // SAFETY: a constant text that ends in zero, and a pointer to this frame.
    let status = unsafe { (functions.make_environment)(LOG_ERRORS, c"opcollect".as_ptr(), &mut environment) };
    functions.check(status, "begin")?;
    Ok(OnnxRuntime(Rc::new(Opened { functions, environment, version, _library: library })))
}

impl OnnxRuntime {
    /// What the library says of itself.
    pub fn told_version(&self) -> &str {
        &self.0.version
    }

    /// The environment that sessions are made in.
    pub fn environment(&self) -> Handle {
        self.0.environment
    }

    /// Its functions.
    pub fn functions(&self) -> &Functions {
        &self.0.functions
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: made by the library, released once, after every session, since each holds this value.
        unsafe { (self.functions.release_environment)(self.environment) };
    }
}

/// What the library gave and takes back.
pub type Owned = given::Owned<OnnxRuntime>;
