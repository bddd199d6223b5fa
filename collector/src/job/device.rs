//! The runner on a GPU: kernels in, times by the device's own clock out.
//!
//! A batch is timed by two marks on the device's time line, so that what the host takes to ask for a launch counts
//! only where the device waits for it; the host's part is kept apart. Data goes to the device once per job and comes
//! back once, to be compared with the reference. After a failed call nothing on the device can be trusted, so the
//! supervisor replaces the process.

use super::prepared::Prepared as PreparedTask;
use super::{Measured, RunJob, RunReply};
use crate::counters::{Backend, CounterRequest, CounterSession, Usage};
use crate::cuda::driver::{Device, DeviceBuffer, DriverError, Event, Prepared};
use crate::cuda::{Argument, DeviceCode};
use crate::measure::{Cache, Clock, HostClock, Method, measure};
use anyhow::{Context, Result, ensure};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Runs device code on inputs, compares the result with what is expected.
pub(super) fn run(device: &Device, code: &DeviceCode, job: &RunJob, prepared: &PreparedTask) -> Result<RunReply> {
    let (inputs, output) = (&prepared.inputs, prepared.output());
    code.check(inputs.len() + 1).map_err(anyhow::Error::msg)?;
    let facts = device.facts()?;
    let fitting = code.cubins.iter().filter(|cubin| cubin.architecture.runs_on(facts.capability));
    let cubin = fitting.max_by_key(|cubin| cubin.architecture).with_context(|| {
        let made_for: Vec<String> = code.cubins.iter().map(|cubin| cubin.architecture.to_string()).collect();
        format!("`{}` is sm_{}, the code is for {}", facts.name, facts.capability, made_for.join(", "))
    })?;
    let module = device.load(&cubin.bytes)?;
    let output_bytes = usize::try_from(output.bytes().context("a dimension is a symbol")?)?;
    let mut tensors = Vec::with_capacity(inputs.len() + 1);
    for input in inputs {
        let buffer = device.allocate(input.bytes().len())?;
        buffer.write(input.bytes())?;
        tensors.push(buffer);
    }
    // An element nobody writes must not pass for a right one.
    let result = device.allocate(output_bytes)?;
    result.fill(0xff)?;
    tensors.push(result);
    let workspaces = code.workspaces.iter().map(|&bytes| Ok(device.allocate(usize::try_from(bytes)?)?));
    let workspaces = workspaces.collect::<Result<Vec<DeviceBuffer>>>()?;
    let place = |argument: &Argument| match *argument {
        Argument::Tensor(place) => &tensors[place],
        Argument::Workspace(place) => &workspaces[place],
    };
    let mut kernels = Vec::with_capacity(code.launches.len());
    for launch in &code.launches {
        let buffers: Vec<&DeviceBuffer> = launch.arguments.iter().map(place).collect();
        kernels.push(module.prepare(launch, &buffers)?);
    }
    let flush = match &job.method {
        Method::Sample(plan) => match plan.cache {
            Cache::Cold { flush_bytes } => {
                Some(device.allocate(usize::try_from(flush_bytes.max(2 * facts.l2_bytes))?)?)
            }
            Cache::Warm => None,
        },
        Method::Evaluate(_) => None,
    };
    let timer = Timer {
        device,
        kernels: &kernels,
        flush,
        start: device.event()?,
        end: device.event()?,
        ahead_ns: Cell::new(0),
    };
    let mut call = |times: u32| timer.batch(times);
    // The host's counters would say nothing about a kernel.
    let mut counters = CounterSession::open(&CounterRequest { backend: Backend::None, ..job.counters.clone() });
    let mut clock = DeviceClock { host: HostClock::new(), ahead_ns: &timer.ahead_ns };
    let measurement = measure(&mut call, &job.method, &mut clock, &mut counters)?;
    let result = tensors.last().expect("the output was put last");
    let check = if job.is_checked { Some(prepared.check(result.read()?)?) } else { None };
    if let Some(check) = check.filter(|check| !check.is_right) {
        return Ok(RunReply::WrongResult(check));
    }
    ensure!(job.tvm_evaluator.is_none(), "TVM's evaluator does not run on a device here");
    let peak_memory_bytes = super::run::peak_memory_bytes();
    let measured = Measured { measurement, check, peak_memory_bytes, spin_count: 0, tvm_seconds: Vec::new() };
    Ok(RunReply::Measured(Box::new(measured)))
}

/// Launches batches between two marks.
struct Timer<'a> {
    device: &'a Device,
    kernels: &'a [Prepared<'a>],
    /// Written before each batch where the caches are to be cold.
    flush: Option<DeviceBuffer<'a>>,
    start: Event<'a>,
    end: Event<'a>,
    /// How far the host's clock ran ahead of the device's during batches: launch calls, flushing and waiting.
    ahead_ns: Cell<i64>,
}

impl Timer<'_> {
    fn batch(&self, times: u32) -> Result<(), DriverError> {
        let begin = Instant::now();
        if let Some(flush) = &self.flush {
            flush.fill(times as u8)?;
            self.device.synchronize()?;
        }
        self.start.record()?;
        for _ in 0..times {
            self.kernels.iter().try_for_each(Prepared::launch)?;
        }
        self.end.record()?;
        self.end.wait()?;
        let device_ns = self.end.since_ns(&self.start)?;
        let host_ns = i64::try_from(begin.elapsed().as_nanos()).unwrap_or(i64::MAX);
        self.ahead_ns.set(self.ahead_ns.get() + host_ns - i64::try_from(device_ns).unwrap_or(i64::MAX));
        Ok(())
    }
}

/// The host's clock, set back after each batch by what the batch took on the host beyond the device's own time: the
/// difference of two readings around a batch is the device's time.
struct DeviceClock<'a> {
    host: HostClock,
    ahead_ns: &'a Cell<i64>,
}

/// The smallest difference two marks can show, by NVIDIA's documentation.
const EVENT_PRECISION_NS: u64 = 500;

impl Clock for DeviceClock<'_> {
    fn now_ns(&mut self) -> u64 {
        self.host.now_ns().saturating_add_signed(-self.ahead_ns.get())
    }

    fn precision_ns(&self) -> u64 {
        EVENT_PRECISION_NS
    }

    fn usage(&mut self) -> Usage {
        self.host.usage()
    }

    fn speed_probe_ns(&mut self) -> u64 {
        // The host's arithmetic says nothing about the device's clock.
        1
    }

    fn sleep(&mut self, duration: Duration) {
        self.host.sleep(duration);
    }
}
