//! Counters of the processor and the system, read around timed runs. Sources are tried in order: PAPI (if installed),
//! perf events, and the kernel's accounting ([`Usage`]); energy comes from the kernel's power caps. A counter without a
//! source becomes a [`Refusal`] with the reason, instead of a zero; a refusal never ends a measurement.
//!
//! Counter sets belong to the thread that opened them, and [`Coverage`] states what a value covers. Perf events with
//! descendants include later threads, so open the session before TVM creates its pool. Hardware counters beyond the
//! registers alternate in groups ([`CounterReader::select_group`]); the kernel never multiplexes them silently.

pub mod gpu;
pub mod names;
#[allow(unsafe_code)] // PAPI's C interface, opened at run time.
pub mod papi;
#[allow(unsafe_code)] // Opening perf events and their ioctls.
#[cfg_attr(target_arch = "arm", path = "perf_arm.rs")]
mod perf;
mod powercap;
mod request;
#[allow(unsafe_code)] // Reading what the kernel writes to a ring.
#[cfg_attr(target_arch = "arm", path = "sampler_arm.rs")]
mod sampler;
mod session;
mod sets;
mod sys;
mod usage;
mod values;

pub use request::CounterRequest;
pub use sampler::Sampler;
pub use session::{Availability, CounterSession, list_available};
pub use usage::Usage;
pub use values::{
    Backend, Channel, CountedEvents, CounterReader, CounterValue, Coverage, NoCounters, Reading, Refusal, Step,
};

#[cfg(test)]
mod tests;
