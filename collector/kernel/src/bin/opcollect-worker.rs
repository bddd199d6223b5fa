//! Worker process of `opcollect`, which builds or runs artifacts and replies over a socket. The orchestrator survives
//! crashes of this process and is not linked with TVM.

use job::{RunJob, RunReply};
use kernel::breeder::Breeder;
use kernel::builder::Builder;
use kernel::network;
use kernel::runner::{self, Runner};
use kernel::together;
use kernel::tvm::{compile, library, names::NameRole};
use runtimes::Runtime;
use runtimes::onnxruntime::OnnxRuntime;
use runtimes::openvino::OpenVino;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::process::ExitCode;
use worker::Entry;

fn main() -> ExitCode {
    worker::exit_code(serve_role())
}

fn serve_role() -> anyhow::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("build") => serve_with_tvm(NameRole::Builder, |entry, mut versions| {
            versions.insert("cpu".to_owned(), compile::system_cpu()?);
            let mut builder = Builder::default();
            Ok(entry.serve_requests(versions, |job| builder.answer_job(&job))?)
        }),
        Some("breed") => serve_with_tvm(NameRole::Builder, |entry, versions| {
            let mut breeder = Breeder::default();
            Ok(entry.serve_requests(versions, |job| breeder.answer_job(&job))?)
        }),
        Some("run") => serve_with_tvm(NameRole::Runner, |entry, versions| {
            let mut runner = Runner::new(entry.become_runner());
            Ok(entry.serve_requests(versions, |job| runner.answer_job(&job))?)
        }),
        Some("run-network") => serve_with_tvm(NameRole::Runner, |entry, versions| {
            let mut runner = network::Runner::new(entry.become_runner());
            Ok(entry.serve_requests(versions, |job| runner.answer_job(&job))?)
        }),
        Some("run-together") => serve_with_tvm(NameRole::Runner, |entry, versions| {
            let mut runner = together::Runner::new(entry.become_runner());
            Ok(entry.serve_requests(versions, |job| runner.answer_job(&job))?)
        }),
        Some("call") => call_artifact(),
        Some("run-cuda") => serve_device(cuda::Runner::answer_job),
        Some("run-cuda-network") => serve_device(cuda::Runner::answer_network),
        Some("run-onnxruntime") => serve_runtime::<OnnxRuntime>(),
        Some("run-openvino") => serve_runtime::<OpenVino>(),
        _ => anyhow::bail!(
            "usage: `opcollect-worker build|breed|run|run-network|run-together|call|run-cuda|run-cuda-network|run-onnxruntime|\
             run-openvino`, started by `opcollect`"
        ),
    }
}

/// Calls the code in a file repeatedly, to be run in a simulator: `call SUPERVISOR FILE TIMES`.
fn call_artifact() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(2).collect();
    let [supervisor, file, times] = &words[..] else {
        anyhow::bail!("`call` takes a process id, a file and a number of calls")
    };
    let process = worker::enter_alone(supervisor.parse()?)?;
    library::open_libraries(NameRole::Runner)?;
    let job: RunJob = serde_json::from_slice(&std::fs::read(file)?)?;
    runner::call_only(process, &job, times.parse()?)
}

type Versions = BTreeMap<String, String>;

fn serve_with_tvm(role: NameRole, serve: impl FnOnce(Entry, Versions) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let entry = worker::enter_worker()?;
    let opened = library::open_libraries(role)?;
    let mut versions = BTreeMap::from([("tvm".to_owned(), opened.tvm)]);
    versions.extend(opened.llvm.map(|llvm| ("llvm".to_owned(), llvm)));
    serve(entry, versions)
}

fn serve_device<Job: DeserializeOwned>(answer: fn(&mut cuda::Runner, &Job) -> RunReply) -> anyhow::Result<()> {
    let entry = worker::enter_worker()?;
    let process = entry.become_runner();
    let mut runner = cuda::Runner::open(process)?;
    let facts = runner.gpu().device.read_facts()?;
    let versions = BTreeMap::from([
        ("device".to_owned(), facts.name),
        ("capability".to_owned(), facts.capability.to_string()),
        ("driver".to_owned(), format!("CUDA {}", facts.driver_cuda)),
    ]);
    entry.serve_requests(versions, |job| answer(&mut runner, &job))?;
    Ok(())
}

fn serve_runtime<R: Runtime>() -> anyhow::Result<()> {
    let entry = worker::enter_worker()?;
    let mut runner = runtimes::Runner::<R>::open(entry.become_runner())?;
    let versions = BTreeMap::from([(R::DESCRIPTION.key.to_owned(), runner.version())]);
    entry.serve_requests(versions, |job| runner.process_job(&job))?;
    Ok(())
}
