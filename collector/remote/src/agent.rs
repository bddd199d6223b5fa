//! What an agent says of itself and of its machine, and what it is asked to measure: read and written on both sides.

use measure::Method;
use measure::counters::CounterRequest;
use measure::host::Facts;
use serde::{Deserialize, Serialize};

/// The function that answers with [`Told`], as JSON.
pub const HOST: &str = "opcollect.host";
/// The function that measures a kernel: library, name of the function, [`Order`] as JSON, and the kernel's own arguments; or
/// calls in a row: those of [`CALLS`], and the order. It answers with a `Measurement` as JSON.
pub const MEASURE: &str = "opcollect.measure";
/// The function for calls in a row, as a whole model makes them. Asked with nothing it answers with a function of no calls;
/// asked with such a function, a library, the name of a function of it and that one's arguments, it adds a call to the row.
pub const CALLS: &str = "opcollect.calls";

/// The function by which a client limits each later request of its session, in whole seconds. An agent ends a session whose
/// request takes longer, even where its client has disappeared without closing the connection.
pub const LIMIT: &str = "opcollect.limit";
/// The function by which an agent is asked to serve nobody after this session, and to end.
pub const LEAVE: &str = "opcollect.leave";

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
