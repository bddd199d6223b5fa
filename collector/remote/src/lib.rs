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

use std::net::Ipv6Addr;

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
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
        let host = host_without_port(host).filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        Ok(Address { host: host.to_owned(), port })
    }
}

/// Returns a host without the brackets of IPv6; None if it contains a port.
pub fn host_without_port(text: &str) -> Option<&str> {
    let host = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let number = host.split('%').next().unwrap_or(host);
    (!host.contains(':') || number.parse::<Ipv6Addr>().is_ok()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::{Address, host_without_port};

    #[test]
    fn a_host_contains_no_port() {
        let allowed = ["board", "10.0.0.7", "::1", "[::1]", "fe80::1%eth0"];
        assert_eq!(allowed.map(host_without_port), ["board", "10.0.0.7", "::1", "::1", "fe80::1%eth0"].map(Some));
        assert_eq!(["10.0.0.7:9090", "board:9090", "[::1]:9090"].map(host_without_port), [None; 3]);
        let parsed = |text: &str| text.parse::<Address>().map(|address| address.to_string());
        assert_eq!(parsed("[::1]:9190"), Ok("[::1]:9190".to_owned()));
        assert_eq!(parsed("board:9190"), Ok("board:9190".to_owned()));
        for wrong in ["board:1:9190", ":9190", "board", "board:0"] {
            let told = parsed(wrong).expect_err("not an address");
            assert_eq!(told, format!("`{wrong}` is not an address; write HOST:PORT, such as 127.0.0.1:9190"));
        }
    }
}
