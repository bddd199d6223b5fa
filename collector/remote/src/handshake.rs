//! Handshake of a session: both sides identify themselves and the server checks the client's key.

use crate::error::GREETING_SERVER;
use crate::{Address, RemoteError, Waiting, connect_within};
use std::path::Path;
use std::time::Duration;

pub const MAGIC: i32 = 0x000f_f271;
pub const TRACKER_MAGIC: i32 = 0x0002_f271;
const KEY_BYTES_MAX: usize = 4096;

/// Key that a client offers: the server's own key or a key issued by a tracker, with options for the session.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Key {
    pub name: String,
    pub secret: Option<String>,
    pub timeout: Option<Duration>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({}, timeout {:?})", self.name, self.timeout)
    }
}

/// Reads the secret of a key from a file, since command lines are readable by all users.
pub fn read_secret(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|error| format!("cannot read `{}`: {error}", path.display()))?;
    let secret = text.trim();
    if secret.is_empty() || secret.contains([' ', '#', '\n']) {
        return Err(format!("`{}` must contain one word without `#`", path.display()));
    }
    Ok(secret.to_owned())
}

impl Key {
    fn to_text(&self) -> String {
        let secret = self.secret.as_ref().map_or(String::new(), |secret| format!("#{secret}"));
        let timeout = self.timeout.map_or(String::new(), |timeout| format!(" -timeout={}", timeout.as_secs_f64()));
        format!("client:{}{secret}{timeout}", self.name)
    }

    pub fn from_text(text: &str) -> Option<Key> {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeVerdict {
    Taken = 0,
    /// The server is busy; on receiving this code, TVM's clients report an error.
    Duplicate = 1,
    Mismatch = 2,
}

/// Offers a key once, without retries; fails unless the server accepts the key.
pub fn greet_server(address: &Address, key: &Key, within: Duration) -> Result<Waiting, RemoteError> {
    let mut waiting = connect_within(address, within)?;
    waiting.begin_activity(GREETING_SERVER, within);
    offer_key(key, address, &mut waiting)?;
    Ok(waiting)
}

pub fn offer_key(key: &Key, address: &Address, to: &mut Waiting) -> Result<(), RemoteError> {
    let text = key.to_text();
    let mut bytes = MAGIC.to_le_bytes().to_vec();
    put_key(&text, &mut bytes);
    to.send(&bytes)?;
    match to.read_i32()?.wrapping_sub(MAGIC) {
        0 => take_key(to).map(drop),
        1 => Err(RemoteError::Busy { address: address.clone() }),
        2 => {
            Err(RemoteError::KeyRefused { address: address.clone(), key: key.name.clone(), why: "wrong key or secret" })
        }
        other => Err(wrong_protocol(address, "RPC server", other.wrapping_add(MAGIC))),
    }
}

/// Performs the server's side of the handshake up to the verdict.
pub fn receive_key(from: &mut Waiting) -> Result<Key, RemoteError> {
    let magic = from.read_i32()?;
    if magic != MAGIC {
        return Err(RemoteError::Malformed(format!(
            "a client starts with {} instead of the protocol's magic number",
            format_magic(magic)
        )));
    }
    let text = take_key(from)?;
    Key::from_text(&text)
        .ok_or_else(|| RemoteError::Malformed("the client's key does not start with `client:`".to_owned()))
}

/// Sends the verdict, followed by the server's key if the client was accepted.
pub fn send_verdict(verdict: HandshakeVerdict, key: &str, to: &mut Waiting) -> Result<(), RemoteError> {
    let mut bytes = (MAGIC + verdict as i32).to_le_bytes().to_vec();
    if verdict == HandshakeVerdict::Taken {
        put_key(&format!("server:{key}"), &mut bytes);
    }
    to.send(&bytes)
}

pub fn greet_tracker(address: &Address, to: &mut Waiting) -> Result<(), RemoteError> {
    to.send(&TRACKER_MAGIC.to_le_bytes())?;
    match to.read_i32()? {
        TRACKER_MAGIC => Ok(()),
        other => Err(wrong_protocol(address, "tracker", other)),
    }
}

fn wrong_protocol(address: &Address, wanted: &'static str, got: i32) -> RemoteError {
    RemoteError::SpeaksOtherwise { address: address.clone(), wanted, got: format_magic(got) }
}

fn format_magic(number: i32) -> String {
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
    let length = from.read_i32()?;
    let length = usize::try_from(length).ok().filter(|length| *length <= KEY_BYTES_MAX);
    let length = length.ok_or_else(|| RemoteError::Malformed("the key is too long".to_owned()))?;
    String::from_utf8(from.read_bytes(length)?)
        .map_err(|_| RemoteError::Malformed("the key is not UTF-8 text".to_owned()))
}
