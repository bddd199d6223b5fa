//! A whole model on a GPU: the calls of its program as one list of launches on tensors that have places.
//!
//! Intermediate tensors share one buffer, constants lie in another, each input and output has its own. The list is launched
//! as a graph where that is faster.

use super::device::{DeviceClock, Timer, fitting, load, prepare};
use super::gpu::Gpu;
use super::launch_costs::median_ns;
use super::operators::{self, Calls};
use crate::driver::{Device, DeviceBuffer, DeviceModule, Given, Prepared};
use anyhow::{Context, Result, ensure};
use executor::folder::{self, Content};
use executor::program::{Argument, Place, Port};
use job::device::{DeviceCode, Launches};
use job::{Measured, NetworkJob, Profiled, RunReply};
use measure::counters::{Backend, CounterRequest, CounterSession};
use measure::{HostClock, Method, measure};

/// Runs the program of a folder on the inputs of a file.
pub(super) fn run(gpu: &Gpu, job: &NetworkJob) -> Result<RunReply> {
    let device = &gpu.device;
    let content = folder::read(&job.program)?;
    let inputs = job.read_inputs()?;
    let codes = content.codes.iter().map(|bytes| DeviceCode::from_bytes(bytes).map_err(anyhow::Error::msg));
    let codes = codes.collect::<Result<Vec<DeviceCode>>>()?;
    let facts = device.facts()?;
    let modules = codes.iter().map(|code| load(gpu, fitting(code, &facts)?, &facts.driver_cuda));
    let modules = modules.collect::<Result<Vec<DeviceModule<'_>>>>()?;
    let lists = content.program.calls.iter().map(|call| launches(&codes[call.code], &call.arguments));
    let lists = lists.collect::<Result<Vec<Launches>>>()?;
    let memory = Memory::of(device, &content, &inputs, &lists)?;
    let mut kernels = Vec::new();
    let mut ends = Vec::with_capacity(lists.len());
    for (call, launches) in content.program.calls.iter().zip(&lists) {
        let tensors = call.arguments.iter().map(|argument| memory.given(argument.place)).collect::<Result<Vec<_>>>()?;
        kernels.extend(prepare(&modules[call.code], launches, &tensors, &memory.workspaces)?);
        ends.push(kernels.len());
    }
    let (start, end) = (device.event()?, device.event()?);
    // Nothing follows a list that cannot be launched; a graph of no launches is none.
    let graph = if kernels.is_empty() { None } else { Some(device.graph(&kernels.iter().collect::<Vec<_>>())?) };
    let list_ns = median_ns([&start, &end], || kernels.iter().try_for_each(Prepared::launch))?;
    let graph_ns = match &graph {
        Some(graph) => median_ns([&start, &end], || graph.launch())?,
        None => f64::INFINITY,
    };
    memory.outputs.iter().try_for_each(|output| output.fill(0xff))?;
    if let Some(plan) = &job.profile {
        let workspaces = lists.iter().map(workspace_bytes).collect::<Option<Vec<u64>>>();
        let calls = Calls::new(device, &kernels, ends, workspaces)?;
        let mut profile = operators::profile(calls, plan, (list_ns, graph_ns))?;
        operators::count(gpu, &kernels, &job.counters, list_ns, &mut profile);
        job.write_outputs(memory.all_outputs(&content.program.outputs)?)?;
        let peak_memory_bytes = worker::peak_resident_bytes();
        let profiled = Profiled { profile, samples: None, perf_map: None, peak_memory_bytes };
        return Ok(RunReply::Profiled(Box::new(profiled)));
    }
    let graph = graph.filter(|_| graph_ns < list_ns);
    let timer = Timer::new(gpu, &kernels, graph.as_ref(), None, [start, end]);
    let mut call = |times: u32| timer.batch(times);
    // The host's counters would say nothing about a kernel.
    let mut counters = CounterSession::open(&CounterRequest { backend: Backend::None, ..job.counters.clone() });
    ensure!(matches!(job.method, Method::Sample(_)), "TVM's evaluator does not run on a device here");
    let mut clock = DeviceClock::new(HostClock::new(), &timer);
    let measurement = measure(&mut call, &job.method, &mut clock, &mut counters)?;
    job.write_outputs(memory.all_outputs(&content.program.outputs)?)?;
    Ok(RunReply::Measured(Box::new(Measured::new(measurement, None, worker::peak_resident_bytes()))))
}

/// What a call asks of workspaces, where that is known.
fn workspace_bytes(launches: &Launches) -> Option<u64> {
    launches.workspaces.iter().map(|bytes| bytes.known().and_then(|bytes| u64::try_from(bytes).ok())).sum()
}

/// What is launched for a call.
fn launches(code: &DeviceCode, arguments: &[Argument]) -> Result<Launches> {
    code.check(arguments.len()).map_err(anyhow::Error::msg)?;
    let extents: Vec<Vec<i64>> = arguments.iter().map(|argument| argument.extents.clone()).collect();
    code.at(&extents).map_err(anyhow::Error::msg)
}

/// All that lies on the device beside code.
struct Memory<'a> {
    activations: DeviceBuffer<'a>,
    constants: DeviceBuffer<'a>,
    offsets: &'a [u64],
    inputs: Vec<DeviceBuffer<'a>>,
    outputs: Vec<DeviceBuffer<'a>>,
    /// As large as any call's, by their places: calls follow each other.
    workspaces: Vec<DeviceBuffer<'a>>,
}

impl<'a> Memory<'a> {
    fn of(device: &'a Device, content: &'a Content, inputs: &[u8], lists: &[Launches]) -> Result<Memory<'a>> {
        let Content { program, offsets, constants, .. } = content;
        let allocate = |bytes: u64| -> Result<DeviceBuffer<'a>> {
            let free = device.free_memory_bytes()?;
            ensure!(bytes <= free, "the model needs {bytes} more bytes of the device's memory, {free} are free");
            Ok(device.allocate(usize::try_from(bytes)?)?)
        };
        let of_port = |port: &Port| allocate(port.ty.bytes().context("a dimension is a symbol")?);
        let stored = allocate(constants.len() as u64)?;
        stored.write(constants)?;
        let (mut given, mut rest) = (Vec::new(), inputs);
        for port in &program.inputs {
            let buffer = of_port(port)?;
            let own = rest.split_off(..buffer.bytes()).context("the file of inputs is shorter than they are")?;
            buffer.write(own)?;
            given.push(buffer);
        }
        ensure!(rest.is_empty(), "the file of inputs is longer than they are");
        let mut sizes: Vec<u64> = Vec::new();
        for list in lists {
            for (place, bytes) in list.workspaces.iter().enumerate() {
                let bytes = u64::try_from(bytes.known().context("the size of a buffer is a symbol")?)?;
                sizes.resize(sizes.len().max(place + 1), 0);
                sizes[place] = sizes[place].max(bytes);
            }
        }
        Ok(Memory {
            activations: allocate(program.activation_bytes)?,
            constants: stored,
            offsets,
            inputs: given,
            outputs: program.outputs.iter().map(of_port).collect::<Result<_>>()?,
            workspaces: sizes.into_iter().map(allocate).collect::<Result<_>>()?,
        })
    }

    /// Where a tensor is, for a kernel.
    fn given(&self, place: Place) -> Result<Given<'_>> {
        let missing = || format!("there is nothing at {place:?}");
        match place {
            Place::Activation(offset) => self.activations.part(offset),
            Place::Constant(index) => self.offsets.get(index).and_then(|offset| self.constants.part(*offset)),
            Place::Input(index) => self.inputs.get(index).map(Given::Buffer),
            Place::Output(index) => self.outputs.get(index).map(Given::Buffer),
        }
        .with_context(missing)
    }

    /// What all outputs hold, one after the other.
    fn all_outputs(&self, ports: &[Port]) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        for (place, port) in ports.iter().enumerate() {
            all.extend(self.read(port, place)?);
        }
        Ok(all)
    }

    /// What an output holds.
    fn read(&self, port: &Port, place: usize) -> Result<Vec<u8>> {
        let size = usize::try_from(port.ty.bytes().context("a dimension is a symbol")?)?;
        let from = |buffer: &DeviceBuffer<'_>, offset: u64| -> Result<Vec<u8>> {
            let bytes = buffer.read()?;
            let begin = usize::try_from(offset)?;
            let own = begin.checked_add(size).and_then(|end| bytes.get(begin..end));
            Ok(own.with_context(|| format!("`{}` does not fit its place", port.name))?.to_vec())
        };
        match port.same_as.unwrap_or(Place::Output(place)) {
            Place::Activation(offset) => from(&self.activations, offset),
            Place::Constant(index) => from(&self.constants, self.offsets.get(index).copied().unwrap_or(u64::MAX)),
            Place::Input(index) => from(&self.inputs[index], 0),
            Place::Output(index) => from(&self.outputs[index], 0),
        }
    }
}
