//! Messages between a client and an agent: the agent's description of its host, and measurement requests.

use measure::Method;
use measure::counters::CounterRequest;
use measure::host::Facts;
use serde::{Deserialize, Serialize};

/// Name of the function that returns [`AgentDescription`] as JSON.
pub const HOST: &str = "opcollect.host";
/// Measures a kernel and returns a `Measurement` as JSON. Arguments: library, function name, [`Order`] as JSON and
/// kernel arguments; or a call sequence built with [`CALLS`], and the [`Order`].
pub const MEASURE: &str = "opcollect.measure";
/// Returns an empty call sequence; given a sequence, a library, a function name and arguments, appends a call.
pub const CALLS: &str = "opcollect.calls";

/// Limits each later request to whole seconds; the agent enforces this limit even if the client has disappeared.
pub const LIMIT: &str = "opcollect.limit";
/// Makes an agent exit after the current session.
pub const LEAVE: &str = "opcollect.leave";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentDescription {
    pub agent_version: String,
    pub facts: Facts,
    pub emulated: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Number of threads, pinned to the first CPUs that the agent may use.
    pub threads: usize,
    pub method: Method,
    pub counters: CounterRequest,
}
