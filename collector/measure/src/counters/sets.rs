//! Sets of PAPI events. PAPI accepts events into sets that it then cannot start, for lack of registers or because the
//! component already counts for this thread. Such sets would report zeros, so only started sets are kept.

use std::ffi::c_int;

use super::papi::{self, EventSet, Papi, PapiError};
use super::request::{CounterRequest, RequestedCounter};

pub(super) struct Planned {
    pub set: EventSet,
    pub members: Vec<Member>,
    component: c_int,
    /// Whether the set has hardware events, so that it must alternate with other such sets.
    pub is_hardware: bool,
}

pub(super) struct Member {
    pub wanted: RequestedCounter,
    pub native: String,
}

pub(super) type Refused = Vec<(RequestedCounter, PapiError)>;

/// Returns the event sets that could be started. Sets without hardware events remain running.
pub(super) fn start_sets(all: Vec<RequestedCounter>, request: &CounterRequest, refused: &mut Refused) -> Vec<Planned> {
    let mut sets: Vec<Planned> = Vec::new();
    for wanted in all {
        match add_first(&wanted, request, &mut sets) {
            Ok((place, native)) => sets[place].members.push(Member { wanted, native }),
            Err(error) => refused.push((wanted, error)),
        }
    }
    sets.into_iter().flat_map(|set| set.start_set(request.with_descendants, refused)).collect()
}

/// Tries the PAPI names of a counter in order; returns the accepting set's index and the name, or the last error.
fn add_first(
    wanted: &RequestedCounter,
    request: &CounterRequest,
    sets: &mut Vec<Planned>,
) -> Result<(usize, String), PapiError> {
    let papi = papi::open_library()?;
    let mut refusal = PapiError { code: None, why: "PAPI has no event for this counter".into() };
    for native in &wanted.papi {
        match add_event(papi, native, request.with_descendants, sets) {
            Ok(place) => return Ok((place, native.clone())),
            Err(error) => refusal = PapiError { why: format!("`{native}`: {error}"), ..error },
        }
    }
    Err(refusal)
}

fn add_event(
    papi: &'static Papi,
    native: &str,
    with_descendants: bool,
    sets: &mut Vec<Planned>,
) -> Result<usize, PapiError> {
    let component = papi.component_of(native)?;
    let is_hardware = papi.is_hardware(component);
    if let Some(place) = sets.iter().rposition(|open| open.component == component) {
        match sets[place].set.add_event(native) {
            Err(error) if is_hardware && error.is_conflict() => {}
            added => return added.map(|()| place),
        }
    }
    let mut set = EventSet::new(papi, component, with_descendants)?;
    set.add_event(native)?;
    sets.push(Planned { set, members: Vec::new(), component, is_hardware });
    Ok(sets.len() - 1)
}

impl Planned {
    fn create_set(
        papi: &'static Papi,
        component: c_int,
        with_descendants: bool,
        members: &[Member],
    ) -> Result<Self, PapiError> {
        let mut set = EventSet::new(papi, component, with_descendants)?;
        members.iter().try_for_each(|member| set.add_event(&member.native))?;
        Ok(Self { set, members: Vec::new(), component, is_hardware: papi.is_hardware(component) })
    }

    fn start_set(mut self, with_descendants: bool, refused: &mut Refused) -> Vec<Self> {
        match self.set.start_counting() {
            Ok(()) => {
                if self.is_hardware {
                    self.set.stop_counting();
                }
                vec![self]
            }
            Err(error) => self.split_set(&error, with_descendants, refused),
        }
    }

    fn split_set(self, error: &PapiError, with_descendants: bool, refused: &mut Refused) -> Vec<Self> {
        let (papi, component, is_hardware) = (self.set.papi_library(), self.component, self.is_hardware);
        drop(self.set);
        let of = |members: &[Member]| Self::create_set(papi, component, with_descendants, members);
        let (parts, unable) = match is_hardware {
            true => halve_members(self.members),
            false => split_startable(self.members, |member| {
                of(std::slice::from_ref(member)).and_then(|mut set| set.set.start_counting())
            }),
        };
        refused.extend(unable.into_iter().map(|member| (member.wanted, does_not_start(error))));
        let mut started = Vec::new();
        for part in parts {
            match of(&part) {
                Ok(set) => started.extend(Self { members: part, ..set }.start_set(with_descendants, refused)),
                Err(error) => refused.extend(part.into_iter().map(|member| (member.wanted, error.clone()))),
            }
        }
        started
    }
}

type SetParts = (Vec<Vec<Member>>, Vec<Member>);

fn halve_members(mut members: Vec<Member>) -> SetParts {
    if members.len() < 2 {
        return (Vec::new(), members);
    }
    let rest = members.split_off(members.len() / 2);
    (vec![members, rest], Vec::new())
}

/// Separates events that do not start even alone. Their components run only one set, so sets cannot alternate.
fn split_startable(members: Vec<Member>, start: impl Fn(&Member) -> Result<(), PapiError>) -> SetParts {
    let (able, unable): (Vec<_>, Vec<_>) = members.into_iter().partition(|member| start(member).is_ok());
    match able.is_empty() || unable.is_empty() {
        true => (Vec::new(), able.into_iter().chain(unable).collect()),
        false => (vec![able], unable),
    }
}

fn does_not_start(error: &PapiError) -> PapiError {
    PapiError { why: format!("cannot start its event set: {error}"), ..error.clone() }
}
