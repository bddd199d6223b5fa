//! Records of whole networks, and of operators inside of them, which stand beside those of operators that ran alone.

use super::table::Record;

/// The `op_kind` of a whole network.
pub const NETWORK: &str = "network";

impl Record {
    /// Whether it tells of a whole network. Its work, time and memory are those of all operators together.
    pub fn is_network(&self) -> bool {
        self.op_kind == NETWORK
    }

    /// Whether it tells of one operator by itself: neither a network, nor timed inside of one or beside others.
    pub fn is_alone(&self) -> bool {
        !self.is_network() && self.network_hash.is_none() && self.co_run.is_none()
    }
}
