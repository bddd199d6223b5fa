//! Errors of remote sessions, each with a hint.

use crate::Address;

pub(crate) const GREETING_SERVER: &str = "greeting the server";
pub(crate) const GREETING_TRACKER: &str = "greeting the tracker";
pub(crate) const ASSIGNMENT: &str = "waiting for a free device";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    #[error("cannot reach {address}: {why}")]
    Unreachable { address: Address, why: String },
    #[error("{address} does not respond as a TVM {wanted}: it sent {got}")]
    SpeaksOtherwise { address: Address, wanted: &'static str, got: String },
    #[error("{address} rejects the key `{key}`: {why}")]
    KeyRefused {
        address: Address,
        /// Name of the key, without its secret.
        key: String,
        why: &'static str,
    },
    #[error("{address} is busy with another client")]
    Busy { address: Address },
    #[error("no answer within {limit_ms} ms while {doing}")]
    TimedOut { doing: &'static str, limit_ms: u64 },
    #[error("the connection was closed while {doing}")]
    Closed { doing: &'static str },
    #[error("the server reported an error: {0}")]
    Refused(String),
    #[error("the reply is invalid: {0}")]
    Malformed(String),
    #[error("the session has ended")]
    Ended,
}

impl RemoteError {
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            RemoteError::Unreachable { .. } => {
                Some("check that the board is on and runs `opcollect-board`, or TVM's server or tracker, on this port")
            }
            RemoteError::SpeaksOtherwise { wanted: "RPC server", .. } => Some(
                "give the port of `opcollect-board` or of TVM's `rpc_server`; for a tracker, use `--tracker HOST:PORT`",
            ),
            RemoteError::SpeaksOtherwise { .. } => {
                Some("give the port of TVM's `rpc_tracker`; for a server, use `--host` and `--port`")
            }
            RemoteError::KeyRefused { .. } => {
                Some("pass the server's key with `--key`, and its secret with `--secret-file`")
            }
            RemoteError::Busy { .. } => {
                Some("a board serves one client at a time: end the other client, or wait longer with `--board-wait`")
            }
            RemoteError::TimedOut { doing: ASSIGNMENT, .. } => Some(
                "all devices with this key are in use, or none is registered: see `opcollect fleet status`, or wait \
                 longer with `--board-wait`",
            ),
            RemoteError::TimedOut { doing: GREETING_SERVER | GREETING_TRACKER, .. } => Some(
                "TVM's server may be in another session or hang, or another service, such as a web server, may use \
                 the port: check what listens there",
            ),
            RemoteError::TimedOut { .. } => {
                Some("the server may be busy with another session, or hang: wait, or restart it")
            }
            RemoteError::Refused(why) if why.contains("version") => {
                Some("this program uses version 0.8.0 of the protocol, that of TVM 0.20 and later; update the server")
            }
            RemoteError::Closed { .. } => Some("see the log of the server"),
            RemoteError::Refused(_) | RemoteError::Malformed(_) | RemoteError::Ended => None,
        }
    }
}
