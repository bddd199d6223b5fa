//! Messages between a client and an agent: the agent's description of its host, and measurement requests.

use measure::Method;
use measure::counters::CounterRequest;
use measure::host::Facts;
use serde::{Deserialize, Serialize};

/// Function that returns [`AgentDescription`] as JSON.
pub const HOST: &str = "opcollect.host";
/// Function that measures a kernel and returns a `Measurement` as JSON. Its arguments are the library, the function
/// name, an [`Order`] as JSON and the kernel's own arguments; or a call sequence built with [`CALLS`], and the order.
pub const MEASURE: &str = "opcollect.measure";
/// Function that builds the sequence of calls of a whole model. Without arguments it returns an empty sequence. With a
/// sequence, a library, a function name and that function's arguments it appends one call.
pub const CALLS: &str = "opcollect.calls";

/// Function that limits each later request of a session, in whole seconds. An agent ends a session whose request takes
/// longer, even if the client disappeared without closing the connection.
pub const LIMIT: &str = "opcollect.limit";
/// Function that makes an agent exit after the current session.
pub const LEAVE: &str = "opcollect.leave";

/// An agent's description of itself and its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentDescription {
    pub agent_version: String,
    /// Machine that the agent runs on.
    pub facts: Facts,
    /// Evidence of an emulator; `None` on hardware.
    pub emulated: Option<String>,
}

/// A measurement request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Number of threads, pinned to the first CPUs that the agent may use.
    pub threads: usize,
    /// Duration and repetitions.
    pub method: Method,
    pub counters: CounterRequest,
}
