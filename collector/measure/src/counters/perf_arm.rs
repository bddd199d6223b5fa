//! Stub of perf events for 32-bit ARM, which the `perf` bindings do not support: every event is refused.

use nix::errno::Errno;
use std::convert::Infallible;

use super::{Reading, names::PerfEvent};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    pub with_descendants: bool,
    pub is_user_only: bool,
}

#[derive(Debug)]
pub struct PerfCounter(Infallible);

impl PerfCounter {
    pub fn open_event(_: PerfEvent, _: Mode, _: Option<&PerfCounter>) -> Result<Self, Errno> {
        Err(Errno::ENOSYS)
    }

    pub fn set_enabled(&self, _: bool) {
        match self.0 {}
    }

    pub fn read_count(&mut self) -> Option<Reading> {
        match self.0 {}
    }
}

pub fn probe_event(_: PerfEvent, _: bool) -> Result<Mode, Errno> {
    Err(Errno::ENOSYS)
}

pub fn explain_errno(_: Errno) -> String {
    "perf events are not supported on 32-bit ARM".to_owned()
}
