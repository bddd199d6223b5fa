//! Loading of ONNX Runtime's library.

use super::description::DESCRIPTION;
use super::functions::{Base, OnnxRuntimeFunctions, VERSION};
use crate::error::{Result, RuntimeError};
use crate::handles::{self, Handle, text_of};
use crate::library;
use libloading::Library;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::rc::Rc;

/// Log level of ONNX Runtime at which only errors are printed to standard error.
const LOG_ERRORS: c_int = 3;

#[derive(Clone)]
pub struct OnnxRuntime(Rc<OpenedOnnx>);

struct OpenedOnnx {
    functions: OnnxRuntimeFunctions,
    environment: Handle,
    version: String,
    _library: Library,
}

pub fn open_library() -> Result<OnnxRuntime> {
    let file = library::library_file(&DESCRIPTION)?;
    let unusable =
        |why: String| RuntimeError::Unusable { runtime: DESCRIPTION.name, file: file.display().to_string(), why };
    // SAFETY: the file is the pinned wheel's library, whose initialisers are trusted like the program itself.
    let library = unsafe { Library::new(&file) }.map_err(|error| unusable(error.to_string()))?;
    // SAFETY: name and type match the interface's header.
    let base = unsafe { library.get::<unsafe extern "C" fn() -> *const Base>(b"OrtGetApiBase\0") };
    let base = base.map_err(|error| unusable(error.to_string()))?;
    // SAFETY: the function has no arguments and returns null or a constant of the library.
    let base = unsafe { base().as_ref() }.ok_or_else(|| unusable("the library exports no interface".to_owned()))?;
    // SAFETY: both functions belong to a constant of the library; the text ends with a zero byte and is copied.
    let (table, version) = unsafe { ((base.table)(VERSION), text_of((base.version)())) };
    if table.is_null() {
        return Err(unusable(format!("version {version} of the library lacks version {VERSION} of the interface")));
    }
    // SAFETY: the library returned the table for this version.
    let functions = unsafe { OnnxRuntimeFunctions::from_table(table) };
    let mut environment = null_mut();
    // SAFETY: the text is constant and ends with a zero byte, and the pointer refers to a local variable.
    let status = unsafe { (functions.make_environment)(LOG_ERRORS, c"opcollect".as_ptr(), &mut environment) };
    functions.check_status(status, "be initialised")?;
    Ok(OnnxRuntime(Rc::new(OpenedOnnx { functions, environment, version, _library: library })))
}

impl OnnxRuntime {
    pub fn version_text(&self) -> &str {
        &self.0.version
    }

    /// Returns the library's environment, which all sessions share.
    pub fn environment_handle(&self) -> Handle {
        self.0.environment
    }

    pub fn functions(&self) -> &OnnxRuntimeFunctions {
        &self.0.functions
    }
}

impl Drop for OpenedOnnx {
    fn drop(&mut self) {
        // SAFETY: the library created the environment; it is released once, after every session, since each session
        // holds this value.
        unsafe { (self.functions.release_environment)(self.environment) };
    }
}

pub type Owned = handles::Owned<OnnxRuntime>;
