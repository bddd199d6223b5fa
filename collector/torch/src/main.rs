//! The worker program that computes tasks, whole models and TorchScript files with PyTorch's library. `opcollect`
//! starts it and survives its crash. It is a separate program, because the library has a thread pool, and two pools in
//! one process would disturb each other's times. It is built with the feature `torch`.

mod call;
mod contraction;
mod inputs;
mod module;
mod movement;
mod network;
mod normalise;
mod operators;
mod pointwise;
mod reduce;
mod refusal;
mod run;
mod timing;
mod window;

use run::Library;
use std::collections::BTreeMap;
use std::process::ExitCode;

fn main() -> ExitCode {
    worker::exit_code(serve_jobs())
}

fn serve_jobs() -> anyhow::Result<()> {
    let entry = worker::enter_worker()?;
    let versions = BTreeMap::from([("torch".to_owned(), env!("OPCOLLECT_TORCH_VERSION").to_owned())]);
    let mut library = Library::default();
    entry.serve_requests(versions, |job| library.answer_job(&job))?;
    Ok(())
}
