//! Feeds arbitrary bytes to the readers of session packets and of clients' keys; both must be refused or understood, and what is
//! understood is written as it was read.
//!
//! Run with `fuzz/run rpc_session`.

use remote::handshake::Key;
use remote::packet::Packet;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Key::read(text);
    }
    let Ok(packet) = Packet::read(bytes) else { return };
    let written = packet.to_bytes();
    // Numbers that are none are equal to nothing, so bytes are compared.
    let again = Packet::read(&written[8..]).expect("what was written is read");
    assert_eq!(again.to_bytes(), written);
}
