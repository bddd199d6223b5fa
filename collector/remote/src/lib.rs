//! Client and data types of TVM's RPC session and tracker protocols.
//!
//! All integers are little-endian, and all input is untrusted: every announced length has a limit, and memory grows
//! only with bytes that have arrived. Every wait ends at its caller's deadline, even if the peer sends slowly.

pub mod agent;
mod error;
pub mod fabric;
pub mod handshake;
pub mod packet;
pub mod session;
pub mod tracker;
mod wait;
pub mod wire;

pub use error::RemoteError;
pub use handshake::Key;
pub use session::Session;
pub use tracker::Tracker;
pub use wait::{Waiting, connect_within};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl std::str::FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let wrong = || format!("`{text}` is not an address; write HOST:PORT, such as 127.0.0.1:9190");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
        if host.is_empty() { Err(wrong()) } else { Ok(Address { host: host.to_owned(), port }) }
    }
}
