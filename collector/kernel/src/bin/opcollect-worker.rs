//! Builds or runs artifacts for `opcollect`, which starts it, speaks to it over a socket and survives its end.
//!
//! A program of its own, so that the orchestrator is linked without TVM.

use kernel::builder::Builder;
use kernel::network;
use kernel::runner::Runner;
use kernel::tvm::{compile, library, names::Role};
use std::collections::BTreeMap;
use std::process::ExitCode;

fn main() -> ExitCode {
    worker::end(serve())
}

fn serve() -> anyhow::Result<()> {
    let role = match std::env::args().nth(1).as_deref() {
        Some("build") => Role::Builder,
        Some("run" | "run-network") => Role::Runner,
        Some("run-cuda") => return serve_device(),
        _ => anyhow::bail!("usage: `opcollect-worker build|run|run-network|run-cuda`, started by `opcollect`"),
    };
    let is_network = std::env::args().nth(1).as_deref() == Some("run-network");
    let entry = worker::enter()?;
    let opened = library::open(role)?;
    let mut versions = BTreeMap::from([("tvm".to_owned(), opened.tvm)]);
    versions.extend(opened.llvm.map(|llvm| ("llvm".to_owned(), llvm)));
    match role {
        Role::Builder => {
            versions.insert("cpu".to_owned(), compile::system_cpu()?);
            let mut builder = Builder::default();
            entry.serve(versions, |job| builder.answer(&job))?;
        }
        Role::Runner if is_network => {
            let process = entry.become_runner();
            entry.serve(versions, |job| network::answer(process, &job))?;
        }
        Role::Runner => {
            let mut runner = Runner::new(entry.become_runner());
            entry.serve(versions, |job| runner.answer(&job))?;
        }
    }
    Ok(())
}

/// A runner that needs the driver and nothing of TVM.
fn serve_device() -> anyhow::Result<()> {
    let entry = worker::enter()?;
    let process = entry.become_runner();
    let mut runner = cuda::Runner::open(process)?;
    let facts = runner.gpu().device.facts()?;
    let versions = BTreeMap::from([
        ("device".to_owned(), facts.name),
        ("capability".to_owned(), facts.capability.to_string()),
        ("driver".to_owned(), format!("CUDA {}", facts.driver_cuda)),
    ]);
    entry.serve(versions, |job| runner.answer(&job))?;
    Ok(())
}
