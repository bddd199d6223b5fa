//! How a session begins: each side says who it is, and the server whether it takes the other's key.

use crate::error::GREETING_SERVER;
use crate::{Address, RemoteError, Waiting, connect};
use std::time::Duration;

/// What both sides begin with.
pub const MAGIC: i32 = 0x000f_f271;
/// What a tracker and whoever speaks to it begin with.
pub const TRACKER_MAGIC: i32 = 0x0002_f271;
/// A key may have so many bytes.
const KEY_BYTES_MAX: usize = 4096;

/// A client's key: the server's own, or one that a tracker gave, with what the server should know of the session.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Key {
    /// What the server is told from others by.
    pub name: String,
    /// What only those know who may use it.
    pub secret: Option<String>,
    /// The server ends the session after this.
    pub timeout: Option<Duration>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({}, timeout {:?})", self.name, self.timeout)
    }
}

impl Key {
    /// The key as it is sent.
    fn text(&self) -> String {
        let secret = self.secret.as_ref().map_or(String::new(), |secret| format!("#{secret}"));
        let timeout = self.timeout.map_or(String::new(), |timeout| format!(" -timeout={}", timeout.as_secs_f64()));
        format!("client:{}{secret}{timeout}", self.name)
    }

    /// What a client sent, where it is a client's.
    pub fn read(text: &str) -> Option<Key> {
        let text = text.strip_prefix("client:")?;
        let mut words = text.split(' ');
        let (name, secret) = match words.next()?.split_once('#') {
            Some((name, secret)) => (name.to_owned(), Some(secret.to_owned())),
            None => (text.split(' ').next()?.to_owned(), None),
        };
        let seconds = words.find_map(|word| word.strip_prefix("-timeout=")?.parse::<f64>().ok());
        let timeout = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Some(Key { name, secret, timeout })
    }
}

/// What a server says to a client's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is taken.
    Taken = 0,
    /// Another client has the server. TVM's clients end with an error at this code.
    Duplicate = 1,
    /// It is not this server's.
    Mismatch = 2,
}

/// Connects to a server and offers it a key, without another attempt. Returns the connection of a server that takes the key.
pub fn greet_server(address: &Address, key: &Key, within: Duration) -> Result<Waiting, RemoteError> {
    let mut waiting = connect(address, within)?;
    waiting.begin(GREETING_SERVER, within);
    offer(key, address, &mut waiting)?;
    Ok(waiting)
}

/// A client's part.
pub fn offer(key: &Key, address: &Address, to: &mut Waiting) -> Result<(), RemoteError> {
    let text = key.text();
    let mut bytes = MAGIC.to_le_bytes().to_vec();
    put_key(&text, &mut bytes);
    to.send(&bytes)?;
    match to.number()?.wrapping_sub(MAGIC) {
        0 => take_key(to).map(drop),
        1 => Err(RemoteError::Busy { address: address.clone() }),
        2 => Err(RemoteError::KeyRefused {
            address: address.clone(),
            key: key.name.clone(),
            why: "it is not its key, or the secret is wrong",
        }),
        other => Err(otherwise(address, "RPC server", other.wrapping_add(MAGIC))),
    }
}

/// A server's part up to its verdict: the client's key.
pub fn hear(from: &mut Waiting) -> Result<Key, RemoteError> {
    let magic = from.number()?;
    if magic != MAGIC {
        return Err(RemoteError::Malformed(format!("a client begins with {}", shown(magic))));
    }
    let text = take_key(from)?;
    Key::read(&text).ok_or_else(|| RemoteError::Malformed("a client's key does not begin with `client:`".to_owned()))
}

/// A server's verdict, and its own key where that is wanted.
pub fn answer(verdict: Verdict, key: &str, to: &mut Waiting) -> Result<(), RemoteError> {
    let mut bytes = (MAGIC + verdict as i32).to_le_bytes().to_vec();
    if verdict == Verdict::Taken {
        put_key(&format!("server:{key}"), &mut bytes);
    }
    to.send(&bytes)
}

/// Greets a tracker.
pub fn greet_tracker(address: &Address, to: &mut Waiting) -> Result<(), RemoteError> {
    to.send(&TRACKER_MAGIC.to_le_bytes())?;
    match to.number()? {
        TRACKER_MAGIC => Ok(()),
        other => Err(otherwise(address, "tracker", other)),
    }
}

fn otherwise(address: &Address, wanted: &'static str, got: i32) -> RemoteError {
    RemoteError::SpeaksOtherwise { address: address.clone(), wanted, got: shown(got) }
}

/// Four bytes for a reader: as text where they are.
fn shown(number: i32) -> String {
    let bytes = number.to_le_bytes();
    match std::str::from_utf8(&bytes) {
        Ok(text) if text.chars().all(|c| c.is_ascii_graphic() || c == ' ') => format!("`{text}…`"),
        _ => format!("{number:#010x}"),
    }
}

fn put_key(text: &str, to: &mut Vec<u8>) {
    to.extend((text.len() as i32).to_le_bytes());
    to.extend(text.as_bytes());
}

fn take_key(from: &mut Waiting) -> Result<String, RemoteError> {
    let length = from.number()?;
    let length = usize::try_from(length).ok().filter(|length| *length <= KEY_BYTES_MAX);
    let length = length.ok_or_else(|| RemoteError::Malformed("a key is too long".to_owned()))?;
    String::from_utf8(from.take(length)?).map_err(|_| RemoteError::Malformed("a key is no text".to_owned()))
}
