//! Encoder of the few Perfetto messages that are written, because message objects for many records would be too slow.
//! The length of a nested message has a fixed width and is filled in when the message ends.

/// Field numbers by message, from Perfetto's `trace_packet.proto` and related files.
#[allow(missing_docs)]
pub mod field {
    pub const PACKET: u32 = 1;
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED_DATA: u32 = 12;
    pub const SEQUENCE_FLAGS: u32 = 13;
    pub const TRACK_DESCRIPTOR: u32 = 60;

    pub const UUID: u32 = 1;
    pub const TRACK_NAME: u32 = 2;
    pub const PARENT: u32 = 5;
    pub const PROCESS: u32 = 3;
    pub const PROCESS_ID: u32 = 1;
    pub const PROCESS_NAME: u32 = 6;
    pub const THREAD: u32 = 4;
    pub const THREAD_PROCESS: u32 = 1;
    pub const THREAD_ID: u32 = 2;
    pub const THREAD_NAME: u32 = 5;
    pub const COUNTER: u32 = 8;
    pub const UNIT_NAME: u32 = 6;
    pub const CHILD_ORDERING: u32 = 11;
    pub const RANK: u32 = 12;

    pub const CATEGORY_IID: u32 = 3;
    pub const ANNOTATION: u32 = 4;
    pub const EVENT_TYPE: u32 = 9;
    pub const NAME_IID: u32 = 10;
    pub const TRACK: u32 = 11;
    pub const COUNTER_VALUE: u32 = 44;
    pub const FLOW: u32 = 47;
    pub const LAST_FLOW: u32 = 48;

    pub const ANNOTATION_NAME_IID: u32 = 1;
    pub const INT_VALUE: u32 = 4;
    pub const DOUBLE_VALUE: u32 = 5;
    pub const STRING_VALUE: u32 = 6;
    pub const DICT: u32 = 11;
    pub const STRING_IID: u32 = 17;

    pub const CATEGORIES: u32 = 1;
    pub const EVENT_NAMES: u32 = 2;
    pub const ANNOTATION_NAMES: u32 = 3;
    pub const STRINGS: u32 = 29;
    pub const IID: u32 = 1;
    pub const TEXT: u32 = 2;
}

/// Width in bytes of a nested message's length: four groups of seven bits.
const LENGTH_BYTES: usize = 4;

#[derive(Debug, Default)]
pub struct Encoder {
    pub bytes: Vec<u8>,
}

impl Encoder {
    fn put_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    pub fn put_int(&mut self, field: u32, value: u64) {
        self.put_varint(u64::from(field << 3));
        self.put_varint(value);
    }

    pub fn put_fixed64(&mut self, field: u32, value: u64) {
        self.put_varint(u64::from(field << 3 | 1));
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn put_double(&mut self, field: u32, value: f64) {
        self.put_varint(u64::from(field << 3 | 1));
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub fn put_text(&mut self, field: u32, text: &str) {
        self.put_varint(u64::from(field << 3 | 2));
        self.put_varint(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Writes a nested message, which must be shorter than 128 bytes.
    pub fn put_small_message(&mut self, field: u32, fill: impl FnOnce(&mut Encoder)) {
        self.put_varint(u64::from(field << 3 | 2));
        let at = self.bytes.len();
        self.bytes.push(0);
        fill(self);
        let length = self.bytes.len() - at - 1;
        assert!(length < 0x80, "a small message has fewer than 128 bytes");
        self.bytes[at] = length as u8;
    }

    pub fn put_message(&mut self, field: u32, fill: impl FnOnce(&mut Encoder)) {
        self.put_varint(u64::from(field << 3 | 2));
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; LENGTH_BYTES]);
        fill(self);
        let length = self.bytes.len() - at - LENGTH_BYTES;
        debug_assert!(length < 1 << (7 * LENGTH_BYTES));
        for (index, byte) in self.bytes[at..at + LENGTH_BYTES].iter_mut().enumerate() {
            let more = if index + 1 < LENGTH_BYTES { 0x80 } else { 0 };
            *byte = (length >> (7 * index)) as u8 & 0x7f | more;
        }
    }
}
