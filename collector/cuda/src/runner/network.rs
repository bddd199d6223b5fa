//! Runs a whole model on a GPU: the calls of its program as one list of launches on tensors at fixed addresses, or as a
//! CUDA graph if faster. If the program has stages, groups of calls run on separate streams.

use super::device::{DeviceClock, DeviceRun, Timer, best_cubin, load_cubin, prepare_launches};
use super::gpu::Gpu;
use super::launch_costs::median_ns;
use super::operators::{self, Calls};
use super::order::{order_calls, program_stages, streams_of};
use crate::driver::{Device, DeviceBuffer, DeviceEvent, DeviceModule, DriverError, Lanes, LaunchArgument, Prepared};
use anyhow::{Context, Result, ensure};
use executor::folder::{self, Content};
use executor::program::{CallArgument, Place, ProgramPort};
use job::device::{DeviceCode, Launches};
use job::{Measured, NetworkJob, Profiled, RunReply};
use measure::counters::{Backend, CounterRequest, CounterSession};
use measure::{HostClock, Method, measure_runs};
use models::stages::Stage;
use std::ops::Range;

pub(super) fn run_program(gpu: &Gpu, job: &NetworkJob) -> Result<RunReply> {
    let device = &gpu.device;
    let content = folder::read_program(&job.program)?;
    let stages = program_stages(&content.program)?;
    let inputs = job.read_inputs()?;
    let codes = content.codes.iter().map(|bytes| DeviceCode::from_bytes(bytes).map_err(anyhow::Error::msg));
    let codes = codes.collect::<Result<Vec<DeviceCode>>>()?;
    let facts = device.read_facts()?;
    let modules = codes.iter().map(|code| load_cubin(gpu, best_cubin(code, &facts)?, &facts.driver_cuda));
    let modules = modules.collect::<Result<Vec<DeviceModule<'_>>>>()?;
    let lists = content.program.calls.iter().map(|call| call_launches(&codes[call.code], &call.arguments));
    let lists = lists.collect::<Result<Vec<Launches>>>()?;
    let streams = streams_of(&stages, lists.len());
    let memory = NetworkMemory::for_calls(device, &content, &inputs, (&lists, &streams))?;
    let mut kernels = Vec::new();
    let mut of_calls = Vec::with_capacity(lists.len());
    for ((call, launches), stream) in content.program.calls.iter().zip(&lists).zip(streams) {
        let tensors =
            call.arguments.iter().map(|argument| memory.tensor_argument(argument.place)).collect::<Result<Vec<_>>>()?;
        let begin = kernels.len();
        kernels.extend(prepare_launches(&modules[call.code], launches, &tensors, &memory.workspaces[stream])?);
        of_calls.push(begin..kernels.len());
    }
    let (start, end) = (device.create_event()?, device.create_event()?);
    let order = order_calls(&stages, &of_calls, false);
    let lanes = Lanes::new(device, &kernels, order.streams, order.events)?;
    // A list that failed to launch has no result. A graph without launches cannot be created.
    let graph = if kernels.is_empty() { None } else { Some(lanes.capture_graph(&order.steps)?) };
    let list_ns = median_ns([&start, &end], || lanes.submit_steps(&order.steps))?;
    let graph_ns = match &graph {
        Some(graph) => median_ns([&start, &end], || graph.submit_graph())?,
        None => f64::INFINITY,
    };
    if let Some(plan) = &job.profile {
        memory.outputs.iter().try_for_each(|output| output.fill_bytes(0xff))?;
        let workspaces = lists.iter().map(workspace_bytes).collect::<Option<Vec<u64>>>();
        let calls = Calls::new(device, &kernels, of_calls.iter().map(|of_call| of_call.end).collect(), workspaces)?;
        let mut profile = operators::profile_calls(calls, plan, (list_ns, graph_ns))?;
        operators::add_energy(gpu, &kernels, &job.counters, list_ns, &mut profile);
        job.write_outputs(memory.all_outputs(&content.program.outputs)?)?;
        let peak_memory_bytes = worker::peak_resident_bytes();
        let profiled = Profiled { profile, samples: None, perf_map: None, peak_memory_bytes };
        return Ok(RunReply::Profiled(Box::new(profiled)));
    }
    let faster = match graph.as_ref().filter(|_| graph_ns < list_ns) {
        Some(graph) => DeviceRun::Graph(graph),
        None => DeviceRun::Streams(&lanes, &order.steps),
    };
    let timer = Timer::new(gpu, (&kernels, faster), None, [start, end]);
    let mut call = |times: u32| timer.submit_batch(times);
    // Counters of the host do not describe a kernel.
    let mut counters =
        CounterSession::open_counters(&CounterRequest { backend: Backend::None, ..job.counters.clone() });
    ensure!(matches!(job.method, Method::Sample(_)), "TVM's time evaluator is not supported on GPUs");
    let mut clock = DeviceClock::new(HostClock::new(), &timer);
    let measurement = measure_runs(&mut call, &job.method, &mut clock, &mut counters)?;
    let is_staged = !content.program.stages.is_empty();
    let stages_ns = if is_staged { stages_ns(device, &kernels, &stages, &of_calls)? } else { Vec::new() };
    // The compared outputs come from a run that cannot reuse results of earlier runs.
    memory.poison_outputs()?;
    timer.submit_run()?;
    job.write_outputs(memory.all_outputs(&content.program.outputs)?)?;
    let measured =
        Measured { stages_ns, ..Measured::from_measurement(measurement, None, worker::peak_resident_bytes()) };
    Ok(RunReply::Measured(Box::new(measured)))
}

/// Returns start and end of each group of each stage, relative to the start of the run with the median duration.
fn stages_ns(
    device: &Device,
    kernels: &[Prepared<'_>],
    stages: &[Stage],
    of_calls: &[Range<usize>],
) -> Result<Vec<Vec<(f64, f64)>>, DriverError> {
    const RUNS: usize = 11;
    let order = order_calls(stages, of_calls, true);
    let lanes = Lanes::new(device, kernels, order.streams, order.events)?;
    let (start, end) = (device.create_event()?, device.create_event()?);
    let since = |event: &DeviceEvent<'_>| event.since_ns(&start).map(|ns| ns as f64);
    let mut seen = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        start.record_default()?;
        lanes.submit_steps(&order.steps)?;
        end.record_default()?;
        end.wait_until_reached()?;
        let group =
            |[before, behind]: &[usize; 2]| Ok((since(lanes.event_at(*before))?, since(lanes.event_at(*behind))?));
        let groups = order.marks.iter().map(|stage| stage.iter().map(group).collect::<Result<Vec<_>, DriverError>>());
        seen.push((since(&end)?, groups.collect::<Result<Vec<_>, _>>()?));
    }
    seen.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    Ok(seen.swap_remove(RUNS / 2).1)
}

/// Returns the total size of the workspaces of the launches; None if it is not known in advance.
fn workspace_bytes(launches: &Launches) -> Option<u64> {
    launches.workspaces.iter().map(|bytes| bytes.known_value().and_then(|bytes| u64::try_from(bytes).ok())).sum()
}

/// Returns for each stream the sizes of its workspaces. Each size is the maximum over the stream's calls.
fn workspace_sizes(lists: &[Launches], streams: &[usize]) -> Result<Vec<Vec<u64>>> {
    let mut sizes: Vec<Vec<u64>> = vec![Vec::new(); streams.iter().max().map_or(0, |last| last + 1)];
    for (list, stream) in lists.iter().zip(streams) {
        let own = &mut sizes[*stream];
        for (place, bytes) in list.workspaces.iter().enumerate() {
            let bytes =
                u64::try_from(bytes.known_value().context("a buffer size depends on an unbound symbolic dimension")?)?;
            own.resize(own.len().max(place + 1), 0);
            own[place] = own[place].max(bytes);
        }
    }
    Ok(sizes)
}

fn call_launches(code: &DeviceCode, arguments: &[CallArgument]) -> Result<Launches> {
    code.check_launches(arguments.len()).map_err(anyhow::Error::msg)?;
    let extents: Vec<Vec<i64>> = arguments.iter().map(|argument| argument.extents.clone()).collect();
    code.resolve_launches(&extents).map_err(anyhow::Error::msg)
}

struct NetworkMemory<'a> {
    activations: DeviceBuffer<'a>,
    constants: DeviceBuffer<'a>,
    offsets: &'a [u64],
    inputs: Vec<DeviceBuffer<'a>>,
    outputs: Vec<DeviceBuffer<'a>>,
    /// Workspaces of each stream. The calls of a stream share them, because they run one after another.
    workspaces: Vec<Vec<DeviceBuffer<'a>>>,
}

impl<'a> NetworkMemory<'a> {
    fn for_calls(
        device: &'a Device,
        content: &'a Content,
        inputs: &[u8],
        (lists, streams): (&[Launches], &[usize]),
    ) -> Result<NetworkMemory<'a>> {
        let Content { program, offsets, constants, .. } = content;
        let allocate = |bytes: u64| -> Result<DeviceBuffer<'a>> {
            let free = device.free_memory_bytes()?;
            ensure!(bytes <= free, "the model needs {bytes} more bytes of device memory, but only {free} are free");
            Ok(device.allocate_buffer(usize::try_from(bytes)?)?)
        };
        let of_port =
            |port: &ProgramPort| allocate(port.ty.size_bytes().context("a tensor has an unbound symbolic dimension")?);
        let stored = allocate(constants.len() as u64)?;
        stored.write(constants)?;
        let (mut given, mut rest) = (Vec::new(), inputs);
        for port in &program.inputs {
            let buffer = of_port(port)?;
            let own =
                rest.split_off(..buffer.size_bytes()).context("the input file is shorter than the model's inputs")?;
            buffer.write(own)?;
            given.push(buffer);
        }
        ensure!(rest.is_empty(), "the input file is longer than the model's inputs");
        let sizes = workspace_sizes(lists, streams)?;
        let of_stream = |sizes: Vec<u64>| sizes.into_iter().map(allocate).collect::<Result<Vec<_>>>();
        Ok(NetworkMemory {
            activations: allocate(program.activation_bytes)?,
            constants: stored,
            offsets,
            inputs: given,
            outputs: program.outputs.iter().map(of_port).collect::<Result<_>>()?,
            workspaces: sizes.into_iter().map(of_stream).collect::<Result<_>>()?,
        })
    }

    fn poison_outputs(&self) -> Result<(), DriverError> {
        let written = self.outputs.iter().chain(self.workspaces.iter().flatten()).chain([&self.activations]);
        written.filter(|buffer| buffer.size_bytes() > 0).try_for_each(|buffer| buffer.fill_bytes(0xff))
    }

    fn tensor_argument(&self, place: Place) -> Result<LaunchArgument<'_>> {
        let missing = || format!("there is no buffer at {place:?}");
        match place {
            Place::Activation(offset) => self.activations.argument_at(offset),
            Place::Constant(index) => self.offsets.get(index).and_then(|offset| self.constants.argument_at(*offset)),
            Place::Input(index) => self.inputs.get(index).map(LaunchArgument::Buffer),
            Place::Output(index) => self.outputs.get(index).map(LaunchArgument::Buffer),
        }
        .with_context(missing)
    }

    fn all_outputs(&self, ports: &[ProgramPort]) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        for (place, port) in ports.iter().enumerate() {
            all.extend(self.read_output(port, place)?);
        }
        Ok(all)
    }

    fn read_output(&self, port: &ProgramPort, place: usize) -> Result<Vec<u8>> {
        let size = usize::try_from(port.ty.size_bytes().context("a tensor has an unbound symbolic dimension")?)?;
        let from = |buffer: &DeviceBuffer<'_>, offset: u64| -> Result<Vec<u8>> {
            let bytes = buffer.read()?;
            let begin = usize::try_from(offset)?;
            let own = begin.checked_add(size).and_then(|end| bytes.get(begin..end));
            Ok(own.with_context(|| format!("output `{}` exceeds its buffer", port.name))?.to_vec())
        };
        match port.same_as.unwrap_or(Place::Output(place)) {
            Place::Activation(offset) => from(&self.activations, offset),
            Place::Constant(index) => from(&self.constants, self.offsets.get(index).copied().unwrap_or(u64::MAX)),
            Place::Input(index) => from(&self.inputs[index], 0),
            Place::Output(index) => from(&self.outputs[index], 0),
        }
    }
}
