//! In place of the kernel's perf events on 32-bit ARM, whose calls no crate of ours knows: every event is refused, and the
//! other steps have their turn.

use nix::errno::Errno;
use std::convert::Infallible;

use super::{Reading, names::PerfEvent};

/// How to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    /// Include threads started later by this one.
    pub with_descendants: bool,
    /// Count user mode only, which needs fewer rights.
    pub is_user_only: bool,
}

/// An open event, of which there is none.
#[derive(Debug)]
pub struct PerfCounter(Infallible);

impl PerfCounter {
    /// Refuses.
    pub fn open(_: PerfEvent, _: Mode, _: Option<&PerfCounter>) -> Result<Self, Errno> {
        Err(Errno::ENOSYS)
    }

    /// There is nothing to switch.
    pub fn switch(&self, _: bool) {
        match self.0 {}
    }

    /// There is nothing to read.
    pub fn read(&mut self) -> Option<Reading> {
        match self.0 {}
    }
}

/// Refuses.
pub fn probe(_: PerfEvent, _: bool) -> Result<Mode, Errno> {
    Err(Errno::ENOSYS)
}

/// Why.
pub fn explain(_: Errno) -> String {
    "perf events are not read on 32-bit ARM".to_owned()
}
