//! Errors of remote sessions, each with a hint.

use crate::Address;

pub(crate) const GREETING_SERVER: &str = "greeting the server";
pub(crate) const GREETING_TRACKER: &str = "greeting the tracker";
pub(crate) const LENDING: &str = "waiting for a free device";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    #[error("cannot reach {address}: {why}")]
    Unreachable { address: Address, why: String },
    #[error("{address} is no {wanted}: it answered {got}")]
    SpeaksOtherwise { address: Address, wanted: &'static str, got: String },
    #[error("{address} refuses the key `{key}`: {why}")]
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
    #[error("the server answers: {0}")]
    Refused(String),
    #[error("the answer is damaged: {0}")]
    Malformed(String),
    /// The session ended with an earlier error.
    #[error("the session has ended")]
    Ended,
}

impl RemoteError {
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            RemoteError::Unreachable { .. } => Some(
                "is the board on, and is `opcollect-board`, or TVM's server or tracker, running there on this port?",
            ),
            RemoteError::SpeaksOtherwise { wanted: "RPC server", .. } => Some(
                "give the port of `opcollect-board` or of TVM's `rpc_server`; a tracker is given by `--tracker HOST:PORT`",
            ),
            RemoteError::SpeaksOtherwise { .. } => {
                Some("give the port of TVM's `rpc_tracker`; a server is given by `--host` and `--port`")
            }
            RemoteError::KeyRefused { .. } => {
                Some("give the key that the server was started with by `--key`, and its secret by `--secret-file`")
            }
            RemoteError::Busy { .. } => {
                Some("a board serves one client at a time: end the other one, or wait longer by `--board-wait`")
            }
            RemoteError::TimedOut { doing: LENDING, .. } => Some(
                "all devices of the key are lent, or the tracker knows none of it: see `opcollect fleet status`, or wait longer \
                 by `--board-wait`",
            ),
            RemoteError::TimedOut { doing: GREETING_SERVER | GREETING_TRACKER, .. } => Some(
                "TVM's server may be in another session, it may be frozen, or the port may belong to something else, such as a web \
                 server: look at what listens there",
            ),
            RemoteError::TimedOut { .. } => Some(
                "the other side may be busy with another session, or frozen: wait for it, or start its server again",
            ),
            RemoteError::Refused(why) if why.contains("version") => {
                Some("this program speaks version 0.8.0 of the protocol, that of TVM 0.20 and later; update the server")
            }
            RemoteError::Closed { .. } => Some("look at the server's own messages"),
            RemoteError::Refused(_) | RemoteError::Malformed(_) | RemoteError::Ended => None,
        }
    }
}
