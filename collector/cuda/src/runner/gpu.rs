//! Counters of a GPU and of its kernels, each with a value and its source, or a rejection and its reason. Counters are
//! read in separate runs after the timed runs; only the device's state is read between timed runs (`watch`). A failed
//! call loses its own counters and all later counters, but never the record.

use super::counter_report::CounterReport;
use super::launch_costs::{LaunchCosts, launch_costs};
use super::profiling::{Profiling, ProfilingError};
use super::watch::{Watch, WatchedRun};
use crate::Image;
use crate::cupti::{Cupti, CuptiError};
use crate::driver::{Device, DeviceBuffer, DeviceModule, DriverError, Prepared};
use crate::nvml::{Nvml, NvmlError, throttle_names};
use measure::Warning;
use measure::counters::gpu::{self as names, ENERGY, KERNEL_TIME, WantedMetric};
use measure::counters::{CountedEvents, CounterReader, CounterRequest, CounterSession, CounterValue, Step};
use measure::statistics::median_of_sorted;
use std::cell::{OnceCell, RefCell};
use worker::RunnerProcess;

pub struct Gpu {
    pub device: Device,
    process: RunnerProcess,
    nvml: Result<Nvml, NvmlError>,
    // CUPTI is opened on first use, because it stays in the process and may slow down later launches.
    cupti: OnceCell<Result<Cupti, CuptiError>>,
    // The profiler, prepared for the metrics of the last job, because the next job often has the same metrics.
    profiling: RefCell<Option<PreparedMetrics>>,
    launch_costs: OnceCell<Result<LaunchCosts, DriverError>>,
}

/// Requested metrics, and the profiler prepared for them or the reason why preparation failed.
struct PreparedMetrics {
    metrics: Vec<WantedMetric>,
    profiling: Result<Profiling, CuptiError>,
}

impl Gpu {
    /// Opens the GPU. NVML is optional.
    pub fn open(process: RunnerProcess) -> Result<Gpu, DriverError> {
        let device = Device::open()?;
        let nvml = Nvml::open_device(&device.pci_bus_id()?);
        let (cupti, profiling, launch_costs) = (OnceCell::new(), RefCell::new(None), OnceCell::new());
        Ok(Gpu { device, process, nvml, cupti, profiling, launch_costs })
    }

    pub(super) fn load_image(&self, image: Image<'_>) -> Result<DeviceModule<'_>, DriverError> {
        self.device.load_image(self.process, image)
    }

    /// Starts to sample the device's state; without NVML, there are no samples.
    pub(super) fn start_watch(&self) -> Watch<'_> {
        Watch::new(self.nvml.as_ref().ok())
    }

    pub(super) fn reject_unknown(events: &[String], report: &mut CounterReport) {
        let is_unknown =
            |name: &&String| names::find_counter(name).is_none() && !name.starts_with(names::METRIC_PREFIX);
        for name in events.iter().filter(|name| names::has_gpu_prefix(name)).filter(is_unknown) {
            report.add_refusal(name, None, "there is no GPU counter of this name; docs/guide/cuda.md lists them");
        }
    }

    /// Adds clocks, power, temperature, and reasons for throttling in any batch.
    pub(super) fn add_device_state(&self, seen: &WatchedRun, report: &mut CounterReport) {
        const IDLE: u64 = 1;
        let always = names::GPU_NAMES.iter().filter(|counter| counter.step == Step::Nvml && !counter.is_on_demand);
        if let Err(error) = &self.nvml {
            return always.for_each(|counter| report.add_refusal(counter.name, None, error));
        }
        let (sm_clock, memory_clock) = ("nvmlDeviceGetClockInfo(SM)", "nvmlDeviceGetClockInfo(MEM)");
        let figures: [Figure; 5] = [
            ("gpu_sm_clock_mhz", sm_clock, &seen.sm_clock_mhz, median_sample),
            ("gpu_sm_clock_min_mhz", sm_clock, &seen.sm_clock_mhz, min_sample),
            ("gpu_memory_clock_mhz", memory_clock, &seen.memory_clock_mhz, median_sample),
            ("gpu_power_watts", "nvmlDeviceGetPowerUsage", &seen.power_mw, |seen| median_sample(seen) * 1e-3),
            ("gpu_temperature_celsius", "nvmlDeviceGetTemperature", &seen.temperature_celsius, max_sample),
        ];
        for (name, native, seen, summary) in figures {
            match seen {
                Ok(seen) if seen.is_empty() => report.add_refusal(name, None, "the device's state was not sampled"),
                Ok(seen) => report.add_counter(name, native, summary(seen)),
                Err(error) => report.add_refusal(name, None, error),
            }
        }
        match &seen.throttle {
            Ok(reasons) => {
                let reasons = reasons & !IDLE;
                report.add_counter("gpu_throttle_reasons", "nvmlDeviceGetCurrentClocksThrottleReasons", reasons as f64);
                if reasons != 0 {
                    report.warnings.push(Warning::ClocksHeldBack { by: throttle_names(reasons).join(", ") });
                }
            }
            Err(error) => report.add_refusal("gpu_throttle_reasons", None, error),
        }
    }

    /// Adds the launch costs, which are measured once per process.
    pub(super) fn add_launch_costs(&self, report: &mut CounterReport) {
        match self.launch_costs.get_or_init(|| launch_costs(&self.device, self.process)) {
            Ok(costs) => {
                report.add_counter("gpu_launch_ns", "consecutive empty kernels", costs.launch_ns);
                report.add_counter("gpu_launch_host_ns", "cuLaunchKernel of an empty kernel", costs.host_ns);
                report.add_counter("gpu_graph_launch_ns", "empty kernels in a graph", costs.graph_ns);
            }
            Err(error) => {
                for name in ["gpu_launch_ns", "gpu_launch_host_ns", "gpu_graph_launch_ns"] {
                    report.add_refusal(name, None, error);
                }
            }
        }
    }

    /// Adds the total duration of the kernels without the gaps between them, as recorded by CUPTI.
    pub(super) fn add_kernel_time(
        &self,
        kernels: &[Prepared<'_>],
        report: &mut CounterReport,
    ) -> Result<(), DriverError> {
        const RUNS: usize = 10;
        let cupti = match self.cupti.get_or_init(Cupti::open) {
            Ok(cupti) => cupti,
            Err(error) => {
                report.add_refusal(KERNEL_TIME, None, error);
                return Ok(());
            }
        };
        let recorded = cupti.kernel_times_ns(|| -> Result<(), ProfilingError> {
            for _ in 0..RUNS {
                kernels.iter().try_for_each(Prepared::submit_kernel)?;
            }
            Ok(self.device.synchronize()?)
        });
        match recorded {
            Ok(times) if times.len() == RUNS * kernels.len() => {
                let total: u64 = times.iter().sum();
                report.add_counter(KERNEL_TIME, "CUpti_ActivityKernel end - start", total as f64 / RUNS as f64);
            }
            Ok(times) => {
                let wanted = RUNS * kernels.len();
                report.add_refusal(
                    KERNEL_TIME,
                    None,
                    format!("only {} of {wanted} kernels were recorded", times.len()),
                );
            }
            Err(ProfilingError::Driver(error)) => return Err(error),
            Err(ProfilingError::Cupti(error)) => report.add_refusal(KERNEL_TIME, error.status_code(), error),
        }
        Ok(())
    }

    /// Adds hardware counters: of many runs with warm caches, to make the ends of a range negligible, else of one run.
    pub(super) fn add_metrics(
        &self,
        wanted: &[WantedMetric],
        kernels: &[Prepared<'_>],
        flush: Option<&DeviceBuffer<'_>>,
        run_ns: f64,
        report: &mut CounterReport,
    ) -> Result<(), DriverError> {
        const RANGE_NS: f64 = 200_000.0;
        const LAUNCHES_MAX: usize = 256;
        let launch = || kernels.iter().try_for_each(Prepared::submit_kernel);
        let runs = match flush {
            Some(_) => 1,
            None => {
                ((RANGE_NS / run_ns.max(1.0)).ceil() as usize).clamp(1, (LAUNCHES_MAX / kernels.len().max(1)).max(1))
            }
        };
        let ready = || -> Result<(), ProfilingError> {
            match flush {
                Some(flush) => flush.fill_bytes(0x55)?,
                None => launch()?,
            }
            Ok(self.device.synchronize()?)
        };
        let work = || -> Result<(), ProfilingError> { Ok((0..runs).try_for_each(|_| launch())?) };
        let mut kept = self.profiling.borrow_mut();
        let kept = match kept.take().filter(|kept| kept.metrics == wanted) {
            Some(same) => kept.insert(same),
            None => kept.insert(PreparedMetrics { metrics: wanted.to_vec(), profiling: self.begin_profiling(wanted) }),
        };
        let refuse_all = |error: &CuptiError, report: &mut CounterReport| {
            wanted.iter().for_each(|metric| report.add_refusal(&metric.name, error.status_code(), error));
        };
        let profiling = match &mut kept.profiling {
            Ok(profiling) => profiling,
            Err(error) => {
                refuse_all(error, report);
                return Ok(());
            }
        };
        match profiling.measure_metrics(&self.device, ready, work) {
            Ok(values) => add_metric_values(profiling, &values, runs, report),
            Err(ProfilingError::Driver(error)) => return Err(error),
            Err(ProfilingError::Cupti(error)) => refuse_all(&error, report),
        }
        Ok(())
    }

    fn begin_profiling(&self, wanted: &[WantedMetric]) -> Result<Profiling, CuptiError> {
        let cupti = self.cupti.get_or_init(Cupti::open).as_ref().map_err(Clone::clone)?;
        Profiling::begin_profiling(cupti, &self.device, wanted)
    }

    /// Adds the energy per run, measured over many consecutive runs because of the counter's low resolution.
    pub(super) fn add_board_energy(
        &self,
        kernels: &[Prepared<'_>],
        run_ns: f64,
        report: &mut CounterReport,
    ) -> Result<(), DriverError> {
        // Long compared with the resolution of the energy counter.
        const TIME_NS: f64 = 5e8;
        const RUNS_MAX: f64 = 1e5;
        let nvml = match &self.nvml {
            Ok(nvml) => nvml,
            Err(error) => {
                report.add_refusal(ENERGY, None, error);
                return Ok(());
            }
        };
        let runs = (TIME_NS / run_ns.max(1.0)).ceil().clamp(1.0, RUNS_MAX) as u32;
        let before = nvml.energy_millijoules();
        (0..runs).try_for_each(|_| kernels.iter().try_for_each(Prepared::submit_kernel))?;
        self.device.synchronize()?;
        match (before, nvml.energy_millijoules()) {
            (Ok(before), Ok(after)) if after > before => {
                let per_run = (after - before) as f64 / f64::from(runs);
                report.add_counter(ENERGY, "nvmlDeviceGetTotalEnergyConsumption", per_run);
            }
            (Ok(_), Ok(_)) => {
                report.add_refusal(ENERGY, None, format!("NVML's energy counter did not increase over {runs} runs"))
            }
            (Err(error), _) | (_, Err(error)) => report.add_refusal(ENERGY, None, error),
        }
        Ok(())
    }

    pub(super) fn add_papi_counters(
        &self,
        request: &CounterRequest,
        kernels: &[Prepared<'_>],
        report: &mut CounterReport,
    ) -> Result<(), DriverError> {
        const RUNS: u64 = 10;
        let events: Vec<String> = request.events.iter().filter(|event| is_papi_of_gpu(event)).cloned().collect();
        if events.is_empty() {
            return Ok(());
        }
        let mut session = CounterSession::open_counters(&CounterRequest { events, ..request.clone() });
        let mut before = vec![None; session.channels().len()];
        let mut after = before.clone();
        if !before.is_empty() {
            session.read_channels(&mut before);
            (0..RUNS).try_for_each(|_| kernels.iter().try_for_each(Prepared::submit_kernel))?;
            self.device.synchronize()?;
            session.read_channels(&mut after);
        }
        for (channel, (before, after)) in session.channels().iter().zip(before.iter().zip(&after)) {
            let mut counted = CountedEvents::default();
            counted.add_runs(*before, *after, RUNS);
            match CounterValue::new(channel, &counted) {
                Ok(value) => report.values.push(value),
                Err(refusal) => report.refusals.push(refusal),
            }
        }
        report.refusals.extend_from_slice(session.refusals());
        Ok(())
    }
}

/// Largest plausible percentage. It exceeds 100 because numerator and denominator may be counted in different passes.
const SHARE_MAX: f64 = 110.0;

/// Appends the metrics' values, divided by the `runs` runs over which they were measured.
fn add_metric_values(profiling: &Profiling, values: &[f64], runs: usize, report: &mut CounterReport) {
    for (metric, &value) in profiling.chosen_metrics().zip(values) {
        let per_run = if names::is_sum(&metric.native) { value / runs as f64 } else { value };
        if metric.unit == "%" && per_run > SHARE_MAX {
            let why = format!("`{}` is {per_run:.0} %: values of different passes are inconsistent", metric.native);
            report.add_refusal(&metric.name, None, why);
        } else if per_run.is_finite() {
            report.add_named(&metric.name, metric.unit, Step::Cupti, &metric.native, per_run);
        } else {
            let why = format!("`{}` is {value}: there were no events to count", metric.native);
            report.add_refusal(&metric.name, None, why);
        }
    }
    profiling.refused_counters().for_each(|(name, error)| report.add_refusal(name, error.status_code(), error));
}

/// Name of a counter, its name in NVML, its samples, and the function that summarises them.
type Figure<'a> = (&'a str, &'a str, &'a Result<Vec<u32>, NvmlError>, fn(&[u32]) -> f64);

fn median_sample(seen: &[u32]) -> f64 {
    let mut sorted: Vec<f64> = seen.iter().map(|&number| f64::from(number)).collect();
    sorted.sort_by(f64::total_cmp);
    median_of_sorted(&sorted)
}

fn min_sample(seen: &[u32]) -> f64 {
    f64::from(seen.iter().min().copied().unwrap_or(0))
}

fn max_sample(seen: &[u32]) -> f64 {
    f64::from(seen.iter().max().copied().unwrap_or(0))
}

pub(super) fn is_papi_of_gpu(event: &str) -> bool {
    ["papi:cuda:::", "papi:nvml:::"].iter().any(|component| event.starts_with(component))
}
