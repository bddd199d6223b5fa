//! Replacement for the sampler on 32-bit ARM, where no perf event can be opened: opening always fails.

use super::Step;
use super::values::Refusal;
use std::convert::Infallible;

/// A sampler; no value exists.
#[derive(Debug)]
pub struct Sampler {
    pub event: &'static str,
    never: Infallible,
}

impl Sampler {
    /// Always fails.
    pub fn open(_: &[usize], _: u64) -> Result<Sampler, Refusal> {
        let why = super::perf::explain(nix::errno::Errno::ENOSYS);
        Err(Refusal { event: "cycles".to_owned(), step: Step::Perf, errno: None, why })
    }

    pub fn switch(&self, _: bool) {
        match self.never {}
    }

    pub fn take(&mut self, _: impl FnMut(u64)) -> u64 {
        match self.never {}
    }
}
