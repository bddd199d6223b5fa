//! Runs a whole model on a device. Code, constants and calls are uploaded once, and the agent executes the calls.

use super::device::Device;
use super::link::Linker;
use super::run::{ENTRY, Stop, data_type, load_library, to_reply};
use super::timing::measure_calls;
use anyhow::Context;
use executor::folder::{self, Content};
use executor::program::{CallArgument, Place, ProgramPort};
use job::{Engine, Measured, NetworkJob, RunReply};
use models::DType;
use remote::Session;
use remote::agent::{CALLS, Order};
use remote::wire::{Tensor, Value};
use std::time::{Duration, Instant};
use worker::Fault;

/// Minimum size of an allocation in bytes, because empty memory has no address.
const BYTES_MIN: u64 = 64;

pub fn run_network(
    device: &mut Device,
    linker: &Linker,
    job: &NetworkJob,
    deadline: Duration,
) -> Result<RunReply, Fault> {
    to_reply(try_run(device, linker, job, Instant::now() + deadline), deadline)
}

fn try_run(device: &mut Device, linker: &Linker, job: &NetworkJob, until: Instant) -> Result<RunReply, Stop> {
    if let Some(why) = unsupported_reason(device, job) {
        return Ok(RunReply::Unsupported(why.to_owned()));
    }
    let content = folder::read_program(&job.program).context("cannot read the program")?;
    if !content.program.stages.is_empty() {
        return Ok(RunReply::Unsupported("boards run the calls of a model only sequentially".to_owned()));
    }
    let linked = content.codes.iter().map(|code| linker.link_object(code).context("cannot link the model's code"));
    let linked = linked.collect::<anyhow::Result<Vec<Vec<u8>>>>()?;
    device.session.set_deadline(until);
    let mut libraries = Vec::with_capacity(linked.len());
    for library in linked {
        libraries.push(load_library(device, library)?.1);
    }
    let memory = BoardMemory::allocate_filled(&mut device.session, &content, &job.read_inputs()?)?;
    let calls = build_calls(&mut device.session, &content, &libraries, &memory)?;
    let order = Order { threads: job.cpus.len(), method: job.method.clone(), counters: job.counters.clone() };
    let measurement = measure_calls(&mut device.session, calls, &order)?;
    let mut outputs = Vec::new();
    for (place, port) in content.program.outputs.iter().enumerate() {
        let extents = port.ty.extents().context("the model has a symbolic dimension")?;
        let argument =
            CallArgument { place: port.same_as.unwrap_or(Place::Output(place)), dtype: port.ty.dtype, extents };
        outputs.extend(device.session.read_tensor(&memory.argument_tensor(&argument)?)?);
    }
    job.write_outputs(outputs)?;
    // The memory use of the agent's process says little about the model, so none is reported.
    Ok(RunReply::Measured(Box::new(Measured::from_measurement(measurement, None, 0))))
}

fn unsupported_reason(device: &Device, job: &NetworkJob) -> Option<&'static str> {
    match () {
        () if device.description.is_none() => Some(
            "TVM's server runs each call of a model separately, so the time of the whole model would include network \
             delays; start `opcollect-board serve` on the board",
        ),
        () if job.engine != Engine::Program => Some("boards run only compiled code"),
        () if job.profile.is_some() => Some("operators can be profiled only on this machine"),
        () => None,
    }
}

fn build_calls(session: &mut Session, content: &Content, libraries: &[u64], memory: &BoardMemory) -> Result<u64, Stop> {
    let function = session.find_function(CALLS)?;
    let function =
        function.context("the agent is too old to run whole models; rebuild it with `scripts/board-image`")?;
    let Value::Function(calls) = session.call(function, Vec::new())? else {
        return Err(anyhow::anyhow!("the agent did not create a call sequence").into());
    };
    for call in &content.program.calls {
        let library = libraries.get(call.code).context("a call refers to code that the program does not contain")?;
        let mut arguments = vec![Value::Function(calls), Value::Module(*library), Value::Text(ENTRY.to_owned())];
        for argument in &call.arguments {
            arguments.push(Value::Tensor(memory.argument_tensor(argument)?));
        }
        session.call(function, arguments)?;
    }
    Ok(calls)
}

struct BoardMemory<'a> {
    content: &'a Content,
    activations: Tensor,
    constants: Tensor,
    inputs: Vec<Tensor>,
    outputs: Vec<Tensor>,
}

impl<'a> BoardMemory<'a> {
    /// Allocates memory for tensors and fills it; outputs receive a pattern that no result equals.
    fn allocate_filled(
        session: &mut Session,
        content: &'a Content,
        mut inputs: &[u8],
    ) -> Result<BoardMemory<'a>, Stop> {
        let program = &content.program;
        let activations = allocate_bytes(session, program.activation_bytes)?;
        let constants = allocate_bytes(session, content.constants.len() as u64)?;
        session.write_tensor(&constants, &content.constants)?;
        let port = |session: &mut Session, port: &ProgramPort| -> Result<(Tensor, usize), Stop> {
            let size = port.ty.size_bytes().context("the model has a symbolic dimension")?;
            Ok((
                allocate_bytes(session, size)?,
                usize::try_from(size).context("a tensor is too large for this machine")?,
            ))
        };
        let mut given = Vec::with_capacity(program.inputs.len());
        for one in &program.inputs {
            let (tensor, size) = port(session, one)?;
            let (own, rest) =
                inputs.split_at_checked(size).context("the model's input data are shorter than its inputs")?;
            session.write_tensor(&tensor, own)?;
            given.push(tensor);
            inputs = rest;
        }
        let mut outputs = Vec::with_capacity(program.outputs.len());
        for one in &program.outputs {
            let (tensor, size) = port(session, one)?;
            session.write_tensor(&tensor, &vec![0xff; size])?;
            outputs.push(tensor);
        }
        Ok(BoardMemory { content, activations, constants, inputs: given, outputs })
    }

    fn argument_tensor(&self, argument: &CallArgument) -> anyhow::Result<Tensor> {
        let (block, byte_offset) = match argument.place {
            Place::Activation(offset) => (Some(&self.activations), offset),
            Place::Constant(place) => (
                Some(&self.constants),
                *self.content.offsets.get(place).context("a constant has no offset in the program")?,
            ),
            Place::Input(place) => (self.inputs.get(place), 0),
            Place::Output(place) => (self.outputs.get(place), 0),
        };
        let block = block.context("a call refers to a tensor that the program does not contain")?.clone();
        Ok(Tensor { dtype: data_type(argument.dtype), shape: argument.extents.clone(), byte_offset, ..block })
    }
}

fn allocate_bytes(session: &mut Session, count: u64) -> Result<Tensor, Stop> {
    let count = i64::try_from(count.max(BYTES_MIN)).context("a tensor is too large")?;
    Ok(session.allocate_tensor(data_type(DType::U8), &[count])?)
}
