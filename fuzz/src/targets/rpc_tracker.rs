//! Reads arbitrary bytes as messages of a tracker.

use remote::tracker::{parse_assignment, parse_message, parse_summary};

pub fn run(bytes: &[u8]) {
    let Ok(answer) = parse_message(bytes) else { return };
    if let Some(device) = parse_assignment(&answer) {
        assert!(device.address.port > 0);
    }
    let _ = parse_summary(&answer);
}
