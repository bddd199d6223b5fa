//! Reads arbitrary bytes as session packets and client keys; accepted packets must survive a round trip.

use remote::handshake::Key;
use remote::packet::Packet;

pub fn run(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Key::from_text(text);
    }
    let Ok(packet) = Packet::parse_body(bytes) else { return };
    let written = packet.to_bytes();
    // Bytes are compared, because NaN differs from itself.
    let again = Packet::parse_body(&written[8..]).expect("a written packet is readable");
    assert_eq!(again.to_bytes(), written);
}
