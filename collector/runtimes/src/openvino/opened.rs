//! Loading of OpenVINO's library.

use super::description::DESCRIPTION;
use super::functions::{OpenVinoFunctions, OpenVinoVersion};
use crate::error::{Result, RuntimeError};
use crate::handles::{self, Handle, text_of};
use crate::library;
use libloading::Library;
use std::cell::OnceCell;
use std::ptr::{null, null_mut};
use std::rc::Rc;

/// The loaded library with its core object, which owns the library's plugins.
#[derive(Clone)]
pub struct OpenVino(Rc<OpenedOpenVino>);

struct OpenedOpenVino {
    functions: OpenVinoFunctions,
    core: Handle,
    version: String,
    /// CPUs that the first model was loaded for.
    cpus: OnceCell<Vec<usize>>,
    _library: Library,
}

pub fn open_library() -> Result<OpenVino> {
    let file = library::library_file(&DESCRIPTION)?;
    let unusable =
        |why: String| RuntimeError::Unusable { runtime: DESCRIPTION.name, file: file.display().to_string(), why };
    // SAFETY: the file is the pinned wheel's library, whose initialisers are trusted like the program itself.
    let library = unsafe { Library::new(&file) }.map_err(|error| unusable(error.to_string()))?;
    let functions = OpenVinoFunctions::load_from(&library).map_err(|error| unusable(error.to_string()))?;
    let version = parse_version(&functions)?;
    let mut core = null_mut();
    // SAFETY: the pointer refers to a local variable.
    let status = unsafe { (functions.make_core)(&mut core) };
    functions.check_status(status, "be initialised")?;
    Ok(OpenVino(Rc::new(OpenedOpenVino { functions, core, version, cpus: OnceCell::new(), _library: library })))
}

/// Returns the library's version number, without the build information that follows it in the library's text.
fn parse_version(functions: &OpenVinoFunctions) -> Result<String> {
    let mut version = OpenVinoVersion { build: null(), description: null() };
    // SAFETY: the pointer refers to a local variable.
    let status = unsafe { (functions.version)(&mut version) };
    functions.check_status(status, "report its version")?;
    // SAFETY: the library filled the version in; it is copied before it is released once.
    let text = unsafe {
        let text = text_of(version.build);
        (functions.release_version)(&mut version);
        text
    };
    Ok(text.split('-').next().unwrap_or_default().to_owned())
}

impl OpenVino {
    pub fn version_text(&self) -> &str {
        &self.0.version
    }

    pub fn core_handle(&self) -> Handle {
        self.0.core
    }

    pub fn functions(&self) -> &OpenVinoFunctions {
        &self.0.functions
    }

    /// Rejects CPUs other than those of the first model, since the library reads the process's affinity only once.
    pub fn check_cpus(&self, cpus: &[usize]) -> Result<()> {
        let first = self.0.cpus.get_or_init(|| cpus.to_vec());
        if first == cpus {
            return Ok(());
        }
        let why = format!("the process already uses CPUs {first:?}, but {cpus:?} are requested");
        Err(RuntimeError::Refused { runtime: DESCRIPTION.name, doing: "change CPUs", why })
    }
}

impl Drop for OpenedOpenVino {
    fn drop(&mut self) {
        // SAFETY: the library created the core; it is released once, after all objects made with it, since they hold
        // this value.
        unsafe { (self.functions.release_core)(self.core) };
    }
}

pub type Owned = handles::Owned<OpenVino>;
