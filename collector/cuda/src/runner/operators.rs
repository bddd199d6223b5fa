//! Profiles the calls of a whole model on a GPU with events between the calls, evaluated after each run. A call lasts
//! from the event before its first kernel to the event after its last one, so it includes waiting for launches. The
//! overhead of recording events is determined by a comparison with runs without events.

use super::counter_report::CounterReport;
use super::gpu::Gpu;
use crate::driver::{Device, DeviceEvent, DriverError, Prepared};
use measure::clock::wall_clock_start_ns;
use measure::counters::gpu::ENERGY;
use measure::counters::{Backend, CounterRequest, NoCounters, Usage};
use measure::{Cache, Clock, HostClock};
use profile::data::{Energy, Track};
use profile::session::{Subject, Watch, profile_model, to_refusal};
use profile::{Plan, Profile};
use std::cell::Cell;
use std::time::Duration;

pub(super) struct Calls<'a> {
    kernels: &'a [Prepared<'a>],
    /// For each call, index of the kernel after its last kernel.
    ends: Vec<usize>,
    workspaces: Option<Vec<u64>>,
    /// One event before each call, and one event after the last call.
    marks: Vec<DeviceEvent<'a>>,
    times: OperatorTimes,
}

impl<'a> Calls<'a> {
    pub(super) fn new(
        device: &'a Device,
        kernels: &'a [Prepared<'a>],
        ends: Vec<usize>,
        workspaces: Option<Vec<u64>>,
    ) -> Result<Calls<'a>, DriverError> {
        let marks = (0..=ends.len()).map(|_| device.create_event()).collect::<Result<_, _>>()?;
        Ok(Calls { kernels, ends, workspaces, marks, times: OperatorTimes::default() })
    }

    fn last_event(&self) -> &DeviceEvent<'a> {
        self.marks.last().expect("there is an event after the last call")
    }
}

/// Device times of the latest run, which the clock of a session reads.
#[derive(Default)]
struct OperatorTimes {
    read_ns: Cell<u64>,
    device_ns: Cell<Option<u64>>,
}

/// Clock that returns the device time if it is known, and the host time otherwise.
struct DeviceTimes<'a> {
    host: HostClock<'static>,
    times: &'a OperatorTimes,
}

impl Clock for DeviceTimes<'_> {
    fn now_ns(&mut self) -> u64 {
        // Sums of rounded differences may exceed the host's time by some microseconds, and a clock
        // must not go back.
        let host_ns = || self.host.now_ns().max(self.times.read_ns.get());
        let now_ns = self.times.device_ns.take().unwrap_or_else(host_ns);
        self.times.read_ns.set(now_ns);
        now_ns
    }

    fn precision_ns(&self) -> u64 {
        self.host.precision_ns()
    }

    fn read_usage(&mut self) -> Usage {
        self.host.read_usage()
    }

    fn speed_probe_ns(&mut self) -> u64 {
        self.host.speed_probe_ns()
    }

    fn sleep(&mut self, duration: Duration) {
        self.host.sleep(duration);
    }

    fn prepare_caches(&mut self, _: Cache) {}
}

struct Watched<'a, 'b>(&'b Calls<'a>);

impl Subject for Watched<'_, '_> {
    type Error = DriverError;

    fn call_count(&self) -> usize {
        self.0.ends.len()
    }

    fn run(&mut self) -> Result<(), DriverError> {
        let Calls { kernels, marks, times, .. } = self.0;
        let (begin, end) = (&marks[0], self.0.last_event());
        begin.record_default()?;
        kernels.iter().try_for_each(Prepared::submit_kernel)?;
        end.record_default()?;
        end.wait_until_reached()?;
        times.device_ns.set(Some(times.read_ns.get() + end.since_ns(begin)?));
        Ok(())
    }

    fn run_watched(&mut self, watch: &mut impl Watch) -> Result<(), DriverError> {
        let Calls { kernels, ends, marks, times, .. } = self.0;
        let begin_ns = times.read_ns.get();
        let mut first = 0;
        for (mark, end) in marks.iter().zip(ends) {
            mark.record_default()?;
            kernels[first..*end].iter().try_for_each(Prepared::submit_kernel)?;
            first = *end;
        }
        self.0.last_event().record_default()?;
        self.0.last_event().wait_until_reached()?;
        let mut seen_ns = begin_ns;
        for (call, pair) in marks.windows(2).enumerate() {
            times.device_ns.set(Some(seen_ns));
            watch.begin_call(call);
            // The differences of adjacent events are added, because the difference of distant
            // events is rounded more coarsely.
            seen_ns += pair[1].since_ns(&pair[0])?;
            times.device_ns.set(Some(seen_ns));
            watch.end_call(call);
        }
        times.device_ns.set(Some(seen_ns));
        Ok(())
    }

    fn workspace_bytes(&mut self) -> Result<Option<Vec<u64>>, DriverError> {
        Ok(self.0.workspaces.clone())
    }
}

/// Profiles the calls. If a run as a CUDA graph is faster than a run as a list of launches, a note states both times.
pub(super) fn profile_calls(
    calls: Calls<'_>,
    plan: &Plan,
    (list_ns, graph_ns): (f64, f64),
) -> Result<Profile, DriverError> {
    let mut clock = DeviceTimes { host: HostClock::new(), times: &calls.times };
    let seen = profile_model(&mut Watched(&calls), plan, &mut clock, &mut NoCounters)?;
    let process = u64::from(std::process::id());
    let track = Track { name: "cuda0".to_owned(), process, is_device: true, ..Track::default() };
    let wall_clock_start_ns = wall_clock_start_ns(&mut clock.host);
    let mut profile = Profile { tracks: vec![track], wall_clock_start_ns, ..seen };
    if graph_ns < list_ns {
        let (list, graph) = (list_ns / 1e3, graph_ns / 1e3);
        profile.notes.push(format!(
            "kernels were launched separately: a run takes {list:.1} µs, but {graph:.1} µs as one CUDA graph, which `model run` uses"
        ));
    }
    Ok(profile)
}

/// Adds the energy of whole runs to the profile. All other counters are rejected.
pub(super) fn add_energy(
    gpu: &Gpu,
    kernels: &[Prepared<'_>],
    counters: &CounterRequest,
    run_ns: f64,
    profile: &mut Profile,
) {
    if counters.backend == Backend::None {
        return;
    }
    let mut report = CounterReport::default();
    for name in &counters.events {
        match name.as_str() {
            ENERGY => report.read_or_refuse(&[ENERGY], |report| gpu.add_board_energy(kernels, run_ns, report)),
            name => report.add_refusal(
                name,
                None,
                "on a GPU, this counter can be read only for single operators, not within models",
            ),
        }
    }
    profile.energy.extend(report.values.iter().map(|value| Energy {
        domain: "gpu".to_owned(),
        source: value.native.clone(),
        millijoules: value.per_run,
    }));
    profile.refusals.extend(report.refusals.iter().map(to_refusal));
}
