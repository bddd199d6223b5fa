//! Runs one operator on a device: link, upload, fill, measure, compare.

use super::device::Device;
use super::link::Linker;
use super::timing::{LoadedLibrary, by_agent, by_evaluator};
use anyhow::Context;
use job::prepared::{PreparedTask, PreparedTasks};
use job::{Measured, RunJob, RunReply};
use models::DType;
use reference::Rounding;
use remote::RemoteError;
use remote::agent::Order;
use remote::wire::{DataType, Tensor, Value};
use std::time::{Duration, Instant};
use worker::Fault;

/// Name of the entry point of every artifact.
pub const ENTRY: &str = "main";

/// The reason why a job has no time.
pub enum Stop {
    Remote(RemoteError),
    Here(anyhow::Error),
}

impl From<RemoteError> for Stop {
    fn from(error: RemoteError) -> Stop {
        Stop::Remote(error)
    }
}

impl From<anyhow::Error> for Stop {
    fn from(error: anyhow::Error) -> Stop {
        Stop::Here(error)
    }
}

/// Runs a job within its deadline. The session reports whether it is still usable.
pub fn run(
    device: &mut Device,
    prepared: &mut PreparedTasks,
    linker: &Linker,
    job: &RunJob,
    deadline: Duration,
) -> Result<RunReply, Fault> {
    ended(try_run(device, prepared, linker, job, Instant::now() + deadline), deadline)
}

/// Converts the end of a job to a reply or a fault.
pub fn ended(end: Result<RunReply, Stop>, deadline: Duration) -> Result<RunReply, Fault> {
    match end {
        Ok(reply) => Ok(reply),
        Err(Stop::Here(error)) => Ok(RunReply::Failed(format!("{error:#}"))),
        Err(Stop::Remote(error)) => fault(error, deadline),
    }
}

fn fault(error: RemoteError, deadline: Duration) -> Result<RunReply, Fault> {
    let limit_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
    match error {
        RemoteError::TimedOut { .. } => Err(Fault::TimedOut { limit_ms }),
        RemoteError::Refused(why) if why.contains("RPCSessionTimeoutError") => Err(Fault::TimedOut { limit_ms }),
        RemoteError::Refused(why) if why.contains("the session crashed") => Err(Fault::Lost { why }),
        RemoteError::Refused(why) => Ok(RunReply::Failed(why)),
        RemoteError::Malformed(why) => Err(Fault::Corrupt { why }),
        other => Err(Fault::Lost { why: other.to_string() }),
    }
}

fn try_run(
    device: &mut Device,
    prepared: &mut PreparedTasks,
    linker: &Linker,
    job: &RunJob,
    until: Instant,
) -> Result<RunReply, Stop> {
    if job.device.is_some() || job.tvm_evaluator.is_some() {
        return Ok(RunReply::Unsupported("a board runs code for its CPU, and measures by our rule".to_owned()));
    }
    let prepared = prepared.get(&job.task, job.seed, job.is_checked)?;
    let library = linker.link(&job.object).map_err(|error| Stop::Here(error.into()))?;
    device.session.until(until);
    let (file, library) = load(device, library)?;
    let tensors = fill(device, prepared, job)?;
    let loaded = LoadedLibrary { library, name: ENTRY, tensors: &tensors };
    let order = Order { threads: job.cpus.len(), method: job.method.clone(), counters: job.counters.clone() };
    let session = &mut device.session;
    let measurement = match device.told {
        Some(_) => by_agent(session, &loaded, &order)?,
        None => by_evaluator(session, &loaded, &order)?,
    };
    let output = tensors.last().context("an artifact has an output")?;
    let check = match job.is_checked {
        true => Some(prepared.check(session.read(output)?, Rounding::None)?),
        false => None,
    };
    tensors.iter().try_for_each(|tensor| session.free(tensor))?;
    session.release(library)?;
    session.call_named("tvm.rpc.server.remove", vec![Value::Text(file)])?;
    if let Some(check) = check.filter(|check| !check.is_right) {
        return Ok(RunReply::WrongResult(check));
    }
    // The memory use of the agent's process says nothing about the operator, so none is reported.
    Ok(RunReply::Measured(Box::new(Measured::new(measurement, check, 0))))
}

/// Uploads and loads a library; returns its file name and its handle.
pub fn load(device: &mut Device, library: Vec<u8>) -> Result<(String, u64), RemoteError> {
    // Each upload has a new name, because TVM's server would overwrite the file of a library in use.
    device.uploads += 1;
    let file = format!("kernel-{}.so", device.uploads);
    device.session.upload(&file, library)?;
    let library = device.session.load(&file)?;
    Ok((file, library))
}

/// Creates tensors on the device: packed inputs, and an output with a pattern that no result equals.
fn fill(device: &mut Device, prepared: &PreparedTask, job: &RunJob) -> Result<Vec<Tensor>, Stop> {
    let (result, packings) = job.packings.split_last().context("an artifact has an output")?;
    if packings.len() != prepared.inputs.len() {
        return Err(anyhow::anyhow!("the artifact takes another number of parameters than the task").into());
    }
    let mut tensors = Vec::with_capacity(packings.len() + 1);
    for (input, packing) in prepared.inputs.iter().zip(packings) {
        let extents = input.ty().extents().context("a dimension is a symbol")?;
        let dtype = input.ty().dtype;
        let tensor = device.session.allocate(data_type(packing.dtype(dtype)), &packing.extents(&extents))?;
        let element_bytes = usize::try_from(dtype.bytes()).context("an element has a size")?;
        device.session.write(&tensor, &packing.pack(&extents, element_bytes, input.bytes()))?;
        tensors.push(tensor);
    }
    let ty = prepared.output();
    let extents = ty.extents().context("a dimension is a symbol")?;
    let output = device.session.allocate(data_type(ty.dtype), &result.extents(&extents))?;
    let bytes = usize::try_from(ty.bytes().context("a dimension is a symbol")?).context("a tensor fits into memory")?;
    device.session.write(&output, &vec![0xff; bytes])?;
    tensors.push(output);
    Ok(tensors)
}

pub fn data_type(dtype: DType) -> DataType {
    let (code, bits) = dtype.dlpack();
    DataType { code, bits, lanes: 1 }
}
