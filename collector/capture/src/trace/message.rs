//! Protobuf messages of Perfetto traces that are decoded. Other fields are skipped.

#[derive(Clone, PartialEq, prost::Message)]
pub struct Packet {
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    pub sequence: u32,
    #[prost(message, optional, tag = "11")]
    pub event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub interned: Option<Interned>,
    #[prost(uint32, tag = "13")]
    pub flags: u32,
    #[prost(message, optional, tag = "60")]
    pub track: Option<TrackDescriptor>,
}

/// Bit of `Packet::flags` that clears the interned texts of a sequence.
pub const STATE_CLEARED: u32 = 1;

#[derive(Clone, PartialEq, prost::Message)]
pub struct TrackEvent {
    #[prost(uint64, repeated, tag = "3")]
    pub category_iids: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    pub annotations: Vec<Annotation>,
    #[prost(int32, tag = "9")]
    pub kind: i32,
    #[prost(uint64, tag = "10")]
    pub name_iid: u64,
    #[prost(uint64, tag = "11")]
    pub track: u64,
    #[prost(string, repeated, tag = "22")]
    pub categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    pub counter: Option<i64>,
    #[prost(double, optional, tag = "44")]
    pub double_counter: Option<f64>,
    #[prost(fixed64, repeated, tag = "47")]
    pub flows: Vec<u64>,
    #[prost(fixed64, repeated, tag = "48")]
    pub last_flows: Vec<u64>,
}

pub mod kind {
    pub const BEGIN: i32 = 1;
    pub const END: i32 = 2;
    pub const INSTANT: i32 = 3;
    pub const COUNTER: i32 = 4;
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Annotation {
    #[prost(uint64, tag = "1")]
    pub name_iid: u64,
    #[prost(bool, optional, tag = "2")]
    pub bool_value: Option<bool>,
    #[prost(uint64, optional, tag = "3")]
    pub uint_value: Option<u64>,
    #[prost(int64, optional, tag = "4")]
    pub int_value: Option<i64>,
    #[prost(double, optional, tag = "5")]
    pub double_value: Option<f64>,
    #[prost(string, optional, tag = "6")]
    pub string_value: Option<String>,
    #[prost(string, optional, tag = "10")]
    pub name: Option<String>,
    #[prost(message, repeated, tag = "11")]
    pub entries: Vec<Annotation>,
    #[prost(uint64, optional, tag = "17")]
    pub string_iid: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Interned {
    #[prost(message, repeated, tag = "1")]
    pub categories: Vec<Text>,
    #[prost(message, repeated, tag = "2")]
    pub names: Vec<Text>,
    #[prost(message, repeated, tag = "3")]
    pub annotation_names: Vec<Text>,
    #[prost(message, repeated, tag = "29")]
    pub strings: Vec<Text>,
}

/// An interned text. Perfetto's schema declares some texts as strings and others as bytes; bytes can decode both.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Text {
    #[prost(uint64, tag = "1")]
    pub iid: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub text: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    pub uuid: u64,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(message, optional, tag = "3")]
    pub process: Option<Process>,
    #[prost(message, optional, tag = "4")]
    pub thread: Option<Thread>,
    #[prost(uint64, tag = "5")]
    pub parent: u64,
    #[prost(message, optional, tag = "8")]
    pub counter: Option<CounterDescriptor>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Process {
    #[prost(int32, tag = "1")]
    pub id: i32,
    #[prost(string, tag = "6")]
    pub name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Thread {
    #[prost(int32, tag = "1")]
    pub process: i32,
    #[prost(int64, tag = "2")]
    pub id: i64,
    #[prost(string, tag = "5")]
    pub name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CounterDescriptor {
    #[prost(bool, tag = "5")]
    pub is_incremental: bool,
}
