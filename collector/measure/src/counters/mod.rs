//! Counters of the processor and the system, read around timed runs.
//!
//! Three steps, tried in this order for every counter: PAPI (if its library is installed), the kernel's perf events,
//! and what the kernel keeps for every thread anyway ([`Usage`]); energy has a source of its own, the kernel's power caps. No step needs the next; what none can give is left
//! out and recorded as a [`Refusal`] with the reason: absent is not zero, and nothing here ends a measurement.
//!
//! Sets belong to the thread that opened them. What a value covers is part of it ([`Coverage`]): perf events opened
//! with descendants include threads started later by this thread, such as those of TVM's pool when the session is
//! opened before the pool is made; the system's figures cover the whole process.
//!
//! When there are more hardware counters than registers, they form groups that are counted in turns (see
//! [`CounterReader::select`]), never silently shared. Unsafe code is fenced in [`papi`] and `perf`.

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
pub use session::{Availability, CounterSession, available};
pub use usage::Usage;
pub use values::{
    Backend, Channel, Counted, CounterReader, CounterValue, Coverage, NoCounters, Reading, Refusal, Step,
};

#[cfg(test)]
mod tests;
