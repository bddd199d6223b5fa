//! Runs whole models: the calls of a program in sequence, each as a task of the library. Results are freed after their
//! last use. A model stays loaded, with the thread that measures it, while folder, inputs and CPUs do not change.

use crate::inputs;
use crate::operators;
use crate::refusal::{Refusal, Result};
use crate::timing::LibraryTiming;
use anyhow::Context;
use executor::folder;
use executor::program::{CallArgument, Place, Program};
use job::kept::JobCache;
use job::serving::Serving;
use job::{Measured, NetworkJob, RunReply};
use models::{Task, TensorType};
use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender};
use tch::Tensor;
use worker::peak_resident_bytes;

#[derive(Default)]
pub struct Networks(JobCache<Serving<anyhow::Result<RunReply>>>);

impl Networks {
    pub fn answer_job(&mut self, job: &NetworkJob) -> anyhow::Result<RunReply> {
        let files: [&Path; 2] = [&folder::description_path(&job.program), &job.inputs];
        self.0.serve_job(job, &files, serve_model, |reply| matches!(reply, RunReply::Measured(_)))
    }
}

fn serve_model(jobs: &Receiver<NetworkJob>, answers: &Sender<anyhow::Result<RunReply>>) -> anyhow::Result<()> {
    let Ok(mut job) = jobs.recv() else { return Ok(()) };
    let _without_gradients = tch::no_grad_guard();
    let mut timing = LibraryTiming::open_session(&job.cpus, &job.counters)?;
    let network = match TorchNetwork::load_program(&job)? {
        Ok(network) => network,
        Err(refusal) => {
            let _ = answers.send(Ok(refusal_reply(refusal)));
            return Ok(());
        }
    };
    loop {
        let reply = match timing.time_runs(&job.method, || network.run_once()) {
            Err(refusal) => refusal_reply(refusal),
            Ok((measurement, outputs)) => {
                job.write_outputs(network.output_bytes(&outputs).map_err(|refusal| anyhow::anyhow!("{refusal}"))?)?;
                RunReply::Measured(Box::new(Measured::from_measurement(measurement, None, peak_resident_bytes())))
            }
        };
        if answers.send(Ok(reply)).is_err() {
            return Ok(());
        }
        let Ok(next) = jobs.recv() else { return Ok(()) };
        job = next;
    }
}

fn refusal_reply(refusal: Refusal) -> RunReply {
    match refusal {
        Refusal::Unsupported(why) => RunReply::Unsupported(why),
        Refusal::Failed(why) => RunReply::Failed(why),
    }
}

struct TorchNetwork {
    program: Program,
    tasks: Vec<(Task, Vec<Tensor>)>,
    given: HashMap<Place, Tensor>,
    last_read: Vec<Vec<Place>>,
}

impl TorchNetwork {
    /// Loads a program in which the code of each call is a task as JSON.
    fn load_program(job: &NetworkJob) -> anyhow::Result<Result<TorchNetwork>> {
        let content = folder::read_program(&job.program)?;
        let tasks = content.codes.iter().map(|text| {
            let task: Task = serde_json::from_slice(text).context("the program's code is not a task")?;
            task.check()?;
            Ok(task)
        });
        let tasks = tasks.collect::<anyhow::Result<Vec<Task>>>()?;
        Ok(TorchNetwork::from_content(content, tasks, &job.read_inputs()?))
    }

    fn from_content(content: folder::Content, tasks: Vec<Task>, inputs: &[u8]) -> Result<TorchNetwork> {
        let folder::Content { program, offsets, constants, .. } = content;
        let mut given = HashMap::new();
        for (place, (constant, offset)) in program.constants.iter().zip(&offsets).enumerate() {
            let begin = usize::try_from(*offset).unwrap_or(usize::MAX);
            given.insert(
                Place::Constant(place),
                tensor_from_bytes(&constant.ty, constants.get(begin..).unwrap_or_default())?,
            );
        }
        let mut rest = inputs;
        for (place, port) in program.inputs.iter().enumerate() {
            given.insert(Place::Input(place), tensor_from_bytes(&port.ty, rest)?);
            rest = rest.get(size_bytes(&port.ty)..).unwrap_or_default();
        }
        let with_constants = |task: Task| {
            let constants = operators::extra_tensors(&task)?;
            Ok((task, constants))
        };
        let tasks = tasks.into_iter().map(with_constants).collect::<Result<_>>()?;
        Ok(TorchNetwork { last_read: last_read(&program), tasks, given, program })
    }

    fn run_once(&self) -> Result<Vec<Tensor>> {
        let mut made: HashMap<Place, Tensor> = HashMap::new();
        for (call, last_read) in self.program.calls.iter().zip(&self.last_read) {
            let (task, constants) = &self.tasks[call.code];
            let (result, operands) = call.arguments.split_last().expect("a checked program's calls have results");
            let parameters =
                operands.iter().map(|operand| self.read_place(&made, operand)).collect::<Result<Vec<Tensor>>>()?;
            let value = operators::run_task(task, &parameters, constants)?;
            last_read.iter().for_each(|place| drop(made.remove(place)));
            made.insert(result.place, value);
        }
        let outputs = self.program.outputs.iter().enumerate();
        let outputs = outputs.map(|(place, port)| {
            let place = port.same_as.unwrap_or(Place::Output(place));
            let extents = port.ty.extents().unwrap_or_default();
            self.read_place(&made, &CallArgument { place, dtype: port.ty.dtype, extents })
        });
        outputs.collect()
    }

    fn read_place(&self, made: &HashMap<Place, Tensor>, argument: &CallArgument) -> Result<Tensor> {
        let tensor = made.get(&argument.place).or_else(|| self.given.get(&argument.place));
        let tensor = tensor.ok_or_else(|| Refusal::Failed(format!("there is no tensor at {:?}", argument.place)))?;
        match tensor.size() == argument.extents {
            true => Ok(tensor.shallow_clone()),
            false => Ok(tensor.f_reshape(&argument.extents)?),
        }
    }

    fn output_bytes(&self, outputs: &[Tensor]) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        for (output, port) in outputs.iter().zip(&self.program.outputs) {
            all.extend(inputs::checked_bytes(&output.f_contiguous()?, &port.ty)?);
        }
        Ok(all)
    }
}

fn size_bytes(ty: &TensorType) -> usize {
    usize::try_from(ty.size_bytes().unwrap_or(0)).unwrap_or(usize::MAX)
}

fn tensor_from_bytes(ty: &TensorType, bytes: &[u8]) -> Result<Tensor> {
    let own = bytes.get(..size_bytes(ty)).ok_or_else(|| Refusal::Failed(format!("the data is too short for {ty}")))?;
    let own = reference::Tensor::from_bytes(ty.clone(), own.to_vec());
    inputs::to_torch(&own.map_err(|error| Refusal::Failed(error.to_string()))?)
}

/// Returns, for each call, the intermediate buffers that it is the last one to read before they are overwritten.
fn last_read(program: &Program) -> Vec<Vec<Place>> {
    let is_own = |place: &Place| matches!(place, Place::Activation(_));
    // Whether a later call reads the current content of a place.
    let mut is_needed: HashMap<Place, bool> = HashMap::new();
    is_needed.extend(program.outputs.iter().filter_map(|port| port.same_as).map(|place| (place, true)));
    let mut found = vec![Vec::new(); program.calls.len()];
    for (place, call) in program.calls.iter().enumerate().rev() {
        let (result, operands) = call.arguments.split_last().expect("a checked program's calls have results");
        is_needed.insert(result.place, false);
        for operand in operands.iter().map(|operand| operand.place).filter(is_own) {
            let is_last = !is_needed.insert(operand, true).unwrap_or(false);
            // A place that the call itself overwrites must not be freed.
            if is_last && operand != result.place {
                found[place].push(operand);
            }
        }
    }
    found
}
