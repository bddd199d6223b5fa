//! Common interface of all runtimes, and their static descriptions.

use crate::error::Result;
use crate::ports::Ports;
use std::path::Path;
use worker::RunnerProcess;

/// Static description of a runtime.
#[derive(Debug)]
pub struct Described {
    pub name: &'static str,
    /// Key in lists of versions.
    pub key: &'static str,
    /// Folder of the library among installed wheels.
    pub(crate) folder: &'static str,
    /// Prefix of the library's file name.
    pub(crate) file: &'static str,
    /// Remedy if the library cannot be loaded.
    pub hint: &'static str,
}

/// A loaded library that runs whole models.
pub trait Runtime: Sized {
    /// Type of a loaded model.
    type Session: Session;

    const DESCRIBED: &'static Described;

    /// Loads the library.
    fn open() -> Result<Self>;

    /// Returns the library's version, such as `1.31.1`.
    fn version(&self) -> String;

    /// Loads a model that runs with one thread per CPU, including the caller.
    fn load(&self, process: RunnerProcess, model: &Path, cpus: &[usize]) -> Result<Self::Session>;

    /// Returns the CPUs that the calling thread of a run is pinned to.
    fn caller_cpus(cpus: &[usize]) -> &[usize];
}

/// A loaded model with memory for its inputs and outputs.
pub trait Session {
    /// Library's handle of an input or output.
    type Handle;

    /// Returns the inputs and outputs.
    fn ports(&mut self) -> &mut Ports<Self::Handle>;

    /// Runs the model `times` times.
    fn run(&mut self, times: u32) -> Result<()>;
}
