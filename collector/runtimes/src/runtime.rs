//! Common interface of all runtimes, and their static descriptions.

use crate::error::Result;
use crate::ports::Ports;
use std::path::Path;
use worker::RunnerProcess;

#[derive(Debug)]
pub struct RuntimeDescription {
    pub name: &'static str,
    /// Key of the runtime in lists of versions.
    pub key: &'static str,
    /// Folder of the library among installed wheels.
    pub(crate) folder: &'static str,
    pub(crate) file: &'static str,
    pub hint: &'static str,
}

pub trait Runtime: Sized {
    type Session: Session;

    const DESCRIPTION: &'static RuntimeDescription;

    fn open() -> Result<Self>;

    fn version(&self) -> String;

    /// Loads a model that runs with one thread per CPU, including the caller.
    fn load(&self, process: RunnerProcess, model: &Path, cpus: &[usize]) -> Result<Self::Session>;

    /// Returns the CPUs that the calling thread of a run is pinned to.
    fn caller_cpus(cpus: &[usize]) -> &[usize];
}

pub trait Session {
    type Handle;

    fn ports(&mut self) -> &mut Ports<Self::Handle>;

    fn run(&mut self, times: u32) -> Result<()>;
}
