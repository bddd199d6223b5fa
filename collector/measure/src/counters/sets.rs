//! Sets of PAPI's events: planned, tried, and taken apart until what is left really counts.
//!
//! PAPI takes events into a set that it then does not start: more than there are registers, or a component that already
//! counts for this thread. What has not started counts nothing and would show zeros, so only what has started is kept.

use std::ffi::c_int;

use super::papi::{self, EventSet, Papi, PapiError};
use super::request::{CounterRequest, Wanted};

/// Events that PAPI has taken into one set.
pub(super) struct Planned {
    pub set: EventSet,
    pub members: Vec<Member>,
    component: c_int,
    /// Whether the events need registers of the processor, for which sets take turns.
    pub is_hardware: bool,
}

/// One event of a set.
pub(super) struct Member {
    pub wanted: Wanted,
    /// Its name at PAPI.
    pub native: String,
}

/// What PAPI does not give, and why.
pub(super) type Refused = Vec<(Wanted, PapiError)>;

/// Sets that have started once, of everything that PAPI counts; those that need no turns go on counting.
pub(super) fn started(all: Vec<Wanted>, request: &CounterRequest, refused: &mut Refused) -> Vec<Planned> {
    let mut sets: Vec<Planned> = Vec::new();
    for wanted in all {
        match add_first(&wanted, request, &mut sets) {
            Ok((place, native)) => sets[place].members.push(Member { wanted, native }),
            Err(error) => refused.push((wanted, error)),
        }
    }
    sets.into_iter().flat_map(|set| set.start(request.with_descendants, refused)).collect()
}

/// Tries the names a counter has at PAPI, one after another; the last refusal stands for all. Gives the set that took it.
fn add_first(wanted: &Wanted, request: &CounterRequest, sets: &mut Vec<Planned>) -> Result<(usize, String), PapiError> {
    let papi = papi::library()?;
    let mut refusal = PapiError { code: None, why: "PAPI has no name for it".into() };
    for native in &wanted.papi {
        match add(papi, native, request.with_descendants, sets) {
            Ok(place) => return Ok((place, native.clone())),
            Err(error) => refusal = PapiError { why: format!("`{native}`: {error}"), ..error },
        }
    }
    Err(refusal)
}

/// Adds an event to the last set of its component, or to a new one where that is full.
fn add(papi: &'static Papi, native: &str, with_descendants: bool, sets: &mut Vec<Planned>) -> Result<usize, PapiError> {
    let component = papi.component_of(native)?;
    let is_hardware = papi.is_hardware(component);
    if let Some(place) = sets.iter().rposition(|open| open.component == component) {
        match sets[place].set.add(native) {
            Err(error) if is_hardware && error.is_conflict() => {}
            added => return added.map(|()| place),
        }
    }
    let mut set = EventSet::new(papi, component, with_descendants)?;
    set.add(native)?;
    sets.push(Planned { set, members: Vec::new(), component, is_hardware });
    Ok(sets.len() - 1)
}

impl Planned {
    fn of(
        papi: &'static Papi,
        component: c_int,
        with_descendants: bool,
        members: &[Member],
    ) -> Result<Self, PapiError> {
        let mut set = EventSet::new(papi, component, with_descendants)?;
        members.iter().try_for_each(|member| set.add(&member.native))?;
        Ok(Self { set, members: Vec::new(), component, is_hardware: papi.is_hardware(component) })
    }

    /// The set once it has started, or what is left of it.
    fn start(mut self, with_descendants: bool, refused: &mut Refused) -> Vec<Self> {
        match self.set.start() {
            Ok(()) => {
                if self.is_hardware {
                    self.set.stop();
                }
                vec![self]
            }
            Err(error) => self.take_apart(&error, with_descendants, refused),
        }
    }

    /// Tries again with less, until what is left starts.
    fn take_apart(self, error: &PapiError, with_descendants: bool, refused: &mut Refused) -> Vec<Self> {
        let (papi, component, is_hardware) = (self.set.papi(), self.component, self.is_hardware);
        drop(self.set);
        let of = |members: &[Member]| Self::of(papi, component, with_descendants, members);
        let (parts, unable) = match is_hardware {
            true => halves(self.members),
            false => able(self.members, |member| of(std::slice::from_ref(member)).and_then(|mut set| set.set.start())),
        };
        refused.extend(unable.into_iter().map(|member| (member.wanted, does_not_start(error))));
        let mut started = Vec::new();
        for part in parts {
            match of(&part) {
                Ok(set) => started.extend(Self { members: part, ..set }.start(with_descendants, refused)),
                Err(error) => refused.extend(part.into_iter().map(|member| (member.wanted, error.clone()))),
            }
        }
        started
    }
}

/// Parts to be tried, and events that are given up.
type Parts = (Vec<Vec<Member>>, Vec<Member>);

/// Sets of the processor's events take turns, so each half may be one.
fn halves(mut members: Vec<Member>) -> Parts {
    if members.len() < 2 {
        return (Vec::new(), members);
    }
    let rest = members.split_off(members.len() / 2);
    (vec![members, rest], Vec::new())
}

/// Of other components one set counts at a time: what does not start alone is left out of it.
fn able(members: Vec<Member>, start: impl Fn(&Member) -> Result<(), PapiError>) -> Parts {
    let (able, unable): (Vec<_>, Vec<_>) = members.into_iter().partition(|member| start(member).is_ok());
    match able.is_empty() || unable.is_empty() {
        true => (Vec::new(), able.into_iter().chain(unable).collect()),
        false => (vec![able], unable),
    }
}

fn does_not_start(error: &PapiError) -> PapiError {
    PapiError { why: format!("its set does not start: {error}"), ..error.clone() }
}
