//! What an agent says of itself and of its machine, and what it is asked to measure: read and written on both sides.

use measure::Method;
use measure::counters::CounterRequest;
use measure::host::Facts;
use serde::{Deserialize, Serialize};

/// The function that answers with [`Told`], as JSON.
pub const HOST: &str = "opcollect.host";
/// The function that measures a kernel: library, name of the function, [`Order`] as JSON, and the kernel's own arguments. It
/// answers with a `Measurement` as JSON.
pub const MEASURE: &str = "opcollect.measure";

/// What an agent says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Its version.
    pub agent_version: String,
    /// The machine it runs on.
    pub facts: Facts,
    /// Signs of an emulator; none on hardware.
    pub emulated: Option<String>,
}

/// How to measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// One thread on each of the first so many CPUs that the agent may use.
    pub threads: usize,
    /// How long, and how often.
    pub method: Method,
    /// What to count.
    pub counters: CounterRequest,
}
