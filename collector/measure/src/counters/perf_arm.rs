//! Replacement for perf events on 32-bit ARM, which the `perf` bindings do not support: every event is refused, so that
//! the other sources are used.

use nix::errno::Errno;
use std::convert::Infallible;

use super::{Reading, names::PerfEvent};

/// Options of opening an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    /// Include threads that this thread starts later.
    pub with_descendants: bool,
    /// Count user mode only, which needs fewer rights.
    pub is_user_only: bool,
}

/// An open event; no value exists.
#[derive(Debug)]
pub struct PerfCounter(Infallible);

impl PerfCounter {
    /// Always fails.
    pub fn open(_: PerfEvent, _: Mode, _: Option<&PerfCounter>) -> Result<Self, Errno> {
        Err(Errno::ENOSYS)
    }

    /// Cannot be called.
    pub fn switch(&self, _: bool) {
        match self.0 {}
    }

    /// Cannot be called.
    pub fn read(&mut self) -> Option<Reading> {
        match self.0 {}
    }
}

/// Always fails.
pub fn probe(_: PerfEvent, _: bool) -> Result<Mode, Errno> {
    Err(Errno::ENOSYS)
}

/// Explains the refusal.
pub fn explain(_: Errno) -> String {
    "perf events are not read on 32-bit ARM".to_owned()
}
