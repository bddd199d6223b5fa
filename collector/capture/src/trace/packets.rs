//! Iteration over the packets of a file: decoding it at once would need several times its size if most are empty.

use super::message::Packet;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{DecodeError, Message};

const PACKET: u32 = 1;

pub fn visit_packets<E: From<DecodeError>>(
    mut bytes: &[u8],
    take: &mut impl FnMut(Packet) -> Result<(), E>,
) -> Result<(), E> {
    while !bytes.is_empty() {
        let (field, wire) = decode_key(&mut bytes)?;
        if (field, wire) != (PACKET, WireType::LengthDelimited) {
            skip_field(wire, field, &mut bytes, DecodeContext::default())?;
            continue;
        }
        let length = decode_varint(&mut bytes)?;
        let packet = usize::try_from(length).ok().and_then(|length| bytes.split_at_checked(length));
        let Some((packet, rest)) = packet else {
            return Err(cut_off().into());
        };
        bytes = rest;
        take(Packet::decode(packet)?)?;
    }
    Ok(())
}

fn cut_off() -> DecodeError {
    decode_varint(&mut [].as_slice()).expect_err("there is nothing to read")
}
