//! The library opened, and what it gave and takes back.

use super::described::DESCRIBED;
use super::functions::{Functions, Version};
use crate::error::{Result, RuntimeError};
use crate::given::{self, Handle, text_of};
use crate::library;
use libloading::Library;
use std::cell::OnceCell;
use std::ptr::{null, null_mut};
use std::rc::Rc;

/// The library with its core, to which its plugins belong.
#[derive(Clone)]
pub struct OpenVino(Rc<Opened>);

struct Opened {
    functions: Functions,
    core: Handle,
    version: String,
    /// The CPUs that the first model was loaded for.
    cpus: OnceCell<Vec<usize>>,
    /// Keeps the functions' code mapped.
    _library: Library,
}

/// Opens the library.
pub fn open() -> Result<OpenVino> {
    let file = library::file(&DESCRIBED)?;
    let unusable =
        |why: String| RuntimeError::Unusable { runtime: DESCRIBED.name, file: file.display().to_string(), why };
    // SAFETY: the file is the pinned wheel's library, whose initialisers are trusted as much as the program itself.
    let library = unsafe { Library::new(&file) }.map_err(|error| unusable(error.to_string()))?;
    let functions = Functions::of(&library).map_err(|error| unusable(error.to_string()))?;
    let version = version(&functions)?;
    let mut core = null_mut();
    // SAFETY: a pointer to this frame.
    let status = unsafe { (functions.make_core)(&mut core) };
    functions.check(status, "begin")?;
    Ok(OpenVino(Rc::new(Opened { functions, core, version, cpus: OnceCell::new(), _library: library })))
}

/// The version's numbers, of a text that goes on with its build.
fn version(functions: &Functions) -> Result<String> {
    let mut version = Version { build: null(), description: null() };
    // SAFETY: a pointer to this frame.
    let status = unsafe { (functions.version)(&mut version) };
    functions.check(status, "say its version")?;
    // SAFETY: what the library just filled in, copied before it goes back, once.
    let text = unsafe {
        let text = text_of(version.build);
        (functions.release_version)(&mut version);
        text
    };
    Ok(text.split('-').next().unwrap_or_default().to_owned())
}

impl OpenVino {
    /// What the library says of itself.
    pub fn told_version(&self) -> &str {
        &self.0.version
    }

    /// Where models are read and compiled.
    pub fn core(&self) -> Handle {
        self.0.core
    }

    /// Its functions.
    pub fn functions(&self) -> &Functions {
        &self.0.functions
    }

    /// Refuses other CPUs than those of the first model: the library looks once at what a process may use.
    pub fn stay_on(&self, cpus: &[usize]) -> Result<()> {
        let first = self.0.cpus.get_or_init(|| cpus.to_vec());
        if first == cpus {
            return Ok(());
        }
        let why = format!("this process computes on CPUs {first:?} already, and {cpus:?} are asked for");
        Err(RuntimeError::Refused { runtime: DESCRIBED.name, doing: "change CPUs", why })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: made by the library, released once, after everything that was made with it, since all hold this value.
        unsafe { (self.functions.release_core)(self.core) };
    }
}

/// What the library gave and takes back.
pub type Owned = given::Owned<OpenVino>;
