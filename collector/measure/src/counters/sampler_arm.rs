//! Stub of the sampler for 32-bit ARM, where perf events cannot be opened: opening always fails.

use super::Step;
use super::values::Refusal;
use std::convert::Infallible;

#[derive(Debug)]
pub struct Sampler {
    pub event: &'static str,
    never: Infallible,
}

impl Sampler {
    pub fn open_sampler(_: &[usize], _: u64) -> Result<Sampler, Refusal> {
        let why = super::perf::explain_errno(nix::errno::Errno::ENOSYS);
        Err(Refusal { event: "cycles".to_owned(), step: Step::Perf, errno: None, why })
    }

    pub fn set_enabled(&self, _: bool) {
        match self.never {}
    }

    pub fn take_samples(&mut self, _: impl FnMut(u64)) -> u64 {
        match self.never {}
    }
}
