//! Handshake of a session: both sides identify themselves and the server checks the client's key.

use crate::error::GREETING_SERVER;
use crate::{Address, RemoteError, Waiting, connect};
use std::time::Duration;

/// Magic number that starts the handshake with a server.
pub const MAGIC: i32 = 0x000f_f271;
/// Magic number that starts the handshake with a tracker.
pub const TRACKER_MAGIC: i32 = 0x0002_f271;
const KEY_BYTES_MAX: usize = 4096;

/// Key that a client offers: the server's own or one issued by a tracker, with options for the session.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Key {
    /// Name that identifies the server or the session.
    pub name: String,
    /// Secret shared with authorised clients.
    pub secret: Option<String>,
    /// Time after which the server ends the session.
    pub timeout: Option<Duration>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({}, timeout {:?})", self.name, self.timeout)
    }
}

impl Key {
    fn text(&self) -> String {
        let secret = self.secret.as_ref().map_or(String::new(), |secret| format!("#{secret}"));
        let timeout = self.timeout.map_or(String::new(), |timeout| format!(" -timeout={}", timeout.as_secs_f64()));
        format!("client:{}{secret}{timeout}", self.name)
    }

    /// Parses the key that a client sent. Returns `None` if the text is no client key.
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

/// A server's decision on a client's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeVerdict {
    /// The key is accepted.
    Taken = 0,
    /// The server is busy with another client. TVM's clients report an error at this code.
    Duplicate = 1,
    /// The key is not valid for this server.
    Mismatch = 2,
}

/// Connects to a server and offers a key once, without retries. Returns the connection if the server accepts the key.
pub fn greet_server(address: &Address, key: &Key, within: Duration) -> Result<Waiting, RemoteError> {
    let mut waiting = connect(address, within)?;
    waiting.begin(GREETING_SERVER, within);
    offer(key, address, &mut waiting)?;
    Ok(waiting)
}

/// Performs the client's side of the handshake.
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

/// Receives the client's key: the server's side of the handshake up to the verdict.
pub fn hear(from: &mut Waiting) -> Result<Key, RemoteError> {
    let magic = from.number()?;
    if magic != MAGIC {
        return Err(RemoteError::Malformed(format!("a client begins with {}", shown(magic))));
    }
    let text = take_key(from)?;
    Key::read(&text).ok_or_else(|| RemoteError::Malformed("a client's key does not begin with `client:`".to_owned()))
}

/// Sends the verdict, followed by the server's key if the client was accepted.
pub fn answer(verdict: HandshakeVerdict, key: &str, to: &mut Waiting) -> Result<(), RemoteError> {
    let mut bytes = (MAGIC + verdict as i32).to_le_bytes().to_vec();
    if verdict == HandshakeVerdict::Taken {
        put_key(&format!("server:{key}"), &mut bytes);
    }
    to.send(&bytes)
}

/// Performs the handshake with a tracker.
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

/// Formats four received bytes for an error message: as text if they are printable, else as a number.
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
