//! Distinguishes records of whole networks, of operators in networks, and of isolated operators.

use super::table::Record;

/// `op_kind` of a whole network.
pub const NETWORK: &str = "network";

impl Record {
    /// Returns whether the record describes a whole network, with the total work, time and memory of its operators.
    pub fn is_network(&self) -> bool {
        self.op_kind == NETWORK
    }

    /// Returns whether the record describes an isolated operator: not in a network and not in a co-run.
    pub fn is_alone(&self) -> bool {
        !self.is_network() && self.network_hash.is_none() && self.co_run.is_none()
    }
}
