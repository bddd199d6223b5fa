//! Opens counters for the calling thread, each from the first source that supports it, and reads them.

use std::{collections::BTreeSet, marker::PhantomData, path::Path};

use serde::Serialize;

use super::{
    Backend, Channel, CounterReader, Coverage, Reading, Refusal, Step, Usage,
    names::{self, CounterName, PerfEvent, UsageFigure},
    papi::EventSet,
    perf::{self, Mode, PerfCounter},
    powercap::{self, Powercap},
    request::{CounterRequest, RequestedCounter},
    sets::{self, Member, Planned, Refused},
    usage::UsageParts,
};

/// Maximum number of events in a group: the typical number of general counter registers.
const GROUP_EVENTS_MAX: usize = 4;

/// Open counters of one thread. Not `Send`, because events count the thread that opened them.
pub struct CounterSession {
    channels: Vec<Channel>,
    refusals: Vec<Refusal>,
    papi: Vec<PapiSet>,
    perf: Vec<PerfGroup>,
    usage: Vec<(usize, UsageFigure)>,
    powercap: Vec<(usize, Powercap)>,
    groups: usize,
    selected: Option<usize>,
    not_send: PhantomData<*const ()>,
}

struct PapiSet {
    set: EventSet,
    group: Option<usize>,
    places: Vec<usize>,
}

/// Perf events that are scheduled together, leader first.
struct PerfGroup {
    members: Vec<(PerfCounter, usize)>,
    group: Option<usize>,
}

struct Granted {
    channel: Channel,
    event: PerfEvent,
    mode: Mode,
    below: Option<(Channel, UsageFigure)>,
}

impl CounterSession {
    /// Opens counters for the calling thread. [`CounterReader::refusals`] lists what each source refused, including
    /// refusals of counters that a later source provides.
    pub fn open_counters(request: &CounterRequest) -> Self {
        let mut session = Self {
            channels: Vec::new(),
            refusals: Vec::new(),
            papi: Vec::new(),
            perf: Vec::new(),
            usage: Vec::new(),
            powercap: Vec::new(),
            groups: 0,
            selected: None,
            not_send: PhantomData,
        };
        if request.backend != Backend::None {
            let all = session.parse_requests(&request.events);
            let below = session.open_papi(all, request);
            session.open_below(below, request);
        }
        session.select_group(0);
        session
    }

    fn parse_requests(&mut self, names: &[String]) -> Vec<RequestedCounter> {
        let mut seen = BTreeSet::new();
        let mut all = Vec::new();
        for name in names.iter().filter(|name| seen.insert(name.as_str())) {
            match RequestedCounter::parse_name(name) {
                Ok(wanted) => all.push(wanted),
                Err(refusal) => self.refusals.push(refusal),
            }
        }
        all
    }

    fn open_papi(&mut self, all: Vec<RequestedCounter>, request: &CounterRequest) -> Vec<RequestedCounter> {
        if !request.backend.allows_step(Step::Papi) {
            return all;
        }
        let (asked, mut below): (Vec<_>, Vec<_>) = all.into_iter().partition(|wanted| !wanted.papi.is_empty());
        let mut refused = Refused::new();
        for planned in sets::start_sets(asked, request, &mut refused) {
            self.add_papi_set(planned, request.with_descendants);
        }
        for (wanted, error) in refused {
            self.add_refusal(&wanted.name, Step::Papi, error.code, error.why);
            below.push(wanted);
        }
        // Registers are allocated in the order of the request.
        below.sort_by_key(|wanted| request.events.iter().position(|name| *name == wanted.name));
        below
    }

    fn add_papi_set(&mut self, planned: Planned, with_descendants: bool) {
        let coverage = match (planned.is_hardware, with_descendants) {
            (false, _) => Coverage::External,
            (true, false) => Coverage::ThreadUser,
            (true, true) => Coverage::DescendantsUser,
        };
        let group = planned.is_hardware.then(|| self.next_group());
        let channel =
            |member: &Member| Channel { group, ..member.wanted.make_channel(Step::Papi, &member.native, coverage) };
        let places = planned.members.iter().map(|member| self.add_channel(channel(member))).collect();
        self.papi.push(PapiSet { set: planned.set, group, places });
    }

    fn open_below(&mut self, all: Vec<RequestedCounter>, request: &CounterRequest) {
        let mut granted = Vec::new();
        for wanted in &all {
            self.open_event(wanted, request, &mut granted);
        }
        self.open_perf(granted);
    }

    fn open_event(&mut self, wanted: &RequestedCounter, request: &CounterRequest, granted: &mut Vec<Granted>) {
        let name = wanted.name.as_str();
        if let Some(zone) = wanted.powercap.filter(|_| request.backend.allows_step(Step::Powercap)) {
            return match Powercap::open_zones(Path::new(powercap::ROOT), zone) {
                Ok(open) => {
                    let place = self.add_channel(wanted.make_channel(Step::Powercap, zone, Coverage::Machine));
                    self.powercap.push((place, open));
                }
                Err((errno, why)) => self.add_refusal(name, Step::Powercap, errno, why),
            };
        }
        let usage = wanted.usage.filter(|_| request.backend.allows_step(Step::Usage));
        let below = usage.map(|figure| (wanted.usage_channel(figure), figure));
        if let Some(event) = wanted.perf.filter(|_| request.backend.allows_step(Step::Perf)) {
            match probe_event(event, request.with_descendants) {
                Ok(mode) => return granted.push(Granted { channel: wanted.perf_channel(mode), event, mode, below }),
                Err((errno, why)) => self.add_refusal(name, Step::Perf, errno, why),
            }
        }
        if below.is_some() {
            return self.open_usage(below);
        }
        if self.refusals.iter().all(|refusal| refusal.event != name) {
            let step = if request.backend == Backend::Usage { Step::Usage } else { wanted.highest_step() };
            self.add_refusal(name, step, None, "no permitted source provides this counter".into());
        }
    }

    fn open_usage(&mut self, last: Option<(Channel, UsageFigure)>) {
        if let Some((channel, figure)) = last {
            let place = self.add_channel(channel);
            self.usage.push((place, figure));
        }
    }

    /// Opens perf events in groups. Software events always count; hardware events alternate by groups of limited size.
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

    /// Opens hardware events as one group, which is halved until it fits, because a watchdog may occupy a register.
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
                    members[0].0.set_enabled(true);
                }
                self.perf.push(PerfGroup { members, group });
            }
            Err(errno) => {
                for one in part {
                    self.add_refusal(&one.channel.name, Step::Perf, Some(errno as i32), perf::explain_errno(errno));
                    self.open_usage(one.below.clone());
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

    fn add_refusal(&mut self, event: &str, step: Step, errno: Option<i32>, why: String) {
        self.refusals.push(Refusal { event: event.into(), step, errno, why });
    }

    fn switch_group(&mut self, group: usize, is_on: bool) {
        for open in self.papi.iter_mut().filter(|open| open.group == Some(group)) {
            if is_on {
                // The set has started before. If starting fails now, reading returns nothing.
                let _ = open.set.start_counting();
            } else {
                open.set.stop_counting();
            }
        }
        for open in self.perf.iter().filter(|open| open.group == Some(group)) {
            open.members[0].0.set_enabled(is_on);
        }
    }
}

impl CounterReader for CounterSession {
    fn channels(&self) -> &[Channel] {
        &self.channels
    }

    fn group_count(&self) -> usize {
        self.groups.max(1)
    }

    fn select_group(&mut self, group: usize) {
        if self.selected == Some(group) {
            return;
        }
        if let Some(earlier) = self.selected.replace(group) {
            self.switch_group(earlier, false);
        }
        self.switch_group(group, true);
    }

    fn read_channels(&mut self, into: &mut [Option<Reading>]) {
        into.fill(None);
        let selected = self.selected;
        let counts = |group: Option<usize>| group.is_none() || group == selected;
        for open in self.papi.iter_mut().filter(|open| counts(open.group)) {
            for (&place, &value) in open.places.iter().zip(open.set.read_counts().unwrap_or_default()) {
                into[place] = u64::try_from(value).ok().map(Reading::always_counting);
            }
        }
        for open in self.perf.iter_mut().filter(|open| counts(open.group)) {
            for (counter, place) in &mut open.members {
                into[*place] = counter.read_count();
            }
        }
        for (place, open) in &mut self.powercap {
            into[*place] = open.read_microjoules().map(Reading::always_counting);
        }
        if !self.usage.is_empty() {
            let parts = self.usage.iter().fold(UsageParts::default(), |all, (_, figure)| all.union_with(figure.parts));
            let usage = Usage::read_parts(parts);
            for (place, figure) in &self.usage {
                into[*place] = Some(Reading::always_counting((figure.read)(&usage)));
            }
        }
    }

    fn refusals(&self) -> &[Refusal] {
        &self.refusals
    }
}

fn probe_event(event: PerfEvent, with_descendants: bool) -> Result<Mode, (Option<i32>, String)> {
    let mode =
        perf::probe_event(event, with_descendants).map_err(|errno| (Some(errno as i32), perf::explain_errno(errno)))?;
    if mode.is_user_only && event.occurs_in_kernel() {
        return Err((
            None,
            "the event occurs in kernel mode, but only user mode may be counted, so the count would be 0".into(),
        ));
    }
    Ok(mode)
}

fn open_members(part: &[Granted]) -> Result<Vec<PerfCounter>, nix::errno::Errno> {
    let mut members: Vec<PerfCounter> = Vec::with_capacity(part.len());
    for one in part {
        members.push(PerfCounter::open_event(one.event, one.mode, members.first())?);
    }
    Ok(members)
}

fn can_count(part: &[Granted]) -> bool {
    let Ok(mut members) = open_members(part) else { return false };
    members[0].set_enabled(true);
    std::hint::black_box((0..10_000_u64).fold(0, |sum, step| std::hint::black_box(sum ^ step)));
    members[0].set_enabled(false);
    members.iter_mut().all(|counter| counter.read_count().is_some_and(|reading| reading.running_ns > 0))
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Availability {
    pub name: &'static str,
    pub unit: &'static str,
    pub description: &'static str,
    /// Source and coverage of the counter; None if no source has it.
    pub given: Option<(Step, Coverage)>,
    pub refusals: Vec<Refusal>,
}

pub fn list_available(request: &CounterRequest) -> Vec<Availability> {
    let events = names::NAMES.iter().map(|counter| counter.name.to_string()).collect();
    let session = CounterSession::open_counters(&CounterRequest { events, ..request.clone() });
    let of = |counter: &CounterName| Availability {
        name: counter.name,
        unit: counter.unit,
        description: counter.description,
        given: session.channels.iter().find(|open| open.name == counter.name).map(|open| (open.step, open.coverage)),
        refusals: session.refusals.iter().filter(|refusal| refusal.event == counter.name).cloned().collect(),
    };
    names::NAMES.iter().map(of).collect()
}
