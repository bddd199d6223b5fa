//! Runs kernels on a GPU and times them with the device's clock, by two events per batch, so the launch cost of the
//! host counts only if the device waits for launches. Data is copied once per job. After a failed call the state of the
//! device is undefined, so the supervisor replaces the process.

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
use measure::{Cache, Clock, Evaluator, HostClock, Method, Plan, measure_runs};
use reference::Tensor;
use std::cell::Cell;
use std::time::{Duration, Instant};

pub(super) fn run_device(gpu: &Gpu, code: &DeviceCode, job: &RunJob, prepared: &PreparedTask) -> Result<RunReply> {
    let (inputs, output) = (&prepared.inputs[..], prepared.output_type());
    code.check_launches(inputs.len() + 1).map_err(anyhow::Error::msg)?;
    let device = &gpu.device;
    let facts = device.read_facts()?;
    let module = load_cubin(gpu, best_cubin(code, &facts)?, &facts.driver_cuda)?;
    let output_bytes = usize::try_from(output.size_bytes().context("a tensor has an unbound symbolic dimension")?)?;
    let tensors = allocate_tensors(device, inputs, output_bytes)?;
    let extents =
        inputs.iter().map(|input| input.tensor_type().extents()).chain([output.extents()]).collect::<Option<Vec<_>>>();
    let launches = code
        .resolve_launches(&extents.context("a tensor has an unbound symbolic dimension")?)
        .map_err(anyhow::Error::msg)?;
    let workspaces = launches.workspaces.iter().map(|bytes| {
        let bytes = bytes.known_value().context("a buffer size depends on an unbound symbolic dimension")?;
        Ok(device.allocate_buffer(usize::try_from(bytes)?)?)
    });
    let workspaces = workspaces.collect::<Result<Vec<DeviceBuffer>>>()?;
    let kernels = prepare_launches(&module, &launches, &whole_buffers(&tensors), &workspaces)?;
    let (Method::Sample(Plan { cache, .. }) | Method::Evaluate(Evaluator { cache, .. })) = &job.method;
    let flush = match cache {
        Cache::Cold { flush_bytes } => {
            Some(device.allocate_buffer(usize::try_from((*flush_bytes).max(2 * facts.l2_bytes))?)?)
        }
        Cache::Warm => None,
        Cache::Network { .. } => anyhow::bail!("a GPU has no cache state `network`"),
    };
    let timer =
        Timer::new(gpu, (&kernels, DeviceRun::Sequential), flush, [device.create_event()?, device.create_event()?]);
    let mut call = |times: u32| timer.submit_batch(times);
    // Counters of the host do not describe a kernel.
    let mut counters =
        CounterSession::open_counters(&CounterRequest { backend: Backend::None, ..job.counters.clone() });
    let mut clock = DeviceClock::new(HostClock::new(), &timer);
    let mut measurement = measure_runs(&mut call, &job.method, &mut clock, &mut counters)?;
    let result = tensors.last().expect("the output is the last tensor");
    let check = if job.is_checked { Some(prepared.check_result(result.read()?, code.rounding)?) } else { None };
    if let Some(check) = check.filter(|check| !check.is_right) {
        return Ok(RunReply::WrongResult(check));
    }
    ensure!(job.tvm_evaluator.is_none(), "TVM's time evaluator is not supported on GPUs");
    let mut report = CounterReport::default();
    if job.counters.backend != Backend::None {
        let own_bytes: u64 = tensors.iter().chain(&workspaces).map(|buffer| buffer.size_bytes() as u64).sum();
        report.add_counter("gpu_memory_bytes", "cuMemAlloc", own_bytes as f64);
        let copies = Copies {
            module: &module,
            launches: &launches,
            inputs,
            output_bytes,
            workspaces: &workspaces,
            l2_bytes: facts.l2_bytes,
        };
        add_counters(gpu, &timer, &copies, job, measurement.median_ns, &mut report);
    }
    measurement.counters.extend(report.values);
    measurement.refusals.extend(report.refusals);
    measurement.warnings.extend(report.warnings);
    let measured = Measured::from_measurement(measurement, check, worker::peak_resident_bytes());
    let measured = Measured { is_runner_spent: report.failure.is_some(), ..measured };
    Ok(RunReply::Measured(Box::new(measured)))
}

pub(super) fn best_cubin<'a>(code: &'a DeviceCode, facts: &DeviceFacts) -> Result<&'a Cubin> {
    let fitting = code.cubins.iter().filter(|cubin| cubin.architecture.runs_on(facts.capability));
    fitting.max_by_key(|cubin| cubin.architecture).with_context(|| {
        let made_for: Vec<String> = code.cubins.iter().map(|cubin| cubin.architecture.to_string()).collect();
        format!(
            "`{}` has the architecture sm_{}, but the code was compiled for {}",
            facts.name,
            facts.capability,
            made_for.join(", ")
        )
    })
}

/// Loads machine code; explains the error if the driver is older than the compiler, as the driver's message is unclear.
pub(super) fn load_cubin<'a>(gpu: &'a Gpu, cubin: &Cubin, driver_cuda: &str) -> Result<DeviceModule<'a>> {
    let loaded = gpu.load_image(Image::from_cubin(&cubin.bytes)?);
    if loaded.is_err() && is_too_new(&cubin.compiler, driver_cuda) {
        let needed = cubin.compiler.split('.').next().unwrap_or_default();
        let why = format!(
            "the driver is too old: it supports CUDA {driver_cuda}, but the code was compiled with CUDA {}; install a driver \
             for CUDA {needed}.0 or newer",
            cubin.compiler
        );
        return loaded.context(why);
    }
    Ok(loaded?)
}

fn add_counters(
    gpu: &Gpu,
    timer: &Timer<'_>,
    copies: &Copies<'_>,
    job: &RunJob,
    run_ns: f64,
    report: &mut CounterReport,
) {
    let Timer { device, kernels, flush, start, end, watch, .. } = timer;
    let (marks, flush, events) = ([start, end], flush.as_ref(), &job.counters.events);
    gpu.add_device_state(&watch.watched_run(), report);
    gpu.add_launch_costs(report);
    Gpu::reject_unknown(events, report);
    if run_ns < TINY_NS {
        report.read_or_refuse(&["gpu_graph_ns"], |report| -> Result<(), DriverError> {
            report.add_counter("gpu_graph_ns", "runs in a graph", graph_ns(device, marks, kernels)?);
            Ok(())
        });
    }
    if flush.is_some() {
        report.read_or_refuse(&["gpu_rotated_ns"], |report| -> Result<()> {
            match rotated_ns(device, copies, marks)? {
                Some(rotated_ns) => report.add_counter("gpu_rotated_ns", "runs on other data", rotated_ns),
                None => report.add_refusal(
                    "gpu_rotated_ns",
                    None,
                    "two copies of the data do not fit the free device memory",
                ),
            }
            Ok(())
        });
    }
    let wants = |name: &str| events.iter().any(|event| event == name);
    if wants(KERNEL_TIME) {
        report.read_or_refuse(&[KERNEL_TIME], |report| gpu.add_kernel_time(kernels, report));
    }
    let metrics = WantedMetric::requested_metrics(events);
    if !metrics.is_empty() {
        let names: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
        report.read_or_refuse(&names, |report| gpu.add_metrics(&metrics, kernels, flush, run_ns, report));
    }
    if wants(ENERGY) {
        report.read_or_refuse(&[ENERGY], |report| gpu.add_board_energy(kernels, run_ns, report));
    }
    let papi: Vec<&str> = events.iter().map(String::as_str).filter(|event| is_papi_of_gpu(event)).collect();
    if !papi.is_empty() {
        report.read_or_refuse(&papi, |report| gpu.add_papi_counters(&job.counters, kernels, report));
    }
}

/// Run time in nanoseconds below which launches may take longer than kernels, so that a graph is measured, too.
const TINY_NS: f64 = 20_000.0;

fn allocate_tensors<'a>(device: &'a Device, inputs: &[Tensor], output_bytes: usize) -> Result<Vec<DeviceBuffer<'a>>> {
    let mut tensors = Vec::with_capacity(inputs.len() + 1);
    for input in inputs {
        let buffer = device.allocate_buffer(input.as_bytes().len())?;
        buffer.write(input.as_bytes())?;
        tensors.push(buffer);
    }
    // The output is filled with invalid values, so that an element that is never written cannot
    // seem correct.
    let result = device.allocate_buffer(output_bytes)?;
    result.fill_bytes(0xff)?;
    tensors.push(result);
    Ok(tensors)
}

fn whole_buffers<'a>(tensors: &'a [DeviceBuffer<'a>]) -> Vec<LaunchArgument<'a>> {
    tensors.iter().map(LaunchArgument::Buffer).collect()
}

pub(super) fn prepare_launches<'a>(
    module: &'a DeviceModule<'a>,
    launches: &Launches,
    tensors: &[LaunchArgument<'a>],
    workspaces: &'a [DeviceBuffer<'a>],
) -> Result<Vec<Prepared<'a>>> {
    let given = |argument: &Argument| match argument {
        Argument::Tensor(place) => Ok(tensors[*place]),
        Argument::Workspace(place) => Ok(LaunchArgument::Buffer(&workspaces[*place])),
        Argument::Number(number) => number
            .known_value()
            .map(LaunchArgument::Number)
            .context("a kernel argument depends on an unbound symbolic dimension"),
    };
    let mut kernels = Vec::with_capacity(launches.launches.len());
    for launch in &launches.launches {
        let arguments = launch.arguments.iter().map(given).collect::<Result<Vec<_>>>()?;
        kernels.push(module.prepare_launch(launch, &arguments)?);
    }
    Ok(kernels)
}

struct Copies<'a> {
    module: &'a DeviceModule<'a>,
    launches: &'a Launches,
    inputs: &'a [Tensor],
    output_bytes: usize,
    workspaces: &'a [DeviceBuffer<'a>],
    l2_bytes: u64,
}

/// Returns the time per run if runs alternate among data copies that exceed the L2 cache; None without enough memory.
fn rotated_ns(device: &Device, data: &Copies<'_>, marks: [&DeviceEvent<'_>; 2]) -> Result<Option<f64>> {
    const COPIES_MAX: u64 = 64;
    let own_bytes =
        data.inputs.iter().map(|input| input.as_bytes().len() as u64).sum::<u64>() + data.output_bytes as u64;
    let copies = (2 * data.l2_bytes).div_ceil(own_bytes.max(1)).clamp(2, COPIES_MAX);
    if copies.saturating_mul(own_bytes) > device.free_memory_bytes()? / 2 {
        return Ok(None);
    }
    let copies =
        (0..copies).map(|_| allocate_tensors(device, data.inputs, data.output_bytes)).collect::<Result<Vec<_>>>()?;
    let kernels = copies
        .iter()
        .map(|tensors| prepare_launches(data.module, data.launches, &whole_buffers(tensors), data.workspaces));
    let kernels = kernels.collect::<Result<Vec<_>>>()?;
    let all_ns = median_ns(marks, || kernels.iter().flatten().try_for_each(Prepared::submit_kernel))?;
    Ok(Some(all_ns / copies.len() as f64))
}

#[derive(Clone, Copy)]
pub(super) enum DeviceRun<'a> {
    Sequential,
    Streams(&'a Lanes<'a>, &'a [Step]),
    Graph(&'a Graph<'a>),
}

pub(super) struct Timer<'a> {
    device: &'a Device,
    kernels: &'a [Prepared<'a>],
    run: DeviceRun<'a>,
    flush: Option<DeviceBuffer<'a>>,
    start: DeviceEvent<'a>,
    end: DeviceEvent<'a>,
    /// Excess of host time over device time, summed over all batches.
    ahead_ns: Cell<i64>,
    watch: Watch<'a>,
}

impl<'a> Timer<'a> {
    pub(super) fn new(
        gpu: &'a Gpu,
        (kernels, run): (&'a [Prepared<'a>], DeviceRun<'a>),
        flush: Option<DeviceBuffer<'a>>,
        [start, end]: [DeviceEvent<'a>; 2],
    ) -> Timer<'a> {
        Timer { device: &gpu.device, kernels, run, flush, start, end, ahead_ns: Cell::new(0), watch: gpu.start_watch() }
    }

    pub(super) fn submit_run(&self) -> Result<(), DriverError> {
        match self.run {
            DeviceRun::Sequential => self.kernels.iter().try_for_each(Prepared::submit_kernel),
            DeviceRun::Streams(lanes, steps) => lanes.submit_steps(steps),
            DeviceRun::Graph(graph) => graph.submit_graph(),
        }
    }

    pub(super) fn submit_batch(&self, times: u32) -> Result<(), DriverError> {
        let begin = Instant::now();
        if let Some(flush) = &self.flush {
            flush.fill_bytes(times as u8)?;
            self.device.synchronize()?;
        }
        self.start.record_default()?;
        for _ in 0..times {
            self.submit_run()?;
        }
        self.end.record_default()?;
        self.end.wait_until_reached()?;
        let device_ns = self.end.since_ns(&self.start)?;
        self.watch.sample_if_due();
        let host_ns = i64::try_from(begin.elapsed().as_nanos()).unwrap_or(i64::MAX);
        self.ahead_ns.set(self.ahead_ns.get() + host_ns - i64::try_from(device_ns).unwrap_or(i64::MAX));
        Ok(())
    }
}

/// Clock that advances by device time during batches: the host's clock, minus the time that only the host used.
pub(super) struct DeviceClock<'a> {
    host: HostClock<'static>,
    timer: &'a Timer<'a>,
    is_sampling: bool,
}

impl<'a> DeviceClock<'a> {
    pub(super) fn new(host: HostClock<'static>, timer: &'a Timer<'a>) -> DeviceClock<'a> {
        DeviceClock { host, timer, is_sampling: false }
    }
}

/// Precision of event times in nanoseconds, according to NVIDIA's documentation.
const EVENT_PRECISION_NS: u64 = 500;

impl Clock for DeviceClock<'_> {
    fn now_ns(&mut self) -> u64 {
        self.host.now_ns().saturating_add_signed(-self.timer.ahead_ns.get())
    }

    fn precision_ns(&self) -> u64 {
        EVENT_PRECISION_NS
    }

    fn read_usage(&mut self) -> Usage {
        self.host.read_usage()
    }

    fn speed_probe_ns(&mut self) -> u64 {
        // A probe takes the time of a million device cycles at the current clock frequency, or a
        // constant if the frequency is unknown.
        const MILLION_CYCLES_AT_A_MEGAHERTZ_NS: u64 = 1_000_000_000;
        // The first probe follows the warm-up, the second follows the samples.
        if !std::mem::replace(&mut self.is_sampling, true) {
            self.timer.watch.clear_samples();
        }
        let clock = self.timer.watch.take_sample().filter(|&clock| clock > 0);
        clock.map_or(1, |clock| MILLION_CYCLES_AT_A_MEGAHERTZ_NS / u64::from(clock))
    }

    fn sleep(&mut self, duration: Duration) {
        self.host.sleep(duration);
    }

    /// Does nothing: the timer flushes the device's cache, and kernels do not use the host's caches.
    fn prepare_caches(&mut self, _: Cache) {}
}
