//! A whole model on a GPU, looked at call by call: marks on the device's time line between calls, read when a run is over.
//!
//! The times are the device's own. A call lasts from the mark before its first kernel to the one after its last, so what the
//! device waits for launches is in it; asking for marks is all that looking costs, and is compared with runs without them.

use super::gpu::Gpu;
use super::told::Told;
use crate::driver::{Device, DriverError, Event, Prepared};
use measure::counters::gpu::ENERGY;
use measure::counters::{Backend, CounterRequest, NoCounters, Usage};
use measure::{Clock, HostClock};
use profile::data::{Energy, Track};
use profile::session::{Subject, Watch, refusal, watch};
use profile::{Plan, Profile};
use std::cell::Cell;
use std::time::Duration;

/// The calls of a model.
pub(super) struct Calls<'a> {
    kernels: &'a [Prepared<'a>],
    /// Where the kernels of each call end.
    ends: Vec<usize>,
    workspaces: Option<Vec<u64>>,
    /// One before each call, and one after the last.
    marks: Vec<Event<'a>>,
    times: Times,
}

impl<'a> Calls<'a> {
    /// Calls whose kernels end at these places, with what they ask of workspaces.
    pub(super) fn new(
        device: &'a Device,
        kernels: &'a [Prepared<'a>],
        ends: Vec<usize>,
        workspaces: Option<Vec<u64>>,
    ) -> Result<Calls<'a>, DriverError> {
        let marks = (0..=ends.len()).map(|_| device.event()).collect::<Result<_, _>>()?;
        Ok(Calls { kernels, ends, workspaces, marks, times: Times::default() })
    }

    fn last(&self) -> &Event<'a> {
        self.marks.last().expect("there is one after the last call")
    }
}

/// What the device said last, for the clock of a session.
#[derive(Default)]
struct Times {
    read_ns: Cell<u64>,
    told_ns: Cell<Option<u64>>,
}

/// Tells what the device said where it said something, and else what the host's clock shows.
struct DeviceTimes<'a> {
    host: HostClock,
    times: &'a Times,
}

impl Clock for DeviceTimes<'_> {
    fn now_ns(&mut self) -> u64 {
        // Sums of rounded differences may run ahead of the host by some microseconds, and no clock goes back.
        let host_ns = || self.host.now_ns().max(self.times.read_ns.get());
        let now_ns = self.times.told_ns.take().unwrap_or_else(host_ns);
        self.times.read_ns.set(now_ns);
        now_ns
    }

    fn precision_ns(&self) -> u64 {
        self.host.precision_ns()
    }

    fn usage(&mut self) -> Usage {
        self.host.usage()
    }

    fn speed_probe_ns(&mut self) -> u64 {
        self.host.speed_probe_ns()
    }

    fn sleep(&mut self, duration: Duration) {
        self.host.sleep(duration);
    }

    /// Nothing is timed with cold caches here.
    fn empty_caches(&mut self, _: u64) {}
}

/// What is watched: calls whose times are told afterwards.
struct Watched<'a, 'b>(&'b Calls<'a>);

impl Subject for Watched<'_, '_> {
    type Error = DriverError;

    fn calls(&self) -> usize {
        self.0.ends.len()
    }

    fn run(&mut self) -> Result<(), DriverError> {
        let Calls { kernels, marks, times, .. } = self.0;
        let (begin, end) = (&marks[0], self.0.last());
        begin.record()?;
        kernels.iter().try_for_each(Prepared::launch)?;
        end.record()?;
        end.wait()?;
        times.told_ns.set(Some(times.read_ns.get() + end.since_ns(begin)?));
        Ok(())
    }

    fn run_watched(&mut self, watch: &mut impl Watch) -> Result<(), DriverError> {
        let Calls { kernels, ends, marks, times, .. } = self.0;
        let begin_ns = times.read_ns.get();
        let mut first = 0;
        for (mark, end) in marks.iter().zip(ends) {
            mark.record()?;
            kernels[first..*end].iter().try_for_each(Prepared::launch)?;
            first = *end;
        }
        self.0.last().record()?;
        self.0.last().wait()?;
        let mut seen_ns = begin_ns;
        for (call, pair) in marks.windows(2).enumerate() {
            times.told_ns.set(Some(seen_ns));
            watch.begin(call);
            // Differences of two marks that are far apart are rounded to more than half a microsecond.
            seen_ns += pair[1].since_ns(&pair[0])?;
            times.told_ns.set(Some(seen_ns));
            watch.end(call);
        }
        times.told_ns.set(Some(seen_ns));
        Ok(())
    }

    fn workspace_bytes(&mut self) -> Result<Option<Vec<u64>>, DriverError> {
        Ok(self.0.workspaces.clone())
    }
}

/// Looks at calls as a plan says. Beside them stands what a run takes as a list of launches and as one graph.
pub(super) fn profile(calls: Calls<'_>, plan: &Plan, (list_ns, graph_ns): (f64, f64)) -> Result<Profile, DriverError> {
    let mut clock = DeviceTimes { host: HostClock::new(), times: &calls.times };
    let seen = watch(&mut Watched(&calls), plan, &mut clock, &mut NoCounters)?;
    let process = u64::from(std::process::id());
    let track = Track { name: "cuda0".to_owned(), process, is_device: true, ..Track::default() };
    let mut profile = Profile { tracks: vec![track], ..seen };
    if graph_ns < list_ns {
        let (list, graph) = (list_ns / 1e3, graph_ns / 1e3);
        profile.notes.push(format!(
            "kernels were launched one by one, which takes {list:.1} µs a run; as one graph, as `model run` does, a run takes {graph:.1} µs"
        ));
    }
    Ok(profile)
}

/// What is asked for beside times: energy of whole runs is told, all else refused with the reason.
pub(super) fn count(
    gpu: &Gpu,
    kernels: &[Prepared<'_>],
    counters: &CounterRequest,
    run_ns: f64,
    profile: &mut Profile,
) {
    if counters.backend == Backend::None {
        return;
    }
    let mut told = Told::default();
    for name in &counters.events {
        match name.as_str() {
            ENERGY => told.tell(&[ENERGY], |told| gpu.tell_energy(kernels, run_ns, told)),
            name => told.refuse(name, None, "on a GPU it is counted of single operators, not inside of models"),
        }
    }
    profile.energy.extend(told.values.iter().map(|value| Energy {
        domain: "gpu".to_owned(),
        source: value.native.clone(),
        millijoules: value.per_run,
    }));
    profile.refusals.extend(told.refusals.iter().map(refusal));
}
