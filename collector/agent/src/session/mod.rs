//! Process of one session: serves requests until the client leaves.

mod calls;
mod fabric;
mod files;
mod functions;

pub use fabric::FabricSession;
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

/// Maximum time between two requests.
const IDLE: Duration = Duration::from_secs(3600);

#[derive(Clone)]
enum SessionObject {
    Builtin(Builtin),
    Library(Library),
    Kernel(LibraryKernel),
    Evaluator(Box<Evaluator>),
    Calls(CallList),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Session,
    AgentToo,
}

pub struct Session {
    objects: BTreeMap<u64, SessionObject>,
    next: u64,
    memory: Memory,
    files: SessionFiles,
    fabric: Option<FabricSession>,
    /// CPUs that the process was allowed to use before kernels were pinned.
    cpus: Vec<usize>,
    limit_seconds: Option<u32>,
    end: End,
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct RequestRefusal(String);

impl From<crate::native::NativeError> for RequestRefusal {
    fn from(error: crate::native::NativeError) -> RequestRefusal {
        RequestRefusal(error.to_string())
    }
}

fn refuse_request<T>(why: impl std::fmt::Display) -> Result<T, RequestRefusal> {
    Err(RequestRefusal(why.to_string()))
}

fn json_text(value: &impl serde::Serialize) -> Result<Value, RequestRefusal> {
    serde_json::to_string(value).map(Value::Text).map_err(|error| RequestRefusal(error.to_string()))
}

type Answer = Result<Packet, RequestRefusal>;

pub fn serve_session(
    stream: TcpStream,
    folder: &Path,
    memory_bytes: usize,
    fabric: Option<FabricSession>,
) -> Result<End, RemoteError> {
    let mut waiting = Waiting::new(stream, IDLE);
    let mut session = Session {
        objects: BTreeMap::new(),
        next: 1,
        memory: Memory::new(memory_bytes),
        files: SessionFiles::new(folder),
        fabric: fabric.map(|fabric| fabric.with_mark_file(folder)),
        cpus: host::allowed_cpus().unwrap_or_else(|_| vec![0]),
        limit_seconds: None,
        end: End::Session,
    };
    loop {
        waiting.begin_activity("waiting for a request", IDLE);
        let request = match Packet::receive(&mut waiting) {
            Ok(Packet::Shutdown) | Err(RemoteError::Closed { .. }) => return Ok(session.end),
            Ok(request) => request,
            Err(error) => {
                // After a malformed packet the stream is out of sync.
                let _ = Packet::error_reply(format!("RPCError: {error}")).send(&mut waiting);
                return Err(error);
            }
        };
        // The signal kills this process whatever a kernel does. The front process informs the client.
        let limit_seconds = session.limit_seconds;
        if let Some(seconds) = limit_seconds {
            alarm::set(seconds);
        }
        let answer =
            session.answer_request(request).unwrap_or_else(|why| Packet::error_reply(format!("RPCError: {why}")));
        answer.send(&mut waiting)?;
        if limit_seconds.is_some() {
            alarm::cancel();
        }
    }
}

impl Session {
    fn answer_request(&mut self, request: Packet) -> Answer {
        match request {
            Packet::InitServer { version, arguments } => begin_session(&version, &arguments),
            Packet::CallFunction { function, arguments } => {
                let result = self.call_object(function, arguments)?;
                Ok(Packet::ok_reply(self.encode_result(result)))
            }
            Packet::CopyFromRemote { tensor, bytes } if bytes > PACKET_BYTES_MAX / 2 => {
                refuse_request(format!("{bytes} bytes of {tensor:?} exceed the limit of a packet; copy them in pieces"))
            }
            Packet::CopyFromRemote { tensor, bytes } => Ok(Packet::Copied(self.memory.read_tensor(&tensor, bytes)?)),
            Packet::CopyToRemote { tensor, bytes } => {
                self.memory.write_tensor(&tensor, &bytes)?;
                Ok(Packet::ok_reply(vec![Value::None]))
            }
            Packet::List(code, values) => Ok(Packet::ok_reply(vec![self.answer_list(code, &values)?])),
            Packet::Shutdown | Packet::Copied(_) => refuse_request("the packet is not a request"),
        }
    }

    fn answer_list(&mut self, code: Code, values: &[Value]) -> Result<Value, RequestRefusal> {
        match (code, values) {
            (Code::GetGlobalFunction, [Value::Text(name)]) => {
                let served = |builtin: &Builtin| !matches!(builtin, Builtin::Fabric(_)) || self.fabric.is_some();
                let found = Builtin::from_name(name).filter(served);
                let found = found.map(|builtin| self.store_object(SessionObject::Builtin(builtin)));
                Ok(Value::Pointer(found.unwrap_or(0)))
            }
            (Code::FreeHandle, [Value::Pointer(handle), ..]) => {
                let known = self.objects.remove(handle);
                known.map(|_| Value::None).ok_or_else(|| RequestRefusal(format!("no object has the handle {handle}")))
            }
            (Code::SetDevice, [Value::Device(device)]) => require_cpu(*device).map(|()| Value::None),
            (Code::GetDeviceAttribute, [Value::Device(device), Value::Int(attribute)]) => {
                // Attribute 0 is the existence of the device. A board reports no other attributes.
                Ok(match (require_cpu(*device).is_ok(), attribute) {
                    (is_there, 0) => Value::Int(i64::from(is_there)),
                    _ => Value::None,
                })
            }
            (Code::AllocateData, [Value::Device(device), Value::Int(bytes), Value::Int(_), Value::Type(_)]) => {
                require_cpu(*device)?;
                let bytes =
                    u64::try_from(*bytes).map_err(|_| RequestRefusal(format!("{bytes} bytes is not a valid size")))?;
                Ok(Value::Pointer(self.memory.allocate_block(bytes)?))
            }
            (Code::AllocateDataWithScope, [Value::Tensor(tensor), ..]) => {
                require_cpu(tensor.device)?;
                let bytes = tensor.byte_count().ok_or_else(|| RequestRefusal("the tensor is too large".to_owned()))?;
                Ok(Value::Pointer(self.memory.allocate_block(bytes)?))
            }
            (Code::FreeData, [Value::Device(_), Value::Pointer(handle)]) => {
                self.memory.free_block(*handle)?;
                Ok(Value::None)
            }
            (Code::CopyAmongRemote, [Value::Tensor(from), Value::Tensor(to), ..]) => {
                let bytes =
                    Tensor::byte_count(from).ok_or_else(|| RequestRefusal("the tensor is too large".to_owned()))?;
                let content = self.memory.read_tensor(from, bytes)?;
                self.memory.write_tensor(to, &content)?;
                Ok(Value::None)
            }
            // All requests are synchronous, so there is a single stream.
            (Code::StreamSync | Code::FreeStream | Code::SetStream, _) => Ok(Value::None),
            (Code::CreateStream | Code::GetStream, _) => Ok(Value::Pointer(0)),
            (code, values) => {
                refuse_request(format!("the board agent does not support the request {code:?} with {values:?}"))
            }
        }
    }

    /// Encodes a result as its type code and its value.
    fn encode_result(&mut self, result: Returned) -> Vec<Value> {
        let value = match result {
            Returned::Value(Value::None) => return vec![Value::Int(0), Value::None],
            Returned::Value(value) => value,
            Returned::Object(object) => match &object {
                SessionObject::Library(_) => Value::Module(self.store_object(object)),
                _ => Value::Function(self.store_object(object)),
            },
        };
        let kind = Value::Int(value.type_code().into());
        match value {
            Value::Function(handle) | Value::Module(handle) => vec![kind, Value::Pointer(handle)],
            other => vec![kind, other],
        }
    }

    fn store_object(&mut self, object: SessionObject) -> u64 {
        self.objects.insert(self.next, object);
        self.next += 1;
        self.next - 1
    }

    fn call_object(&mut self, function: u64, arguments: Vec<Value>) -> Result<Returned, RequestRefusal> {
        match self.objects.get(&function).cloned() {
            Some(SessionObject::Builtin(builtin)) => self.call_builtin(builtin, arguments),
            Some(SessionObject::Kernel(kernel)) => {
                kernel.call_repeatedly(&Arguments::new(&arguments, &self.memory)?, 1)?;
                Ok(Returned::Value(Value::None))
            }
            Some(SessionObject::Evaluator(evaluator)) => {
                let arguments = Arguments::new(&arguments, &self.memory)?;
                Ok(Returned::Value(Value::Bytes(evaluator.time_runs(&arguments)?)))
            }
            Some(SessionObject::Calls(calls)) => {
                calls.resolve_calls(&self.memory)?.run_repeatedly(1)?;
                Ok(Returned::Value(Value::None))
            }
            Some(SessionObject::Library(_)) => refuse_request("a library is not callable"),
            None => refuse_request(format!("there is no function with the handle {function}")),
        }
    }

    fn find_library(&self, handle: u64) -> Result<Library, RequestRefusal> {
        match self.objects.get(&handle) {
            Some(SessionObject::Library(library)) => Ok(library.clone()),
            _ => refuse_request(format!("there is no library with the handle {handle}")),
        }
    }
}

enum Returned {
    Value(Value),
    Object(SessionObject),
}

fn begin_session(version: &str, arguments: &[Value]) -> Answer {
    if version != VERSION {
        return refuse_request(format!(
            "version mismatch: the client uses version {version} of the protocol, this agent version {VERSION}"
        ));
    }
    match arguments.first() {
        None | Some(Value::None) => Ok(Packet::ok_reply(vec![Value::None])),
        Some(_) => refuse_request("the board agent does not relay sessions to other servers"),
    }
}

fn require_cpu(device: Device) -> Result<(), RequestRefusal> {
    if device == Device::CPU {
        Ok(())
    } else {
        refuse_request(format!("the board agent provides only its CPU, not the device {device:?}"))
    }
}
