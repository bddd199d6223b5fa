//! Feeds arbitrary bytes to the readers of a tracker's messages; they must be refused or understood.
//!
//! Run with `fuzz/run rpc_tracker`.

use remote::tracker::{lent, message, summary};

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let Ok(answer) = message(bytes) else { return };
    if let Some(device) = lent(&answer) {
        assert!(device.address.port > 0);
    }
    let _ = summary(&answer);
}
