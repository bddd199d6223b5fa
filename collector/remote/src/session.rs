//! A client's session with a server.
//!
//! Any error except `Refused` ends the session: a late reply would be taken for the reply to the next request.

use crate::agent::LIMIT;
use crate::handshake::{Key, greet_server};
use crate::packet::{Code, PIECE_BYTES, Packet, VERSION};
use crate::wire::{DataType, Device, Tensor, Value};
use crate::{Address, RemoteError, Waiting};
use std::time::{Duration, Instant};

/// Alignment of tensors in bytes, as in TVM.
const ALIGNMENT: i64 = 64;

pub struct Session {
    waiting: Waiting,
    limit: Duration,
    until: Option<Instant>,
    unsent_limit: Option<Instant>,
    limit_function: LimitFunction,
    is_open: bool,
}

#[derive(Clone, Copy)]
enum LimitFunction {
    Unknown,
    /// The server, such as TVM's own server, does not offer the function.
    Absent,
    Handle(u64),
}

impl Session {
    /// Opens a session, with retries while the server is busy. `within` limits the opening and, unless a deadline is
    /// set, each later request.
    pub fn open(address: &Address, key: &Key, within: Duration) -> Result<Session, RemoteError> {
        const PAUSE_MIN: Duration = Duration::from_millis(50);
        const PAUSE_MAX: Duration = Duration::from_secs(1);
        let until = Instant::now() + within;
        let left = || until.saturating_duration_since(Instant::now());
        let (mut attempt, mut pause) = (within, PAUSE_MIN);
        let waiting = loop {
            match greet_server(address, key, attempt) {
                Err(RemoteError::Busy { .. }) if left() > 2 * PAUSE_MIN => std::thread::sleep(pause.min(left() / 2)),
                result => break result?,
            }
            attempt = left().max(PAUSE_MIN);
            pause = (pause * 2).min(PAUSE_MAX);
        };
        let mut session = Session {
            waiting,
            limit: within,
            until: None,
            unsent_limit: None,
            limit_function: LimitFunction::Unknown,
            is_open: true,
        };
        session.send_request(
            "beginning a session",
            &Packet::InitServer { version: VERSION.to_owned(), arguments: Vec::new() },
        )?;
        Ok(session)
    }

    /// Sets a common deadline for all later requests; the next call also sends it to the agent, which enforces it.
    pub fn set_deadline(&mut self, until: Instant) {
        (self.until, self.unsent_limit) = (Some(until), Some(until));
    }

    fn send_limit(&mut self) -> Result<(), RemoteError> {
        let Some(until) = self.unsent_limit.take() else { return Ok(()) };
        if let LimitFunction::Unknown = self.limit_function {
            self.limit_function = self.find_function(LIMIT)?.map_or(LimitFunction::Absent, LimitFunction::Handle);
        }
        let LimitFunction::Handle(function) = self.limit_function else { return Ok(()) };
        // Rounded up and one second longer: if this client is still connected, its own deadline expires first.
        let seconds = until.saturating_duration_since(Instant::now()).as_secs() + 2;
        let arguments = vec![Value::Int(i64::try_from(seconds).unwrap_or(i64::MAX))];
        self.send_request("limiting requests", &Packet::CallFunction { function, arguments }).map(drop)
    }

    pub fn find_function(&mut self, name: &str) -> Result<Option<u64>, RemoteError> {
        let packet = Packet::List(Code::GetGlobalFunction, vec![Value::Text(name.to_owned())]);
        let handle = parse_pointer(self.send_request("looking for a function", &packet)?)?;
        Ok(Some(handle).filter(|handle| *handle != 0))
    }

    pub fn call(&mut self, function: u64, arguments: Vec<Value>) -> Result<Value, RemoteError> {
        self.send_limit()?;
        let answer = self.send_request("calling a function", &Packet::CallFunction { function, arguments })?;
        let mut answer = answer.into_iter();
        match (answer.next(), answer.next()) {
            (Some(Value::Int(0)), None) => Ok(Value::None),
            (Some(Value::Int(kind)), Some(value)) => Ok(match value {
                Value::Pointer(handle) if kind == i64::from(Value::Function(0).type_code()) => Value::Function(handle),
                Value::Pointer(handle) if kind == i64::from(Value::Module(0).type_code()) => Value::Module(handle),
                other => other,
            }),
            other => Err(self.fail_malformed(format!("expected the result of a call, got {other:?}"))),
        }
    }

    pub fn call_named(&mut self, name: &str, arguments: Vec<Value>) -> Result<Value, RemoteError> {
        let function = self.find_function(name)?;
        let function = function
            .ok_or_else(|| RemoteError::Refused(format!("the server does not provide the function `{name}`")))?;
        self.call(function, arguments)
    }

    pub fn upload_file(&mut self, name: &str, content: Vec<u8>) -> Result<(), RemoteError> {
        self.call_named("tvm.rpc.server.upload", vec![Value::Text(name.to_owned()), Value::Bytes(content)]).map(drop)
    }

    pub fn load_library(&mut self, name: &str) -> Result<u64, RemoteError> {
        match self.call_named("tvm.rpc.server.load_module", vec![Value::Text(name.to_owned())])? {
            Value::Module(handle) => Ok(handle),
            other => Err(self.fail_malformed(format!("expected a library, got {other:?}"))),
        }
    }

    pub fn allocate_tensor(&mut self, dtype: DataType, shape: &[i64]) -> Result<Tensor, RemoteError> {
        let tensor = Tensor { data: 0, device: Device::CPU, dtype, shape: shape.to_vec(), byte_offset: 0 };
        let bytes = tensor.byte_count().and_then(|bytes| i64::try_from(bytes.max(1)).ok());
        let bytes = bytes.ok_or_else(|| RemoteError::Refused("the tensor is too large".to_owned()))?;
        let arguments = vec![Value::Device(Device::CPU), Value::Int(bytes), Value::Int(ALIGNMENT), Value::Type(dtype)];
        let data =
            parse_pointer(self.send_request("allocating memory", &Packet::List(Code::AllocateData, arguments))?)?;
        Ok(Tensor { data, ..tensor })
    }

    pub fn free_tensor(&mut self, tensor: &Tensor) -> Result<(), RemoteError> {
        let arguments = vec![Value::Device(tensor.device), Value::Pointer(tensor.data)];
        self.send_request("freeing memory", &Packet::List(Code::FreeData, arguments)).map(drop)
    }

    pub fn release_handle(&mut self, handle: u64) -> Result<(), RemoteError> {
        self.send_request("freeing a handle", &Packet::List(Code::FreeHandle, vec![Value::Pointer(handle)])).map(drop)
    }

    pub fn write_tensor(&mut self, tensor: &Tensor, bytes: &[u8]) -> Result<(), RemoteError> {
        for (piece, content) in split_tensor(tensor).zip(bytes.chunks(PIECE_BYTES as usize)) {
            self.send_request(
                "copying to the board",
                &Packet::CopyToRemote { tensor: piece, bytes: content.to_vec() },
            )?;
        }
        Ok(())
    }

    pub fn read_tensor(&mut self, tensor: &Tensor) -> Result<Vec<u8>, RemoteError> {
        let mut all = Vec::new();
        for piece in split_tensor(tensor) {
            let bytes = piece.byte_count().unwrap_or(0);
            self.send("copying from the board", &Packet::CopyFromRemote { tensor: piece, bytes })?;
            match self.receive()? {
                Packet::Copied(content) if content.len() as u64 == bytes => all.extend(content),
                Packet::Copied(content) => {
                    return Err(self.fail_malformed(format!("received {} bytes instead of {bytes}", content.len())));
                }
                other => return Err(self.fail_malformed(format!("expected a copy of a tensor, got {other:?}"))),
            }
        }
        Ok(all)
    }

    fn send_request(&mut self, doing: &'static str, packet: &Packet) -> Result<Vec<Value>, RemoteError> {
        self.send(doing, packet)?;
        match self.receive()? {
            Packet::List(Code::Return, values) => Ok(values),
            other => Err(self.fail_malformed(format!("expected a reply, got {other:?}"))),
        }
    }

    fn send(&mut self, doing: &'static str, packet: &Packet) -> Result<(), RemoteError> {
        if !self.is_open {
            return Err(RemoteError::Ended);
        }
        // A socket timeout of zero is an error.
        let left = |until: Instant| until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.waiting.begin_activity(doing, self.until.map_or(self.limit, left));
        let sent = packet.send(&mut self.waiting);
        self.end_on_error(sent)
    }

    fn receive(&mut self) -> Result<Packet, RemoteError> {
        let received = Packet::receive(&mut self.waiting);
        match self.end_on_error(received)? {
            Packet::List(Code::Exception, values) => match values.into_iter().next() {
                Some(Value::Text(text)) => Err(RemoteError::Refused(text)),
                other => Err(self.fail_malformed(format!("expected an error message, got {other:?}"))),
            },
            other => Ok(other),
        }
    }

    /// Returns whether the session can be used; refused requests do not end a session.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    fn end_on_error<T>(&mut self, result: Result<T, RemoteError>) -> Result<T, RemoteError> {
        self.is_open &= result.is_ok();
        result
    }

    fn fail_malformed(&mut self, why: String) -> RemoteError {
        self.is_open = false;
        RemoteError::Malformed(why)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_open {
            // Optional: closing the connection has the same effect.
            self.waiting.begin_activity("leaving", Duration::from_millis(200));
            let _ = Packet::Shutdown.send(&mut self.waiting);
        }
    }
}

/// Splits a tensor into byte ranges that each fit a packet.
fn split_tensor(tensor: &Tensor) -> impl Iterator<Item = Tensor> {
    const BYTE: DataType = DataType { code: 1, bits: 8, lanes: 1 };
    let all = tensor.byte_count().unwrap_or(0);
    let of = {
        let tensor = tensor.clone();
        move |first: u64| Tensor {
            dtype: BYTE,
            shape: vec![i64::try_from(PIECE_BYTES.min(all - first)).unwrap_or(0)],
            byte_offset: tensor.byte_offset + first,
            ..tensor.clone()
        }
    };
    (0..all).step_by(PIECE_BYTES as usize).map(of)
}

fn parse_pointer(answer: Vec<Value>) -> Result<u64, RemoteError> {
    match answer.as_slice() {
        [Value::Pointer(handle)] => Ok(*handle),
        [Value::None] => Ok(0),
        other => Err(RemoteError::Malformed(format!("expected a handle, got {other:?}"))),
    }
}
