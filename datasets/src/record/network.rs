//! Records of whole networks, which stand beside those of operators and are none of them.

use super::table::Record;

/// The `op_kind` of a whole network.
pub const NETWORK: &str = "network";

impl Record {
    /// Whether it tells of a whole network. Its work, time and memory are those of all operators together.
    pub fn is_network(&self) -> bool {
        self.op_kind == NETWORK
    }
}
