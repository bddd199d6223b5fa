//! Tests of round trips of packets, of their expected bytes, and of the rejection of malformed input.
#![allow(missing_docs)]

use proptest::prelude::*;
use remote::packet::{Code, Packet};
use remote::wire::{DataType, Device, Tensor, Value};

fn value() -> impl Strategy<Value = Value> {
    let tensor = (any::<u64>(), any::<i32>(), any::<u16>(), prop::collection::vec(any::<i64>(), 0..5), any::<u64>());
    let tensor = tensor.prop_map(|(data, kind, lanes, shape, byte_offset)| {
        let device = Device { kind, id: 0 };
        Value::Tensor(Tensor { data, device, dtype: DataType { code: 2, bits: 32, lanes }, shape, byte_offset })
    });
    prop_oneof![
        Just(Value::None),
        any::<i64>().prop_map(Value::Int),
        any::<bool>().prop_map(Value::Bool),
        (-1e9..1e9).prop_map(Value::Float),
        any::<u64>().prop_map(Value::Pointer),
        any::<u64>().prop_map(Value::Function),
        any::<u64>().prop_map(Value::Module),
        ".{0,20}".prop_map(Value::Text),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Value::Bytes),
        tensor,
    ]
}

proptest! {
    #[test]
    fn packets_read_back(function in any::<u64>(), arguments in prop::collection::vec(value(), 0..6)) {
        for packet in [
            Packet::CallFunction { function, arguments: arguments.clone() },
            Packet::ok_reply(arguments.clone()),
            Packet::InitServer { version: "0.8.0".to_owned(), arguments },
        ] {
            let bytes = packet.to_bytes();
            prop_assert_eq!(u64::from_le_bytes(bytes[..8].try_into().unwrap()), bytes.len() as u64 - 8);
            prop_assert_eq!(Packet::parse_body(&bytes[8..]), Ok(packet));
        }
    }

    #[test]
    fn damaged_packets_are_rejected_or_read(arguments in prop::collection::vec(value(), 0..4), place in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let mut bytes = Packet::ok_reply(arguments).to_bytes().split_off(8);
        let at = place.index(bytes.len());
        bytes[at] = byte;
        let _ = Packet::parse_body(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        let _ = Packet::parse_body(&bytes);
    }
}

#[test]
fn packets_have_the_bytes_that_tvm_writes() {
    let asked = Packet::List(Code::GetGlobalFunction, vec![Value::Text("f".to_owned())]).to_bytes();
    let mut known = vec![25, 0, 0, 0, 0, 0, 0, 0]; // length of the packet
    known.extend([9, 0, 0, 0, 1, 0, 0, 0]); // code of the request, number of elements
    known.extend([8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, b'f']); // text of length 1
    known[0] = u8::try_from(known.len() - 8).unwrap();
    assert_eq!(asked, known);
    let none = Packet::ok_reply(vec![Value::None]).to_bytes();
    assert_eq!(none, [12, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn announced_lengths_are_checked() {
    let list = |rest: &[u8]| [&[4, 0, 0, 0][..], rest].concat();
    let refused = |bytes: Vec<u8>| Packet::parse_body(&bytes).unwrap_err().to_string();
    assert!(refused(list(&i32::MAX.to_le_bytes())).contains("at most"));
    assert!(refused(list(&(-1i32).to_le_bytes())).contains("at most"));
    let text = [&1i32.to_le_bytes()[..], &8i32.to_le_bytes(), &u64::MAX.to_le_bytes()].concat();
    assert!(refused(list(&text)).contains("announced"));
    let tensor = [&1i32.to_le_bytes()[..], &7i32.to_le_bytes(), &[0; 16], &1_000_000i32.to_le_bytes()].concat();
    assert!(refused(list(&tensor)).contains("dimensions"));
    assert!(refused(vec![99, 0, 0, 0]).contains("unknown code"));
    assert!(refused(list(&[0, 0, 0, 0, 7])).contains("extra bytes"));
}

#[test]
fn invalid_tracker_replies_are_rejected() {
    use remote::tracker::{parse_assignment, parse_message, parse_summary};
    let json = |text: &str| parse_message(text.as_bytes()).unwrap();
    let device = parse_assignment(&json(r#"[0, ["127.0.0.1", 9091, "k:1"]]"#)).unwrap();
    assert_eq!((device.address.to_string().as_str(), device.match_key.as_str()), ("127.0.0.1:9091", "k:1"));
    for text in
        ["0", "[]", r#"[0, ["h", 99999, "k"]]"#, r#"[0, ["h", 0, "k"]]"#, r#"[-1, ["h", 9, "k"]]"#, "[0, [1, 2, 3]]"]
    {
        assert_eq!(parse_assignment(&json(text)), None, "{text}");
    }
    let summary = json(
        r#"[0, {"queue_info": {"k": {"free": 1, "pending": 2}}, "server_info": [{"addr": ["h", 1], "key": "server:k"}]}]"#,
    );
    let summary = parse_summary(&summary).unwrap();
    assert_eq!((summary.queues["k"].pending, summary.servers), (2, vec![("h:1".to_owned(), "k".to_owned())]));
    assert_eq!(parse_summary(&json("[0, 1]")), None);
    assert!(parse_message(b"{").is_err());
}
