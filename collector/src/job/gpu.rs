//! What is told of a GPU and of a kernel beside its times: each a counter with its source, or a refusal with its reason.
//!
//! All of it comes after the timed runs, in runs of its own, so that looking disturbs nothing.

use crate::counters::{CounterValue, Coverage, Refusal, Step};
use crate::cuda::Launch;
use crate::cuda::cupti::{Cupti, CuptiError};
use crate::cuda::driver::{Device, DriverError, Event, Prepared};
use crate::cuda::nvml::{Fares, Nvml, NvmlError, throttle_names};
use crate::measure::Warning;
use crate::measure::statistics::median;
use std::cell::OnceCell;
use std::time::Instant;

/// A GPU with the libraries that tell of it.
pub struct Gpu {
    /// The device.
    pub device: Device,
    nvml: Result<Nvml, NvmlError>,
    // Opened when it is first wanted, as it stays in the process and may slow what is launched later.
    cupti: OnceCell<Result<Cupti, CuptiError>>,
    launch_costs: OnceCell<Result<LaunchCosts, DriverError>>,
}

/// The counter that CUPTI gives; to be asked for by its name.
pub(super) const KERNEL_TIME: &str = "gpu_kernel_ns";

/// What it takes to launch a kernel that does nothing.
#[derive(Clone, Copy, Debug)]
struct LaunchCosts {
    /// Time of the device from one to the next.
    launch_ns: f64,
    /// Time of the host to ask for one.
    host_ns: f64,
    /// Time of the device from one to the next in a graph.
    graph_ns: f64,
}

/// Counters, refusals and doubts of one job.
#[derive(Default)]
pub(super) struct Told {
    pub(super) values: Vec<CounterValue>,
    pub(super) refusals: Vec<Refusal>,
    pub(super) warnings: Vec<Warning>,
}

impl Told {
    pub(super) fn give(&mut self, name: &str, unit: &str, step: Step, native: &str, number: f64) {
        self.values.push(CounterValue {
            name: name.to_owned(),
            unit: unit.to_owned(),
            step,
            native: native.to_owned(),
            coverage: Coverage::External,
            per_run: number,
            runs: 1,
            running_ratio: 1.0,
        });
    }

    pub(super) fn refuse(&mut self, name: &str, step: Step, errno: Option<i32>, why: String) {
        self.refusals.push(Refusal { event: name.to_owned(), step, errno, why });
    }
}

impl Gpu {
    /// Opens the driver's first device. Without NVML there is less to tell.
    pub fn open() -> Result<Gpu, DriverError> {
        let device = Device::open()?;
        let nvml = Nvml::open(&device.pci_bus_id()?);
        Ok(Gpu { device, nvml, cupti: OnceCell::new(), launch_costs: OnceCell::new() })
    }

    /// How the device fares, where the driver tells.
    pub(super) fn fares(&self) -> Option<Fares> {
        self.nvml.as_ref().ok().map(Nvml::fares)
    }

    /// Clocks, power, temperature, and what held clocks back at either end of the timed runs.
    pub(super) fn tell_fares(&self, before: Option<&Fares>, after: Option<&Fares>, told: &mut Told) {
        const IDLE: u64 = 1;
        let (before, after) = match (before, after, &self.nvml) {
            (Some(before), Some(after), _) => (before, after),
            (.., Err(error)) => return told.refuse("gpu_clocks", Step::Nvml, None, error.to_string()),
            _ => return,
        };
        let figures = [
            ("gpu_sm_clock_mhz", "MHz", "nvmlDeviceGetClockInfo(SM)", &after.sm_clock_mhz, 1.0),
            ("gpu_memory_clock_mhz", "MHz", "nvmlDeviceGetClockInfo(MEM)", &after.memory_clock_mhz, 1.0),
            ("gpu_power_watts", "W", "nvmlDeviceGetPowerUsage", &after.power_mw, 1e-3),
            ("gpu_temperature_celsius", "°C", "nvmlDeviceGetTemperature", &after.temperature_celsius, 1.0),
        ];
        for (name, unit, native, figure, factor) in figures {
            match figure {
                Ok(number) => told.give(name, unit, Step::Nvml, native, f64::from(*number) * factor),
                Err(error) => told.refuse(name, Step::Nvml, None, error.to_string()),
            }
        }
        let native = "nvmlDeviceGetCurrentClocksThrottleReasons";
        match (&before.throttle, &after.throttle) {
            (Ok(before), Ok(after)) => {
                let reasons = (before | after) & !IDLE;
                told.give("gpu_throttle_reasons", "bits", Step::Nvml, native, reasons as f64);
                if reasons != 0 {
                    told.warnings.push(Warning::ClocksHeldBack { by: throttle_names(reasons).join(", ") });
                }
            }
            (Err(error), _) | (_, Err(error)) => {
                told.refuse("gpu_throttle_reasons", Step::Nvml, None, error.to_string());
            }
        }
    }

    /// What a launch costs here, measured once per process.
    pub(super) fn tell_launch_costs(&self, told: &mut Told) {
        match self.launch_costs.get_or_init(|| launch_costs(&self.device)) {
            Ok(costs) => {
                told.give("gpu_launch_ns", "ns", Step::Device, "empty kernels one after the other", costs.launch_ns);
                told.give("gpu_launch_host_ns", "ns", Step::Device, "cuLaunchKernel of an empty kernel", costs.host_ns);
                told.give("gpu_graph_launch_ns", "ns", Step::Device, "empty kernels in a graph", costs.graph_ns);
            }
            Err(error) => told.refuse("gpu_launch_ns", Step::Device, None, error.to_string()),
        }
    }

    /// Time of the kernels of one run alone, without the gaps between them, as CUPTI records it.
    pub(super) fn tell_kernel_time(&self, kernels: &[Prepared<'_>], told: &mut Told) -> Result<(), DriverError> {
        const RUNS: usize = 10;
        let cupti = match self.cupti.get_or_init(Cupti::open) {
            Ok(cupti) => cupti,
            Err(error) => {
                told.refuse(KERNEL_TIME, Step::Cupti, None, error.to_string());
                return Ok(());
            }
        };
        let recorded = cupti.kernel_times_ns(|| -> Result<(), Looking> {
            for _ in 0..RUNS {
                kernels.iter().try_for_each(Prepared::launch)?;
            }
            Ok(self.device.synchronize()?)
        });
        match recorded {
            Ok(times) if times.len() == RUNS * kernels.len() => {
                let total: u64 = times.iter().sum();
                told.give(
                    KERNEL_TIME,
                    "ns",
                    Step::Cupti,
                    "CUpti_ActivityKernel end - start",
                    total as f64 / RUNS as f64,
                );
            }
            Ok(times) => {
                let wanted = RUNS * kernels.len();
                told.refuse(
                    KERNEL_TIME,
                    Step::Cupti,
                    None,
                    format!("{} of {wanted} kernels were recorded", times.len()),
                );
            }
            Err(Looking::Driver(error)) => return Err(error),
            Err(Looking::Cupti(error)) => {
                let status = if let CuptiError::Failed { status, .. } = &error { Some(*status) } else { None };
                told.refuse(KERNEL_TIME, Step::Cupti, status, error.to_string());
            }
        }
        Ok(())
    }
}

/// What may fail while CUPTI looks.
enum Looking {
    Cupti(CuptiError),
    Driver(DriverError),
}

impl From<CuptiError> for Looking {
    fn from(error: CuptiError) -> Looking {
        Looking::Cupti(error)
    }
}

impl From<DriverError> for Looking {
    fn from(error: DriverError) -> Looking {
        Looking::Driver(error)
    }
}

/// Samples of what is measured beside the timed runs.
const SAMPLES: usize = 8;

/// The median over samples of the device's time of `work`, after one that does not count.
pub(super) fn median_ns(
    [start, end]: [&Event<'_>; 2],
    mut work: impl FnMut() -> Result<(), DriverError>,
) -> Result<f64, DriverError> {
    let mut samples = Vec::with_capacity(SAMPLES);
    for sample in 0..=SAMPLES {
        start.record()?;
        work()?;
        end.record()?;
        end.wait()?;
        if sample > 0 {
            samples.push(end.since_ns(start)? as f64);
        }
    }
    samples.sort_by(f64::total_cmp);
    Ok(median(&samples))
}

/// Time of one run where the device is asked for many at once by a graph.
pub(super) fn graph_ns(device: &Device, marks: [&Event<'_>; 2], kernels: &[Prepared<'_>]) -> Result<f64, DriverError> {
    const LAUNCHES: usize = 256;
    let runs = (LAUNCHES / kernels.len().max(1)).max(1);
    let all: Vec<&Prepared<'_>> = (0..runs).flat_map(|_| kernels).collect();
    let graph = device.graph(&all)?;
    Ok(median_ns(marks, || graph.launch())? / runs as f64)
}

fn launch_costs(device: &Device) -> Result<LaunchCosts, DriverError> {
    const LAUNCHES: usize = 256;
    // The driver itself compiles this for any device.
    const NOTHING: &[u8] =
        b".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\n  ret;\n}\n\0";
    let module = device.load(NOTHING)?;
    let launch = Launch {
        kernel: "nothing".to_owned(),
        arguments: Vec::new(),
        grid: [1; 3],
        block: [1; 3],
        dynamic_shared_bytes: 0,
    };
    let kernels = [module.prepare(&launch, &[])?];
    let (start, end) = (device.event()?, device.event()?);
    let mut host_ns = f64::INFINITY;
    let in_turn = median_ns([&start, &end], || {
        let begin = Instant::now();
        (0..LAUNCHES).try_for_each(|_| kernels[0].launch())?;
        host_ns = host_ns.min(begin.elapsed().as_nanos() as f64);
        Ok(())
    })?;
    let graph_ns = graph_ns(device, [&start, &end], &kernels)?;
    Ok(LaunchCosts { launch_ns: in_turn / LAUNCHES as f64, host_ns: host_ns / LAUNCHES as f64, graph_ns })
}
