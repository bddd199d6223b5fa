//! Opens counters for the calling thread, step by step down the ladder, and reads them.

use std::{marker::PhantomData, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    Backend, Channel, CounterReader, Coverage, Reading, Refusal, Step, Usage, gpu,
    names::{self, CounterName, PerfEvent, UsageFigure},
    papi::{self, EventSet, Papi, PapiError},
    perf::{self, Mode, PerfCounter},
};

/// Most processors have four registers that can count anything.
const GROUP_EVENTS_MAX: usize = 4;

/// Which counters are wanted, and from where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CounterRequest {
    /// Which steps may be tried.
    pub backend: Backend,
    /// Stable names (see [`names::NAMES`] and [`gpu::GPU_NAMES`]), or native ones: `papi:NAME`, `perf:rHEX` for a raw
    /// event, `cupti:METRIC` for a metric of a GPU.
    pub events: Vec<String>,
    /// PAPI's library, where it is not in the loader's search path. The first session of a process decides.
    pub papi_library: Option<PathBuf>,
    /// Count threads started later by the opening thread too. Open the session before TVM makes its pool.
    pub with_descendants: bool,
}

impl Default for CounterRequest {
    fn default() -> Self {
        Self {
            backend: Backend::Auto,
            events: names::DEFAULT.iter().map(ToString::to_string).collect(),
            papi_library: None,
            with_descendants: false,
        }
    }
}

/// Open counters of one thread. Not `Send`: a set counts the thread that opened it.
pub struct CounterSession {
    channels: Vec<Channel>,
    refusals: Vec<Refusal>,
    papi: Vec<PapiSet>,
    perf: Vec<PerfGroup>,
    usage: Vec<(usize, UsageFigure)>,
    groups: usize,
    selected: Option<usize>,
    not_send: PhantomData<*const ()>,
}

/// Events that PAPI counts together, with their places among the channels.
struct PapiSet {
    set: EventSet,
    component: i32,
    group: Option<usize>,
    places: Vec<usize>,
}

/// Events that the kernel counts together; the first leads.
struct PerfGroup {
    members: Vec<(PerfCounter, usize)>,
    group: Option<usize>,
}

/// A wanted counter that the kernel would count, before groups are formed.
struct Granted {
    channel: Channel,
    event: PerfEvent,
    mode: Mode,
}

impl CounterSession {
    /// Opens what can be opened for the calling thread. What cannot is in [`CounterReader::refusals`]; an event that
    /// is given by a lower step is refused by the steps above it, and both is recorded.
    pub fn open(request: &CounterRequest) -> Self {
        let mut session = Self {
            channels: Vec::new(),
            refusals: Vec::new(),
            papi: Vec::new(),
            perf: Vec::new(),
            usage: Vec::new(),
            groups: 0,
            selected: None,
            not_send: PhantomData,
        };
        let mut granted = Vec::new();
        if request.backend != Backend::None {
            for name in &request.events {
                session.open_event(name, request, &mut granted);
            }
        }
        session.start_papi();
        session.open_perf(granted);
        session.select(0);
        session
    }

    /// Goes down the ladder with one event.
    fn open_event(&mut self, name: &str, request: &CounterRequest, granted: &mut Vec<Granted>) {
        let wanted = match Wanted::parse(name) {
            Ok(wanted) => wanted,
            Err(refusal) => return self.refusals.push(refusal),
        };
        if !wanted.papi.is_empty() && request.backend.allows(Step::Papi) {
            match self.open_papi(&wanted, request) {
                Ok(()) => return,
                Err(error) => self.refuse(name, Step::Papi, error.code, error.why),
            }
        }
        if let Some(event) = wanted.perf.filter(|_| request.backend.allows(Step::Perf)) {
            match probe(event, request.with_descendants) {
                Ok(mode) => return granted.push(Granted { channel: wanted.perf_channel(mode), event, mode }),
                Err((errno, why)) => self.refuse(name, Step::Perf, errno, why),
            }
        }
        if let Some(figure) = wanted.usage.filter(|_| request.backend.allows(Step::Usage)) {
            let coverage = if figure.is_of_thread { Coverage::Thread } else { Coverage::Process };
            let place = self.add_channel(wanted.channel(Step::Usage, figure.field, coverage));
            return self.usage.push((place, figure));
        }
        if self.refusals.last().is_none_or(|refusal| refusal.event != name) {
            let step = if request.backend == Backend::Usage { Step::Usage } else { wanted.highest_step() };
            self.refuse(name, step, None, "the steps that are allowed do not have this counter".into());
        }
    }

    /// Tries the names a counter has at PAPI, one after another; the last refusal stands for all.
    fn open_papi(&mut self, wanted: &Wanted, request: &CounterRequest) -> Result<(), PapiError> {
        let papi = papi::library(request.papi_library.as_deref())?;
        let mut refusal = PapiError { code: None, why: "PAPI has no name for it".into() };
        for native in &wanted.papi {
            match self.add_papi(papi, wanted, native, request) {
                Ok(()) => return Ok(()),
                Err(error) => refusal = PapiError { why: format!("`{native}`: {error}"), ..error },
            }
        }
        Err(refusal)
    }

    fn add_papi(
        &mut self,
        papi: &'static Papi,
        wanted: &Wanted,
        native: &str,
        request: &CounterRequest,
    ) -> Result<(), PapiError> {
        let component = papi.component_of(native)?;
        let is_hardware = papi.is_hardware(component);
        let mut added = Err(PapiError { code: None, why: String::new() });
        if let Some(open) = self.papi.iter_mut().rfind(|open| open.component == component) {
            added = open.set.add(native).map(|()| open.places.push(self.channels.len()));
        }
        let has_set = self.papi.iter().any(|open| open.component == component);
        if !has_set || added.as_ref().is_err_and(|error| is_hardware && error.is_conflict()) {
            let mut set = EventSet::new(papi, component, request.with_descendants)?;
            added = set.add(native);
            if added.is_ok() {
                let group = is_hardware.then(|| self.next_group());
                self.papi.push(PapiSet { set, component, group, places: vec![self.channels.len()] });
            }
        }
        added?;
        let group = self.papi.iter().rfind(|open| open.component == component).and_then(|open| open.group);
        let coverage = match (is_hardware, request.with_descendants) {
            (false, _) => Coverage::External,
            (true, false) => Coverage::ThreadUser,
            (true, true) => Coverage::DescendantsUser,
        };
        self.add_channel(Channel { group, ..wanted.channel(Step::Papi, native, coverage) });
        Ok(())
    }

    /// Starts sets that always count, and tries those that take turns, so that a refusal comes now.
    fn start_papi(&mut self) {
        let mut failed = Vec::new();
        for open in &mut self.papi {
            match open.set.start() {
                Ok(()) if open.group.is_some() => open.set.stop(),
                Ok(()) => {}
                Err(error) => failed.push((open.places.clone(), error)),
            }
        }
        for (places, error) in failed {
            for place in places {
                let name = self.channels[place].name.clone();
                self.refuse(&name, Step::Papi, error.code, format!("its set does not start: {error}"));
            }
        }
    }

    /// Forms groups: software events always count, hardware events take turns four by four.
    fn open_perf(&mut self, granted: Vec<Granted>) {
        let (software, hardware): (Vec<_>, Vec<_>) = granted.into_iter().partition(|one| one.event.is_software());
        for one in software {
            self.open_group(&[one], None);
        }
        for part in hardware.chunk_by(|a, b| a.mode == b.mode) {
            for group in part.chunks(GROUP_EVENTS_MAX) {
                self.open_hardware(group);
            }
        }
    }

    /// A group that the processor cannot count at once (a watchdog may hold a register) is halved until it can.
    fn open_hardware(&mut self, part: &[Granted]) {
        if part.len() == 1 || can_count(part) {
            let group = self.next_group();
            self.open_group(part, Some(group));
        } else {
            let (first, second) = part.split_at(part.len() / 2);
            self.open_hardware(first);
            self.open_hardware(second);
        }
    }

    fn open_group(&mut self, part: &[Granted], group: Option<usize>) {
        match open_members(part) {
            Ok(counters) => {
                let places = part.iter().map(|one| self.add_channel(Channel { group, ..one.channel.clone() }));
                let members: Vec<_> = counters.into_iter().zip(places.collect::<Vec<_>>()).collect();
                if group.is_none() {
                    members[0].0.switch(true);
                }
                self.perf.push(PerfGroup { members, group });
            }
            Err(errno) => {
                for one in part {
                    self.refuse(&one.channel.name, Step::Perf, Some(errno as i32), perf::explain(errno));
                }
            }
        }
    }

    fn add_channel(&mut self, channel: Channel) -> usize {
        self.channels.push(channel);
        self.channels.len() - 1
    }

    fn next_group(&mut self) -> usize {
        self.groups += 1;
        self.groups - 1
    }

    fn refuse(&mut self, event: &str, step: Step, errno: Option<i32>, why: String) {
        self.refusals.push(Refusal { event: event.into(), step, errno, why });
    }

    fn switch(&mut self, group: usize, is_on: bool) {
        for open in self.papi.iter_mut().filter(|open| open.group == Some(group)) {
            if is_on {
                // A set that started before starts again; were it not so, its values stay and differences are 0.
                let _ = open.set.start();
            } else {
                open.set.stop();
            }
        }
        for open in self.perf.iter().filter(|open| open.group == Some(group)) {
            open.members[0].0.switch(is_on);
        }
    }
}

impl CounterReader for CounterSession {
    fn channels(&self) -> &[Channel] {
        &self.channels
    }

    fn groups(&self) -> usize {
        self.groups.max(1)
    }

    fn select(&mut self, group: usize) {
        if self.selected == Some(group) {
            return;
        }
        if let Some(earlier) = self.selected.replace(group) {
            self.switch(earlier, false);
        }
        self.switch(group, true);
    }

    fn read(&mut self, into: &mut [Reading]) {
        let selected = self.selected;
        let counts = |group: Option<usize>| group.is_none() || group == selected;
        for open in self.papi.iter_mut().filter(|open| counts(open.group)) {
            for (&place, &value) in open.places.iter().zip(open.set.read().unwrap_or_default()) {
                into[place] = Reading { value: u64::try_from(value).unwrap_or(0), ..Reading::default() };
            }
        }
        for open in self.perf.iter_mut().filter(|open| counts(open.group)) {
            for (counter, place) in &mut open.members {
                if let Some(reading) = counter.read() {
                    into[*place] = reading;
                }
            }
        }
        if !self.usage.is_empty() {
            let usage = Usage::now();
            for (place, figure) in &self.usage {
                into[*place] = Reading { value: (figure.read)(&usage), ..Reading::default() };
            }
        }
    }

    fn refusals(&self) -> &[Refusal] {
        &self.refusals
    }
}

/// What one wanted event is called at each step.
struct Wanted {
    name: String,
    unit: &'static str,
    papi: Vec<String>,
    perf: Option<PerfEvent>,
    usage: Option<UsageFigure>,
}

impl Wanted {
    fn parse(name: &str) -> Result<Self, Refusal> {
        let refuse = |step, why: &str| Refusal { event: name.into(), step, errno: None, why: why.into() };
        let mut wanted = Self { name: name.into(), unit: "count", papi: Vec::new(), perf: None, usage: None };
        if let Some(native) = name.strip_prefix("papi:") {
            wanted.papi.push(native.into());
        } else if let Some(raw) = name.strip_prefix("perf:") {
            let config = raw.strip_prefix('r').and_then(|digits| u64::from_str_radix(digits, 16).ok());
            let config =
                config.ok_or_else(|| refuse(Step::Perf, "a raw event is written `perf:r` and hexadecimal digits"))?;
            wanted.perf = Some(PerfEvent::raw(config));
        } else if let Some(&CounterName { unit, papi, perf, usage, .. }) = names::find(name) {
            let papi = papi.iter().map(ToString::to_string).collect();
            wanted = Self { unit, papi, perf, usage, ..wanted };
        } else if gpu::is_of_gpu(name) {
            let step = gpu::find(name).map_or(Step::Cupti, |counter| counter.step);
            return Err(refuse(step, "it is a counter of GPUs, and this runs on a CPU"));
        } else {
            return Err(refuse(
                Step::Usage,
                "no counter has this name; see the list of counters, or use `papi:` or `perf:r`",
            ));
        }
        Ok(wanted)
    }

    fn highest_step(&self) -> Step {
        if !self.papi.is_empty() {
            Step::Papi
        } else if self.perf.is_some() {
            Step::Perf
        } else {
            Step::Usage
        }
    }

    fn channel(&self, step: Step, native: &str, coverage: Coverage) -> Channel {
        let (name, unit) = (self.name.clone(), self.unit.into());
        Channel { name, unit, step, native: native.into(), coverage, group: None }
    }

    fn perf_channel(&self, mode: Mode) -> Channel {
        let coverage = match (mode.with_descendants, mode.is_user_only) {
            (false, false) => Coverage::Thread,
            (false, true) => Coverage::ThreadUser,
            (true, false) => Coverage::Descendants,
            (true, true) => Coverage::DescendantsUser,
        };
        let native = self.perf.map(|event| format!("{}:{:#x}", event.kind, event.config)).unwrap_or_default();
        self.channel(Step::Perf, &native, coverage)
    }
}

fn probe(event: PerfEvent, with_descendants: bool) -> Result<Mode, (Option<i32>, String)> {
    let mode = perf::probe(event, with_descendants).map_err(|errno| (Some(errno as i32), perf::explain(errno)))?;
    if mode.is_user_only && event.is_of_kernel() {
        return Err((None, "it happens in the kernel, and only user mode may be counted: it would show 0".into()));
    }
    Ok(mode)
}

fn open_members(part: &[Granted]) -> Result<Vec<PerfCounter>, nix::errno::Errno> {
    let mut members: Vec<PerfCounter> = Vec::with_capacity(part.len());
    for one in part {
        members.push(PerfCounter::open(one.event, one.mode, members.first())?);
    }
    Ok(members)
}

/// Whether the processor really counts these together: opened, switched on for a moment, and found running.
fn can_count(part: &[Granted]) -> bool {
    let Ok(mut members) = open_members(part) else { return false };
    members[0].switch(true);
    std::hint::black_box((0..10_000_u64).fold(0, |sum, step| std::hint::black_box(sum ^ step)));
    members[0].switch(false);
    members.iter_mut().all(|counter| counter.read().is_some_and(|reading| reading.running_ns > 0))
}

/// What one stable name gives on this machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Availability {
    /// The stable name.
    pub name: &'static str,
    /// What is counted.
    pub unit: &'static str,
    /// What it means.
    pub description: &'static str,
    /// The step that gives it, if one does, and whose work it then counts.
    pub given: Option<(Step, Coverage)>,
    /// The steps that refuse it.
    pub refusals: Vec<Refusal>,
}

/// Tries every counter with a stable name, for the calling thread.
pub fn available(request: &CounterRequest) -> Vec<Availability> {
    let events = names::NAMES.iter().map(|counter| counter.name.to_string()).collect();
    let session = CounterSession::open(&CounterRequest { events, ..request.clone() });
    let of = |counter: &CounterName| Availability {
        name: counter.name,
        unit: counter.unit,
        description: counter.description,
        given: session.channels.iter().find(|open| open.name == counter.name).map(|open| (open.step, open.coverage)),
        refusals: session.refusals.iter().filter(|refusal| refusal.event == counter.name).cloned().collect(),
    };
    names::NAMES.iter().map(of).collect()
}
