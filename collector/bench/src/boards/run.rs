//! Runs one operator on a device: link, upload, fill, measure, compare.

use super::device::Device;
use super::link::Linker;
use super::timing::{LoadedLibrary, measure_by_agent, measure_by_evaluator};
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

pub const ENTRY: &str = "main";

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

/// Runs a job and converts errors to a reply or a fault. Afterwards, the session reports whether it is usable.
pub fn run_job(
    device: &mut Device,
    prepared: &mut PreparedTasks,
    linker: &Linker,
    job: &RunJob,
    deadline: Duration,
) -> Result<RunReply, Fault> {
    to_reply(try_run(device, prepared, linker, job, Instant::now() + deadline), deadline)
}

pub fn to_reply(end: Result<RunReply, Stop>, deadline: Duration) -> Result<RunReply, Fault> {
    match end {
        Ok(reply) => Ok(reply),
        Err(Stop::Here(error)) => Ok(RunReply::Failed(format!("{error:#}"))),
        Err(Stop::Remote(error)) => to_fault(error, deadline),
    }
}

fn to_fault(error: RemoteError, deadline: Duration) -> Result<RunReply, Fault> {
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
        return Ok(RunReply::Unsupported(
            "boards measure only CPU code, and only with this project's stopping rule".to_owned(),
        ));
    }
    let prepared = prepared.get_task(&job.task, job.seed, job.is_checked)?;
    let library = linker.link_object(&job.object).map_err(|error| Stop::Here(error.into()))?;
    device.session.set_deadline(until);
    let (file, library) = load_library(device, library)?;
    let tensors = create_tensors(device, prepared, job)?;
    let loaded = LoadedLibrary { library, name: ENTRY, tensors: &tensors };
    let order = Order { threads: job.cpus.len(), method: job.method.clone(), counters: job.counters.clone() };
    let session = &mut device.session;
    let measurement = match device.description {
        Some(_) => measure_by_agent(session, &loaded, &order)?,
        None => measure_by_evaluator(session, &loaded, &order)?,
    };
    let output = tensors.last().context("the artifact has no output")?;
    let check = match job.is_checked {
        true => Some(prepared.check_result(session.read_tensor(output)?, Rounding::None)?),
        false => None,
    };
    tensors.iter().try_for_each(|tensor| session.free_tensor(tensor))?;
    session.release_handle(library)?;
    session.call_named("tvm.rpc.server.remove", vec![Value::Text(file)])?;
    if let Some(check) = check.filter(|check| !check.is_right) {
        return Ok(RunReply::WrongResult(check));
    }
    // The memory use of the agent's process says nothing about the operator, so none is reported.
    Ok(RunReply::Measured(Box::new(Measured::from_measurement(measurement, check, 0))))
}

/// Uploads and loads a library. Returns its file name and its handle.
pub fn load_library(device: &mut Device, library: Vec<u8>) -> Result<(String, u64), RemoteError> {
    // Each upload has a new name, because TVM's server would overwrite the file of a library in use.
    device.uploads += 1;
    let file = format!("kernel-{}.so", device.uploads);
    device.session.upload_file(&file, library)?;
    let library = device.session.load_library(&file)?;
    Ok((file, library))
}

/// Creates the inputs with their packed content, and an output with a pattern that no result equals.
fn create_tensors(device: &mut Device, prepared: &PreparedTask, job: &RunJob) -> Result<Vec<Tensor>, Stop> {
    let (result, packings) = job.packings.split_last().context("the artifact has no output")?;
    if packings.len() != prepared.inputs.len() {
        return Err(anyhow::anyhow!("the artifact and the task have different numbers of parameters").into());
    }
    let mut tensors = Vec::with_capacity(packings.len() + 1);
    for (input, packing) in prepared.inputs.iter().zip(packings) {
        let extents = input.tensor_type().extents().context("the task has a symbolic dimension")?;
        let dtype = input.tensor_type().dtype;
        let tensor = device
            .session
            .allocate_tensor(data_type(packing.stored_dtype(dtype)), &packing.stored_extents(&extents))?;
        let element_bytes = usize::try_from(dtype.size_bytes()).context("an element type has no size")?;
        let packed = packing.pack(&extents, element_bytes, input.as_bytes());
        let packed = packed.with_context(|| format!("the artifact stores {dtype} as {packing}"))?;
        device.session.write_tensor(&tensor, &packed)?;
        tensors.push(tensor);
    }
    let ty = prepared.output_type();
    let extents = ty.extents().context("the task has a symbolic dimension")?;
    let output = device.session.allocate_tensor(data_type(ty.dtype), &result.stored_extents(&extents))?;
    let bytes = usize::try_from(ty.size_bytes().context("the task has a symbolic dimension")?)
        .context("a tensor is too large for this machine")?;
    device.session.write_tensor(&output, &vec![0xff; bytes])?;
    tensors.push(output);
    Ok(tensors)
}

pub fn data_type(dtype: DType) -> DataType {
    let (code, bits) = dtype.dlpack_code();
    DataType { code, bits, lanes: 1 }
}
