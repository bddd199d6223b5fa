//! Client of a tracker, which assigns devices to clients. Messages are JSON after a four-byte length.

use crate::error::{ASSIGNMENT, GREETING_TRACKER};
use crate::handshake::greet_tracker;
use crate::{Address, RemoteError, Waiting, connect_within};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum length of a message, as in TVM's trackers.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

mod code {
    pub const SUCCESS: i64 = 0;
    pub const PUT: i64 = 3;
    pub const REQUEST: i64 = 4;
    pub const INFO: i64 = 5;
    pub const SUMMARY: i64 = 6;
    pub const PENDING: i64 = 7;
}

/// A device assigned by a tracker, valid for one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedDevice {
    pub address: Address,
    pub match_key: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePosition {
    Last = 1,
    /// Priority of a request that is served before all waiting requests.
    First = 2,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    pub free: u64,
    pub pending: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrackerSummary {
    pub queues: BTreeMap<String, Queue>,
    pub servers: Vec<(String, String)>,
}

pub struct Tracker {
    waiting: Waiting,
    address: Address,
}

impl Tracker {
    pub fn open(address: &Address, within: Duration) -> Result<Tracker, RemoteError> {
        let mut waiting = connect_within(address, within)?;
        waiting.begin_activity(GREETING_TRACKER, within);
        greet_tracker(address, &mut waiting)?;
        Ok(Tracker { waiting, address: address.clone() })
    }

    /// Waits for a device with this key. Consumes the connection, because a late reply would be taken for the reply to
    /// a later request.
    pub fn request_device(
        mut self,
        key: &str,
        user: &str,
        position: QueuePosition,
        within: Duration,
    ) -> Result<AssignedDevice, RemoteError> {
        let answer = self.send_request(ASSIGNMENT, json!([code::REQUEST, key, user, position as i64]), within)?;
        parse_assignment(&answer).ok_or_else(|| refusal_error(&answer))
    }

    pub fn request_summary(&mut self, within: Duration) -> Result<TrackerSummary, RemoteError> {
        let answer = self.send_request("requesting a summary", json!([code::SUMMARY]), within)?;
        parse_summary(&answer).ok_or_else(|| refusal_error(&answer))
    }

    /// Registers, under a key, the RPC server that this connection belongs to.
    pub fn register_server(&mut self, key: &str, port: u16, within: Duration) -> Result<(), RemoteError> {
        let info = json!({ "key": format!("server:{key}"), "addr": [Json::Null, port] });
        let answer = self.send_request("registering", json!([code::INFO, info]), within)?;
        is_success(&answer).then_some(()).ok_or_else(|| refusal_error(&answer))
    }

    pub fn offer_session(
        &mut self,
        key: &str,
        port: u16,
        match_key: &str,
        within: Duration,
    ) -> Result<(), RemoteError> {
        let answer =
            self.send_request("offering a session", json!([code::PUT, key, [port, match_key], Json::Null]), within)?;
        is_success(&answer).then_some(()).ok_or_else(|| refusal_error(&answer))
    }

    /// Returns the match keys (keys for one session) offered over this connection that no client has used yet.
    pub fn pending_keys(&mut self, within: Duration) -> Result<Vec<String>, RemoteError> {
        let answer =
            self.send_request("querying the devices that are still offered", json!([code::PENDING]), within)?;
        let keys = answer.as_array().ok_or_else(|| refusal_error(&answer))?;
        Ok(keys.iter().filter_map(|key| key.as_str().map(str::to_owned)).collect())
    }

    pub fn address(&self) -> &Address {
        &self.address
    }

    fn send_request(&mut self, doing: &'static str, question: Json, within: Duration) -> Result<Json, RemoteError> {
        self.waiting.begin_activity(doing, within);
        let text = question.to_string();
        let mut bytes = (text.len() as i32).to_le_bytes().to_vec();
        bytes.extend(text.as_bytes());
        self.waiting.send(&bytes)?;
        let length = self.waiting.read_i32()?;
        let length = usize::try_from(length).ok().filter(|length| *length <= MESSAGE_BYTES_MAX);
        let length = length.ok_or_else(|| RemoteError::Malformed("the tracker's message is too long".to_owned()))?;
        parse_message(&self.waiting.read_bytes(length)?)
    }
}

pub fn parse_message(bytes: &[u8]) -> Result<Json, RemoteError> {
    serde_json::from_slice(bytes)
        .map_err(|error| RemoteError::Malformed(format!("the tracker's message is not JSON: {error}")))
}

pub fn parse_assignment(answer: &Json) -> Option<AssignedDevice> {
    let [status, device] = answer.as_array()?.as_slice() else { return None };
    let [host, port, match_key] = device.as_array()?.as_slice() else { return None };
    if status.as_i64()? != code::SUCCESS {
        return None;
    }
    let port = u16::try_from(port.as_u64()?).ok().filter(|port| *port > 0)?;
    let address = Address { host: host.as_str()?.to_owned(), port };
    Some(AssignedDevice { address, match_key: match_key.as_str()?.to_owned() })
}

pub fn parse_summary(answer: &Json) -> Option<TrackerSummary> {
    let [status, summary] = answer.as_array()?.as_slice() else { return None };
    if status.as_i64()? != code::SUCCESS {
        return None;
    }
    let count = |queue: &Json, name: &str| queue.get(name).and_then(Json::as_u64).unwrap_or(0);
    let queues = summary.get("queue_info")?.as_object()?.iter();
    let queues = queues
        .map(|(key, queue)| (key.clone(), Queue { free: count(queue, "free"), pending: count(queue, "pending") }));
    let servers = summary.get("server_info")?.as_array()?.iter().filter_map(|server| {
        let [host, port] = server.get("addr")?.as_array()?.as_slice() else { return None };
        let host = host.as_str().unwrap_or("?");
        let key = server.get("key")?.as_str()?;
        Some((format!("{host}:{port}"), key.strip_prefix("server:").unwrap_or(key).to_owned()))
    });
    Some(TrackerSummary { queues: queues.collect(), servers: servers.collect() })
}

fn is_success(answer: &Json) -> bool {
    answer.as_i64() == Some(code::SUCCESS)
}

fn refusal_error(answer: &Json) -> RemoteError {
    let text: String = answer.to_string().chars().take(200).collect();
    RemoteError::Refused(format!("the tracker reported: {text}"))
}
