//! Process of one session: serves requests until the client leaves.

mod calls;
mod fabric;
mod files;
mod functions;

pub use fabric::OnFabric;
pub use functions::EMULATED_VARIABLE;

use crate::native::{Arguments, Library, LibraryKernel, Memory};
use calls::CallList;
use files::SessionFiles;
use functions::{Builtin, Evaluator};
use measure::host;
use nix::unistd::alarm;
use remote::packet::{Code, PACKET_BYTES_MAX, Packet, VERSION};
use remote::wire::{Device, Tensor, Value};
use remote::{RemoteError, Waiting};
use std::collections::BTreeMap;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

/// Maximum time between two requests of a client.
const IDLE: Duration = Duration::from_secs(3600);

/// An object that a client can refer to by its handle.
#[derive(Clone)]
enum SessionObject {
    Builtin(Builtin),
    Library(Library),
    Kernel(LibraryKernel),
    Evaluator(Box<Evaluator>),
    Calls(CallList),
}

/// Scope of a session's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Session,
    /// The session and the agent, as requested by the client.
    AgentToo,
}

/// State of a session.
pub struct Session {
    objects: BTreeMap<u64, SessionObject>,
    next: u64,
    memory: Memory,
    files: SessionFiles,
    /// Core on the machine's fabric, if one is served.
    fabric: Option<OnFabric>,
    /// CPUs of the process before any kernel was pinned.
    cpus: Vec<usize>,
    limit_seconds: Option<u32>,
    end: End,
}

/// Why a request was rejected, as sent to the client.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct RequestRefusal(String);

impl From<crate::native::NativeError> for RequestRefusal {
    fn from(error: crate::native::NativeError) -> RequestRefusal {
        RequestRefusal(error.to_string())
    }
}

fn refuse<T>(why: impl std::fmt::Display) -> Result<T, RequestRefusal> {
    Err(RequestRefusal(why.to_string()))
}

type Answer = Result<Packet, RequestRefusal>;

/// Serves an admitted client with a folder for files, a limit of tensor memory and optionally a fabric.
pub fn serve(
    stream: TcpStream,
    folder: &Path,
    memory_bytes: usize,
    fabric: Option<OnFabric>,
) -> Result<End, RemoteError> {
    let mut waiting = Waiting::new(stream, IDLE);
    let mut session = Session {
        objects: BTreeMap::new(),
        next: 1,
        memory: Memory::new(memory_bytes),
        files: SessionFiles::new(folder),
        fabric: fabric.map(|fabric| fabric.in_folder(folder)),
        cpus: host::allowed_cpus().unwrap_or_else(|_| vec![0]),
        limit_seconds: None,
        end: End::Session,
    };
    loop {
        waiting.begin("waiting for a request", IDLE);
        let request = match Packet::receive(&mut waiting) {
            Ok(Packet::Shutdown) | Err(RemoteError::Closed { .. }) => return Ok(session.end),
            Ok(request) => request,
            Err(error) => {
                // After a malformed packet the stream is out of sync.
                let _ = Packet::exception(format!("RPCError: {error}")).send(&mut waiting);
                return Err(error);
            }
        };
        // The signal kills this process whatever a kernel does. The front process informs the client.
        let limit_seconds = session.limit_seconds;
        if let Some(seconds) = limit_seconds {
            alarm::set(seconds);
        }
        let answer = session.answer(request).unwrap_or_else(|why| Packet::exception(format!("RPCError: {why}")));
        answer.send(&mut waiting)?;
        if limit_seconds.is_some() {
            alarm::cancel();
        }
    }
}

impl Session {
    fn answer(&mut self, request: Packet) -> Answer {
        match request {
            Packet::InitServer { version, arguments } => begin(&version, &arguments),
            Packet::CallFunction { function, arguments } => {
                let result = self.call(function, arguments)?;
                Ok(Packet::answer(self.returned(result)))
            }
            Packet::CopyFromRemote { tensor, bytes } if bytes > PACKET_BYTES_MAX / 2 => {
                refuse(format!("{bytes} bytes of {tensor:?} are too many for a packet; copy them in pieces"))
            }
            Packet::CopyFromRemote { tensor, bytes } => Ok(Packet::Copied(self.memory.read(&tensor, bytes)?)),
            Packet::CopyToRemote { tensor, bytes } => {
                self.memory.write(&tensor, &bytes)?;
                Ok(Packet::answer(vec![Value::None]))
            }
            Packet::List(code, values) => Ok(Packet::answer(vec![self.listed(code, &values)?])),
            Packet::Shutdown | Packet::Copied(_) => refuse("that is no request"),
        }
    }

    fn listed(&mut self, code: Code, values: &[Value]) -> Result<Value, RequestRefusal> {
        match (code, values) {
            (Code::GetGlobalFunction, [Value::Text(name)]) => {
                let served = |builtin: &Builtin| !matches!(builtin, Builtin::Fabric(_)) || self.fabric.is_some();
                let found = Builtin::of(name).filter(served);
                let found = found.map(|builtin| self.keep(SessionObject::Builtin(builtin)));
                Ok(Value::Pointer(found.unwrap_or(0)))
            }
            (Code::FreeHandle, [Value::Pointer(handle), ..]) => {
                let known = self.objects.remove(handle);
                known
                    .map(|_| Value::None)
                    .ok_or_else(|| RequestRefusal(format!("there is nothing with the handle {handle}")))
            }
            (Code::SetDevice, [Value::Device(device)]) => cpu(*device).map(|()| Value::None),
            (Code::GetDeviceAttribute, [Value::Device(device), Value::Int(attribute)]) => {
                // Attribute 0 is the existence of the device. A board reports no other attributes.
                Ok(match (cpu(*device).is_ok(), attribute) {
                    (is_there, 0) => Value::Int(i64::from(is_there)),
                    _ => Value::None,
                })
            }
            (Code::AllocateData, [Value::Device(device), Value::Int(bytes), Value::Int(_), Value::Type(_)]) => {
                cpu(*device)?;
                let bytes = u64::try_from(*bytes).map_err(|_| RequestRefusal(format!("{bytes} bytes are no size")))?;
                Ok(Value::Pointer(self.memory.allocate(bytes)?))
            }
            (Code::AllocateDataWithScope, [Value::Tensor(tensor), ..]) => {
                cpu(tensor.device)?;
                let bytes = tensor.bytes().ok_or_else(|| RequestRefusal("a tensor is too large".to_owned()))?;
                Ok(Value::Pointer(self.memory.allocate(bytes)?))
            }
            (Code::FreeData, [Value::Device(_), Value::Pointer(handle)]) => {
                self.memory.free(*handle)?;
                Ok(Value::None)
            }
            (Code::CopyAmongRemote, [Value::Tensor(from), Value::Tensor(to), ..]) => {
                let bytes = Tensor::bytes(from).ok_or_else(|| RequestRefusal("a tensor is too large".to_owned()))?;
                let content = self.memory.read(from, bytes)?;
                self.memory.write(to, &content)?;
                Ok(Value::None)
            }
            // All requests are synchronous, so there is a single stream.
            (Code::StreamSync | Code::FreeStream | Code::SetStream, _) => Ok(Value::None),
            (Code::CreateStream | Code::GetStream, _) => Ok(Value::Pointer(0)),
            (code, values) => refuse(format!("a request {code:?} of {values:?} cannot be answered here")),
        }
    }

    /// Encodes a result: its type code, then its value.
    fn returned(&mut self, result: Returned) -> Vec<Value> {
        let value = match result {
            Returned::Value(Value::None) => return vec![Value::Int(0), Value::None],
            Returned::Value(value) => value,
            Returned::Object(object) => match &object {
                SessionObject::Library(_) => Value::Module(self.keep(object)),
                _ => Value::Function(self.keep(object)),
            },
        };
        let kind = Value::Int(value.kind().into());
        match value {
            Value::Function(handle) | Value::Module(handle) => vec![kind, Value::Pointer(handle)],
            other => vec![kind, other],
        }
    }

    fn keep(&mut self, object: SessionObject) -> u64 {
        self.objects.insert(self.next, object);
        self.next += 1;
        self.next - 1
    }

    fn call(&mut self, function: u64, arguments: Vec<Value>) -> Result<Returned, RequestRefusal> {
        match self.objects.get(&function).cloned() {
            Some(SessionObject::Builtin(builtin)) => self.call_builtin(builtin, arguments),
            Some(SessionObject::Kernel(kernel)) => {
                kernel.call(&Arguments::new(&arguments, &self.memory)?, 1)?;
                Ok(Returned::Value(Value::None))
            }
            Some(SessionObject::Evaluator(evaluator)) => {
                let arguments = Arguments::new(&arguments, &self.memory)?;
                Ok(Returned::Value(Value::Bytes(evaluator.evaluate(&arguments)?)))
            }
            Some(SessionObject::Calls(calls)) => {
                calls.laid(&self.memory)?.run(1)?;
                Ok(Returned::Value(Value::None))
            }
            Some(SessionObject::Library(_)) => refuse("a library cannot be called"),
            None => refuse(format!("there is no function with the handle {function}")),
        }
    }

    fn library(&self, handle: u64) -> Result<Library, RequestRefusal> {
        match self.objects.get(&handle) {
            Some(SessionObject::Library(library)) => Ok(library.clone()),
            _ => refuse(format!("there is no library with the handle {handle}")),
        }
    }
}

enum Returned {
    Value(Value),
    Object(SessionObject),
}

fn begin(version: &str, arguments: &[Value]) -> Answer {
    if version != VERSION {
        return refuse(format!(
            "version mismatch: the client speaks version {version} of the protocol, this agent {VERSION}"
        ));
    }
    match arguments.first() {
        None | Some(Value::None) => Ok(Packet::answer(vec![Value::None])),
        Some(_) => refuse("a board agent makes no sessions behind its own"),
    }
}

fn cpu(device: Device) -> Result<(), RequestRefusal> {
    if device == Device::CPU {
        Ok(())
    } else {
        refuse(format!("a board agent has one CPU and no other device, such as {device:?}"))
    }
}
