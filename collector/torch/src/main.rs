//! Computes tasks, whole models and TorchScript files through PyTorch's library for `opcollect`, which starts it, speaks to it over a
//! socket and survives its end.
//!
//! A program of its own: the library brings its own pool of threads, and two pools in one process would disturb each
//! other's times. This is the only program that names the crate `tch`; it is built with the feature `torch`.

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
    worker::end(serve())
}

fn serve() -> anyhow::Result<()> {
    let entry = worker::enter()?;
    let versions = BTreeMap::from([("torch".to_owned(), env!("OPCOLLECT_TORCH_VERSION").to_owned())]);
    let mut library = Library::default();
    entry.serve(versions, |job| library.answer(&job))?;
    Ok(())
}
