//! Session packets: an eight-byte length, the packet code and the body.

use crate::wire::{Malformed, Tensor, Value, WireReader, put_list, put_tensor, put_text};
use crate::{RemoteError, Waiting};

pub const VERSION: &str = "0.8.0";
/// Maximum length of a packet in bytes; tensors are copied in much smaller pieces.
pub const PACKET_BYTES_MAX: u64 = 256 << 20;
pub const PIECE_BYTES: u64 = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Code {
    Shutdown = 1,
    InitServer = 2,
    CallFunction = 3,
    Return = 4,
    Exception = 5,
    CopyFromRemote = 6,
    CopyToRemote = 7,
    CopyAcknowledged = 8,
    GetGlobalFunction = 9,
    FreeHandle = 10,
    SetDevice = 11,
    GetDeviceAttribute = 12,
    AllocateData = 13,
    FreeData = 14,
    StreamSync = 15,
    CopyAmongRemote = 16,
    AllocateDataWithScope = 17,
    CreateStream = 18,
    FreeStream = 19,
    SetStream = 20,
    GetStream = 21,
}

impl Code {
    const ALL: [Code; 21] = [
        Code::Shutdown,
        Code::InitServer,
        Code::CallFunction,
        Code::Return,
        Code::Exception,
        Code::CopyFromRemote,
        Code::CopyToRemote,
        Code::CopyAcknowledged,
        Code::GetGlobalFunction,
        Code::FreeHandle,
        Code::SetDevice,
        Code::GetDeviceAttribute,
        Code::AllocateData,
        Code::FreeData,
        Code::StreamSync,
        Code::CopyAmongRemote,
        Code::AllocateDataWithScope,
        Code::CreateStream,
        Code::FreeStream,
        Code::SetStream,
        Code::GetStream,
    ];

    fn from_number(number: i32) -> Result<Code, Malformed> {
        let known = Code::ALL.into_iter().find(|code| *code as i32 == number);
        known.ok_or_else(|| Malformed(format!("the packet has the unknown code {number}")))
    }
}

#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Packet {
    Shutdown,
    /// Starts a session with the client's protocol version; without arguments, the session runs in the server process.
    InitServer {
        version: String,
        arguments: Vec<Value>,
    },
    CallFunction {
        function: u64,
        arguments: Vec<Value>,
    },
    CopyFromRemote {
        tensor: Tensor,
        bytes: u64,
    },
    CopyToRemote {
        tensor: Tensor,
        bytes: Vec<u8>,
    },
    Copied(Vec<u8>),
    /// A reply, or any request whose body is a list of values.
    List(Code, Vec<Value>),
}

impl Packet {
    pub fn ok_reply(values: Vec<Value>) -> Packet {
        Packet::List(Code::Return, values)
    }

    pub fn error_reply(text: impl Into<String>) -> Packet {
        Packet::List(Code::Exception, vec![Value::Text(text.into())])
    }

    /// Parses a packet without its length field.
    pub fn parse_body(bytes: &[u8]) -> Result<Packet, Malformed> {
        let mut reader = WireReader::new(bytes);
        let packet = match Code::from_number(reader.read_i32()?)? {
            Code::Shutdown => Packet::Shutdown,
            Code::InitServer => Packet::InitServer { version: reader.read_text()?, arguments: reader.read_list()? },
            Code::CallFunction => Packet::CallFunction { function: reader.read_u64()?, arguments: reader.read_list()? },
            Code::CopyFromRemote => Packet::CopyFromRemote { tensor: reader.read_tensor()?, bytes: reader.read_u64()? },
            Code::CopyToRemote => {
                let (tensor, bytes) = (reader.read_tensor()?, reader.read_counted()?.to_vec());
                Packet::CopyToRemote { tensor, bytes }
            }
            Code::CopyAcknowledged => return Ok(Packet::Copied(reader.rest().to_vec())),
            other => Packet::List(other, reader.read_list()?),
        };
        match reader.rest().len() {
            0 => Ok(packet),
            more => Err(Malformed(format!("the packet has {more} extra bytes"))),
        }
    }

    /// Encodes the packet, including its length field.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 8];
        let mut put = |code: Code| bytes.extend((code as i32).to_le_bytes());
        match self {
            Packet::Shutdown => put(Code::Shutdown),
            Packet::InitServer { version, arguments } => {
                put(Code::InitServer);
                put_text(version, &mut bytes);
                put_list(arguments, &mut bytes);
            }
            Packet::CallFunction { function, arguments } => {
                put(Code::CallFunction);
                bytes.extend(function.to_le_bytes());
                put_list(arguments, &mut bytes);
            }
            Packet::CopyFromRemote { tensor, bytes: count } => {
                put(Code::CopyFromRemote);
                put_tensor(tensor, &mut bytes);
                bytes.extend(count.to_le_bytes());
            }
            Packet::CopyToRemote { tensor, bytes: content } => {
                put(Code::CopyToRemote);
                put_tensor(tensor, &mut bytes);
                bytes.extend((content.len() as u64).to_le_bytes());
                bytes.extend(content);
            }
            Packet::Copied(content) => {
                put(Code::CopyAcknowledged);
                bytes.extend(content);
            }
            Packet::List(code, values) => {
                put(*code);
                put_list(values, &mut bytes);
            }
        }
        let length = bytes.len() as u64 - 8;
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    pub fn send(&self, to: &mut Waiting) -> Result<(), RemoteError> {
        to.send(&self.to_bytes())
    }

    pub fn receive(from: &mut Waiting) -> Result<Packet, RemoteError> {
        let malformed = |error: Malformed| RemoteError::Malformed(error.to_string());
        loop {
            let mut length = [0; 8];
            from.fill_buffer(&mut length)?;
            let length = u64::from_le_bytes(length);
            if length > PACKET_BYTES_MAX {
                return Err(RemoteError::Malformed(format!(
                    "the announced packet length of {length} bytes exceeds the limit"
                )));
            }
            let length = usize::try_from(length).expect("the length was checked against the limit");
            // Empty packets carry no information.
            if length > 0 {
                return Packet::parse_body(&from.read_bytes(length)?).map_err(malformed);
            }
        }
    }
}
