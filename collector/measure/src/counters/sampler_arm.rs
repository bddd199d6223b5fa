//! In place of sampling on 32-bit ARM, where no perf event can be opened: it is refused, with the reason.

use super::Step;
use super::values::Refusal;
use std::convert::Infallible;

/// Somebody who looks at instructions, of whom there is none.
#[derive(Debug)]
pub struct Sampler {
    /// What it samples by.
    pub event: &'static str,
    never: Infallible,
}

impl Sampler {
    /// Refuses.
    pub fn open(_: &[usize], _: u64) -> Result<Sampler, Refusal> {
        let why = super::perf::explain(nix::errno::Errno::ENOSYS);
        Err(Refusal { event: "cycles".to_owned(), step: Step::Perf, errno: None, why })
    }

    /// There is nothing to switch.
    pub fn switch(&self, _: bool) {
        match self.never {}
    }

    /// There is nothing to take.
    pub fn take(&mut self, _: impl FnMut(u64)) -> u64 {
        match self.never {}
    }
}
