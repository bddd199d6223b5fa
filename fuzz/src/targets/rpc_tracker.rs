//! Reads arbitrary bytes as messages of a tracker.

use remote::tracker::{lent, message, summary};

pub fn run(bytes: &[u8]) {
    let Ok(answer) = message(bytes) else { return };
    if let Some(device) = lent(&answer) {
        assert!(device.address.port > 0);
    }
    let _ = summary(&answer);
}
