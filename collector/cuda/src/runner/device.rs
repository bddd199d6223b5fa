//! Runs kernels on a GPU and times them with the device's clock.
//!
//! A batch is timed by two events on the device, so the host's cost of a launch counts only where
//! the device waits for it; the host's time is kept separately. Data is copied to the device once
//! per job, and the result is copied back once and compared with the reference. After a failed call
//! the state of the device is undefined, so the supervisor replaces the process.

use super::counter_report::CounterReport;
use super::gpu::{Gpu, is_papi_of_gpu};
use super::launch_costs::{graph_ns, median_ns};
use super::watch::Watch;
use crate::Image;
use crate::driver::{
    Device, DeviceBuffer, DeviceEvent, DeviceFacts, DeviceModule, DriverError, Graph, Lanes, LaunchArgument, Prepared,
    Step,
};
use anyhow::{Context, Result, ensure};
use job::device::{Argument, Cubin, DeviceCode, Launches, is_too_new};
use job::prepared::PreparedTask;
use job::{Measured, RunJob, RunReply};
use measure::counters::gpu::{ENERGY, KERNEL_TIME, WantedMetric};
use measure::counters::{Backend, CounterRequest, CounterSession, Usage};
use measure::{Cache, Clock, Evaluator, HostClock, Method, Plan, measure};
use reference::Tensor;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Runs device code on inputs, and compares the result with the reference.
pub(super) fn run(gpu: &Gpu, code: &DeviceCode, job: &RunJob, prepared: &PreparedTask) -> Result<RunReply> {
    let (inputs, output) = (&prepared.inputs[..], prepared.output());
    code.check(inputs.len() + 1).map_err(anyhow::Error::msg)?;
    let device = &gpu.device;
    let facts = device.facts()?;
    let module = load(gpu, fitting(code, &facts)?, &facts.driver_cuda)?;
    let output_bytes = usize::try_from(output.bytes().context("a dimension is a symbol")?)?;
    let tensors = tensors(device, inputs, output_bytes)?;
    let extents = inputs.iter().map(|input| input.ty().extents()).chain([output.extents()]).collect::<Option<Vec<_>>>();
    let launches = code.at(&extents.context("a dimension is a symbol")?).map_err(anyhow::Error::msg)?;
    let workspaces = launches.workspaces.iter().map(|bytes| {
        let bytes = bytes.known().context("the size of a buffer is a symbol")?;
        Ok(device.allocate(usize::try_from(bytes)?)?)
    });
    let workspaces = workspaces.collect::<Result<Vec<DeviceBuffer>>>()?;
    let kernels = prepare(&module, &launches, &given(&tensors), &workspaces)?;
    let (Method::Sample(Plan { cache, .. }) | Method::Evaluate(Evaluator { cache, .. })) = &job.method;
    let flush = match cache {
        Cache::Cold { flush_bytes } => Some(device.allocate(usize::try_from((*flush_bytes).max(2 * facts.l2_bytes))?)?),
        Cache::Warm => None,
    };
    let timer = Timer::new(gpu, (&kernels, DeviceRun::InTurns), flush, [device.event()?, device.event()?]);
    let mut call = |times: u32| timer.batch(times);
    // Counters of the host do not describe a kernel.
    let mut counters = CounterSession::open(&CounterRequest { backend: Backend::None, ..job.counters.clone() });
    let mut clock = DeviceClock::new(HostClock::new(), &timer);
    let mut measurement = measure(&mut call, &job.method, &mut clock, &mut counters)?;
    let result = tensors.last().expect("the output was put last");
    let check = if job.is_checked { Some(prepared.check(result.read()?, code.rounding)?) } else { None };
    if let Some(check) = check.filter(|check| !check.is_right) {
        return Ok(RunReply::WrongResult(check));
    }
    ensure!(job.tvm_evaluator.is_none(), "TVM's evaluator does not run on a device here");
    let mut told = CounterReport::default();
    if job.counters.backend != Backend::None {
        let own_bytes: u64 = tensors.iter().chain(&workspaces).map(|buffer| buffer.bytes() as u64).sum();
        told.give("gpu_memory_bytes", "cuMemAlloc", own_bytes as f64);
        let copies = Copies {
            module: &module,
            launches: &launches,
            inputs,
            output_bytes,
            workspaces: &workspaces,
            l2_bytes: facts.l2_bytes,
        };
        tell(gpu, &timer, &copies, job, measurement.median_ns, &mut told);
    }
    measurement.counters.extend(told.values);
    measurement.refusals.extend(told.refusals);
    measurement.warnings.extend(told.warnings);
    let measured = Measured::new(measurement, check, worker::peak_resident_bytes());
    let measured = Measured { is_runner_spent: told.failure.is_some(), ..measured };
    Ok(RunReply::Measured(Box::new(measured)))
}

/// Returns the machine code that fits this device best.
pub(super) fn fitting<'a>(code: &'a DeviceCode, facts: &DeviceFacts) -> Result<&'a Cubin> {
    let fitting = code.cubins.iter().filter(|cubin| cubin.architecture.runs_on(facts.capability));
    fitting.max_by_key(|cubin| cubin.architecture).with_context(|| {
        let made_for: Vec<String> = code.cubins.iter().map(|cubin| cubin.architecture.to_string()).collect();
        format!("`{}` is sm_{}, the code is for {}", facts.name, facts.capability, made_for.join(", "))
    })
}

/// Loads machine code. If the driver is older than the compiler, the error explains that, because
/// the driver's own message is unclear.
pub(super) fn load<'a>(gpu: &'a Gpu, cubin: &Cubin, driver_cuda: &str) -> Result<DeviceModule<'a>> {
    let loaded = gpu.load(Image::cubin(&cubin.bytes)?);
    if loaded.is_err() && is_too_new(&cubin.compiler, driver_cuda) {
        let needed = cubin.compiler.split('.').next().unwrap_or_default();
        let why = format!(
            "the driver is too old: it knows CUDA {driver_cuda}, and the code was compiled by CUDA {}; install a driver \
             for CUDA {needed}.0 or newer",
            cubin.compiler
        );
        return loaded.context(why);
    }
    Ok(loaded?)
}

/// Adds the counters of the kernel and the state of the device to the result; see `gpu`.
fn tell(gpu: &Gpu, timer: &Timer<'_>, copies: &Copies<'_>, job: &RunJob, run_ns: f64, told: &mut CounterReport) {
    let Timer { device, kernels, flush, start, end, watch, .. } = timer;
    let (marks, flush, events) = ([start, end], flush.as_ref(), &job.counters.events);
    gpu.tell_fares(&watch.seen(), told);
    gpu.tell_launch_costs(told);
    Gpu::refuse_unknown(events, told);
    if run_ns < TINY_NS {
        told.tell(&["gpu_graph_ns"], |told| -> Result<(), DriverError> {
            told.give("gpu_graph_ns", "runs in a graph", graph_ns(device, marks, kernels)?);
            Ok(())
        });
    }
    if flush.is_some() {
        told.tell(&["gpu_rotated_ns"], |told| -> Result<()> {
            match rotated_ns(device, copies, marks)? {
                Some(rotated_ns) => told.give("gpu_rotated_ns", "runs on other data", rotated_ns),
                None => told.refuse("gpu_rotated_ns", None, "the data does not fit twice"),
            }
            Ok(())
        });
    }
    let wants = |name: &str| events.iter().any(|event| event == name);
    if wants(KERNEL_TIME) {
        told.tell(&[KERNEL_TIME], |told| gpu.tell_kernel_time(kernels, told));
    }
    let metrics = WantedMetric::among(events);
    if !metrics.is_empty() {
        let names: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
        told.tell(&names, |told| gpu.tell_metrics(&metrics, kernels, flush, run_ns, told));
    }
    if wants(ENERGY) {
        told.tell(&[ENERGY], |told| gpu.tell_energy(kernels, run_ns, told));
    }
    let papi: Vec<&str> = events.iter().map(String::as_str).filter(|event| is_papi_of_gpu(event)).collect();
    if !papi.is_empty() {
        told.tell(&papi, |told| gpu.tell_papi(&job.counters, kernels, told));
    }
}

/// Runs shorter than this are also measured as a graph, because their launches take as long as the
/// kernels.
const TINY_NS: f64 = 20_000.0;

/// Allocates the inputs, with their content, and the output, which is last.
fn tensors<'a>(device: &'a Device, inputs: &[Tensor], output_bytes: usize) -> Result<Vec<DeviceBuffer<'a>>> {
    let mut tensors = Vec::with_capacity(inputs.len() + 1);
    for input in inputs {
        let buffer = device.allocate(input.bytes().len())?;
        buffer.write(input.bytes())?;
        tensors.push(buffer);
    }
    // The output is filled with invalid values, so that an element that is never written cannot
    // seem correct.
    let result = device.allocate(output_bytes)?;
    result.fill(0xff)?;
    tensors.push(result);
    Ok(tensors)
}

/// Returns whole buffers as kernel arguments.
fn given<'a>(tensors: &'a [DeviceBuffer<'a>]) -> Vec<LaunchArgument<'a>> {
    tensors.iter().map(LaunchArgument::Buffer).collect()
}

/// Prepares the launches of one run on these tensors.
pub(super) fn prepare<'a>(
    module: &'a DeviceModule<'a>,
    launches: &Launches,
    tensors: &[LaunchArgument<'a>],
    workspaces: &'a [DeviceBuffer<'a>],
) -> Result<Vec<Prepared<'a>>> {
    let given = |argument: &Argument| match argument {
        Argument::Tensor(place) => Ok(tensors[*place]),
        Argument::Workspace(place) => Ok(LaunchArgument::Buffer(&workspaces[*place])),
        Argument::Number(number) => {
            number.known().map(LaunchArgument::Number).context("a number of the launch is a symbol")
        }
    };
    let mut kernels = Vec::with_capacity(launches.launches.len());
    for launch in &launches.launches {
        let arguments = launch.arguments.iter().map(given).collect::<Result<Vec<_>>>()?;
        kernels.push(module.prepare(launch, &arguments)?);
    }
    Ok(kernels)
}

/// The data needed to create further copies of the tensors.
struct Copies<'a> {
    module: &'a DeviceModule<'a>,
    launches: &'a Launches,
    inputs: &'a [Tensor],
    output_bytes: usize,
    workspaces: &'a [DeviceBuffer<'a>],
    l2_bytes: u64,
}

/// Returns the time of a run that finds other data in the second-level cache: runs cycle through
/// copies of the data that together exceed the cache. Returns None if memory does not suffice for
/// them.
fn rotated_ns(device: &Device, of: &Copies<'_>, marks: [&DeviceEvent<'_>; 2]) -> Result<Option<f64>> {
    const COPIES_MAX: u64 = 64;
    let own_bytes = of.inputs.iter().map(|input| input.bytes().len() as u64).sum::<u64>() + of.output_bytes as u64;
    let copies = (2 * of.l2_bytes).div_ceil(own_bytes.max(1)).clamp(2, COPIES_MAX);
    if copies.saturating_mul(own_bytes) > device.free_memory_bytes()? / 2 {
        return Ok(None);
    }
    let copies = (0..copies).map(|_| tensors(device, of.inputs, of.output_bytes)).collect::<Result<Vec<_>>>()?;
    let kernels = copies.iter().map(|tensors| prepare(of.module, of.launches, &given(tensors), of.workspaces));
    let kernels = kernels.collect::<Result<Vec<_>>>()?;
    let all_ns = median_ns(marks, || kernels.iter().flatten().try_for_each(Prepared::launch))?;
    Ok(Some(all_ns / copies.len() as f64))
}

/// The way in which the kernels of one run are submitted.
#[derive(Clone, Copy)]
pub(super) enum DeviceRun<'a> {
    /// Sequentially on one stream.
    InTurns,
    /// In steps on several streams.
    InSteps(&'a Lanes<'a>, &'a [Step]),
    Graph(&'a Graph<'a>),
}

/// Launches batches between two events.
pub(super) struct Timer<'a> {
    device: &'a Device,
    kernels: &'a [Prepared<'a>],
    run: DeviceRun<'a>,
    /// Buffer that is overwritten before each batch if caches should be cold.
    flush: Option<DeviceBuffer<'a>>,
    start: DeviceEvent<'a>,
    end: DeviceEvent<'a>,
    /// Time by which the host's clock advanced more than the device's during batches: launch calls,
    /// flushing, waiting and queries.
    ahead_ns: Cell<i64>,
    /// State of the device between batches.
    watch: Watch<'a>,
}

impl<'a> Timer<'a> {
    pub(super) fn new(
        gpu: &'a Gpu,
        (kernels, run): (&'a [Prepared<'a>], DeviceRun<'a>),
        flush: Option<DeviceBuffer<'a>>,
        [start, end]: [DeviceEvent<'a>; 2],
    ) -> Timer<'a> {
        Timer { device: &gpu.device, kernels, run, flush, start, end, ahead_ns: Cell::new(0), watch: gpu.watch() }
    }

    /// Submits one run without waiting for it.
    pub(super) fn launch(&self) -> Result<(), DriverError> {
        match self.run {
            DeviceRun::InTurns => self.kernels.iter().try_for_each(Prepared::launch),
            DeviceRun::InSteps(lanes, steps) => lanes.launch(steps),
            DeviceRun::Graph(graph) => graph.launch(),
        }
    }

    /// Submits `times` runs between two events.
    pub(super) fn batch(&self, times: u32) -> Result<(), DriverError> {
        let begin = Instant::now();
        if let Some(flush) = &self.flush {
            flush.fill(times as u8)?;
            self.device.synchronize()?;
        }
        self.start.record()?;
        for _ in 0..times {
            self.launch()?;
        }
        self.end.record()?;
        self.end.wait()?;
        let device_ns = self.end.since_ns(&self.start)?;
        self.watch.look();
        let host_ns = i64::try_from(begin.elapsed().as_nanos()).unwrap_or(i64::MAX);
        self.ahead_ns.set(self.ahead_ns.get() + host_ns - i64::try_from(device_ns).unwrap_or(i64::MAX));
        Ok(())
    }
}

/// A clock whose differences around batches equal the device's time: the host's clock, set back
/// after each batch by the host's time in excess of the device's.
pub(super) struct DeviceClock<'a> {
    host: HostClock,
    timer: &'a Timer<'a>,
    is_sampling: bool,
}

impl<'a> DeviceClock<'a> {
    pub(super) fn new(host: HostClock, timer: &'a Timer<'a>) -> DeviceClock<'a> {
        DeviceClock { host, timer, is_sampling: false }
    }
}

/// Resolution of events according to NVIDIA's documentation.
const EVENT_PRECISION_NS: u64 = 500;

impl Clock for DeviceClock<'_> {
    fn now_ns(&mut self) -> u64 {
        self.host.now_ns().saturating_add_signed(-self.timer.ahead_ns.get())
    }

    fn precision_ns(&self) -> u64 {
        EVENT_PRECISION_NS
    }

    fn usage(&mut self) -> Usage {
        self.host.usage()
    }

    fn speed_probe_ns(&mut self) -> u64 {
        // A probe takes the time of a million device cycles at the current clock frequency, or a
        // constant if the frequency is unknown.
        const MILLION_CYCLES_AT_A_MEGAHERTZ_NS: u64 = 1_000_000_000;
        // The first probe follows the warm-up, the second follows the samples.
        if !std::mem::replace(&mut self.is_sampling, true) {
            self.timer.watch.forget();
        }
        let clock = self.timer.watch.look_now().filter(|&clock| clock > 0);
        clock.map_or(1, |clock| MILLION_CYCLES_AT_A_MEGAHERTZ_NS / u64::from(clock))
    }

    fn sleep(&mut self, duration: Duration) {
        self.host.sleep(duration);
    }

    /// The timer flushes the device's cache before each batch. Kernels do not read the host's
    /// caches.
    fn empty_caches(&mut self, _: u64) {}
}
