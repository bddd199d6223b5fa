//! What all runtimes can do, and what is known of each without its library.

use crate::error::Result;
use crate::ports::Ports;
use std::path::Path;
use worker::RunnerProcess;

/// A runtime as people and files call it.
#[derive(Debug)]
pub struct Described {
    /// As it is told.
    pub name: &'static str,
    /// As versions list it.
    pub key: &'static str,
    /// Where its library lies among installed wheels.
    pub(crate) folder: &'static str,
    /// How the name of its library's file begins.
    pub(crate) file: &'static str,
    /// What to do where the library cannot be used.
    pub hint: &'static str,
}

/// A library that runs whole models, opened.
pub trait Runtime: Sized {
    /// A model of its, loaded.
    type Session: Session;

    /// What it is.
    const DESCRIBED: &'static Described;

    /// Opens the library.
    fn open() -> Result<Self>;

    /// The library's version, such as `1.31.1`.
    fn version(&self) -> String;

    /// Loads a model's file, to be run by one thread on each of these CPUs, the caller being one of them.
    fn load(&self, process: RunnerProcess, model: &Path, cpus: &[usize]) -> Result<Self::Session>;

    /// Those of a job's CPUs that the caller of a run is pinned to.
    fn caller_cpus(cpus: &[usize]) -> &[usize];
}

/// A model that is ready to run, with memory for all that goes in and comes out.
pub trait Session {
    /// What the library knows an input or an output by.
    type Handle;

    /// Its inputs and outputs.
    fn ports(&mut self) -> &mut Ports<Self::Handle>;

    /// Runs the model so many times.
    fn run(&mut self, times: u32) -> Result<()>;
}
