//! A tracker: who lends which device to whom. Frames of a length of four bytes and JSON, one answer to each question.

use crate::error::{GREETING_TRACKER, LENDING};
use crate::handshake::greet_tracker;
use crate::{Address, RemoteError, Waiting, connect};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// A message may have so many bytes, as trackers themselves say.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// The numbers of questions.
mod code {
    pub const SUCCESS: i64 = 0;
    pub const PUT: i64 = 3;
    pub const REQUEST: i64 = 4;
    pub const INFO: i64 = 5;
    pub const SUMMARY: i64 = 6;
    pub const PENDING: i64 = 7;
}

/// A device that a tracker lent: good for one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lent {
    /// Where its server listens.
    pub address: Address,
    /// The key to offer there.
    pub match_key: String,
}

/// Who gets a device before whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// In the order of asking.
    Own = 1,
    /// Before all who wait.
    Next = 2,
}

/// How many devices of a key are free, and how many requests wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Devices that nobody has.
    pub free: u64,
    /// Requests that wait for one.
    pub pending: u64,
}

/// What a tracker says of all its devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// By key.
    pub queues: BTreeMap<String, Queue>,
    /// Servers by address, with their keys.
    pub servers: Vec<(String, String)>,
}

/// A connection to a tracker.
pub struct Tracker {
    waiting: Waiting,
    address: Address,
}

impl Tracker {
    /// Connects within this time.
    pub fn open(address: &Address, within: Duration) -> Result<Tracker, RemoteError> {
        let mut waiting = connect(address, within)?;
        waiting.begin(GREETING_TRACKER, within);
        greet_tracker(address, &mut waiting)?;
        Ok(Tracker { waiting, address: address.clone() })
    }

    /// Waits for a device of a key. A request that was not answered in time ends with its connection, since its answer would
    /// come to the next question.
    pub fn request(mut self, key: &str, user: &str, turn: Turn, within: Duration) -> Result<Lent, RemoteError> {
        let answer = self.ask(LENDING, json!([code::REQUEST, key, user, turn as i64]), within)?;
        lent(&answer).ok_or_else(|| refused(&answer))
    }

    /// What it knows of all devices.
    pub fn summary(&mut self, within: Duration) -> Result<Summary, RemoteError> {
        let answer = self.ask("asking for a summary", json!([code::SUMMARY]), within)?;
        summary(&answer).ok_or_else(|| refused(&answer))
    }

    /// Says which server this connection is of.
    pub fn introduce(&mut self, key: &str, port: u16, within: Duration) -> Result<(), RemoteError> {
        let info = json!({ "key": format!("server:{key}"), "addr": [Json::Null, port] });
        let answer = self.ask("registering", json!([code::INFO, info]), within)?;
        is_success(&answer).then_some(()).ok_or_else(|| refused(&answer))
    }

    /// Offers a session to whoever asks for the key.
    pub fn put(&mut self, key: &str, port: u16, match_key: &str, within: Duration) -> Result<(), RemoteError> {
        let answer = self.ask("offering a session", json!([code::PUT, key, [port, match_key], Json::Null]), within)?;
        is_success(&answer).then_some(()).ok_or_else(|| refused(&answer))
    }

    /// The match keys of this connection that nobody has.
    pub fn pending(&mut self, within: Duration) -> Result<Vec<String>, RemoteError> {
        let answer = self.ask("asking what is still offered", json!([code::PENDING]), within)?;
        let keys = answer.as_array().ok_or_else(|| refused(&answer))?;
        Ok(keys.iter().filter_map(|key| key.as_str().map(str::to_owned)).collect())
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    fn ask(&mut self, doing: &'static str, question: Json, within: Duration) -> Result<Json, RemoteError> {
        self.waiting.begin(doing, within);
        let text = question.to_string();
        let mut bytes = (text.len() as i32).to_le_bytes().to_vec();
        bytes.extend(text.as_bytes());
        self.waiting.send(&bytes)?;
        let length = self.waiting.number()?;
        let length = usize::try_from(length).ok().filter(|length| *length <= MESSAGE_BYTES_MAX);
        let length = length.ok_or_else(|| RemoteError::Malformed("a tracker's message is too long".to_owned()))?;
        message(&self.waiting.take(length)?)
    }
}

/// A message of a tracker.
pub fn message(bytes: &[u8]) -> Result<Json, RemoteError> {
    serde_json::from_slice(bytes).map_err(|error| RemoteError::Malformed(format!("a tracker's message: {error}")))
}

/// The device of an answer to a request.
pub fn lent(answer: &Json) -> Option<Lent> {
    let [status, device] = answer.as_array()?.as_slice() else { return None };
    let [host, port, match_key] = device.as_array()?.as_slice() else { return None };
    if status.as_i64()? != code::SUCCESS {
        return None;
    }
    let port = u16::try_from(port.as_u64()?).ok().filter(|port| *port > 0)?;
    let address = Address { host: host.as_str()?.to_owned(), port };
    Some(Lent { address, match_key: match_key.as_str()?.to_owned() })
}

/// The summary of an answer.
pub fn summary(answer: &Json) -> Option<Summary> {
    let [status, told] = answer.as_array()?.as_slice() else { return None };
    if status.as_i64()? != code::SUCCESS {
        return None;
    }
    let count = |queue: &Json, name: &str| queue.get(name).and_then(Json::as_u64).unwrap_or(0);
    let queues = told.get("queue_info")?.as_object()?.iter();
    let queues = queues
        .map(|(key, queue)| (key.clone(), Queue { free: count(queue, "free"), pending: count(queue, "pending") }));
    let servers = told.get("server_info")?.as_array()?.iter().filter_map(|server| {
        let [host, port] = server.get("addr")?.as_array()?.as_slice() else { return None };
        let host = host.as_str().unwrap_or("?");
        let key = server.get("key")?.as_str()?;
        Some((format!("{host}:{port}"), key.strip_prefix("server:").unwrap_or(key).to_owned()))
    });
    Some(Summary { queues: queues.collect(), servers: servers.collect() })
}

fn is_success(answer: &Json) -> bool {
    answer.as_i64() == Some(code::SUCCESS)
}

fn refused(answer: &Json) -> RemoteError {
    let text: String = answer.to_string().chars().take(200).collect();
    RemoteError::Refused(format!("the tracker says {text}"))
}
