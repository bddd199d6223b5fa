//! What can go wrong with somebody far away, each with the next step.

use crate::Address;

/// What is waited for while a server says who it is.
pub(crate) const GREETING_SERVER: &str = "greeting the server";
/// The same of a tracker.
pub(crate) const GREETING_TRACKER: &str = "greeting the tracker";
/// What is waited for while a tracker has nothing to lend.
pub(crate) const LENDING: &str = "waiting for a free device";

/// Why something remote was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// Nobody answers at the address.
    #[error("cannot reach {address}: {why}")]
    Unreachable {
        /// The address.
        address: Address,
        /// The system's reason.
        why: String,
    },
    /// What listens there speaks something else.
    #[error("{address} is no {wanted}: it answered {got}")]
    SpeaksOtherwise {
        /// The address.
        address: Address,
        /// What was expected there.
        wanted: &'static str,
        /// What came.
        got: String,
    },
    /// The server does not take this key.
    #[error("{address} refuses the key `{key}`: {why}")]
    KeyRefused {
        /// The address.
        address: Address,
        /// The key, less its secret.
        key: String,
        /// What it said.
        why: &'static str,
    },
    /// The server serves another client.
    #[error("{address} is busy with another client")]
    Busy {
        /// The address.
        address: Address,
    },
    /// No answer in time.
    #[error("no answer within {limit_ms} ms while {doing}")]
    TimedOut {
        /// What was waited for.
        doing: &'static str,
        /// How long.
        limit_ms: u64,
    },
    /// The other side closed the connection instead of answering.
    #[error("the connection was closed while {doing}")]
    Closed {
        /// What was waited for.
        doing: &'static str,
    },
    /// The other side answered with an error.
    #[error("the server answers: {0}")]
    Refused(String),
    /// The answer breaks the protocol.
    #[error("the answer is damaged: {0}")]
    Malformed(String),
    /// The session ended with an earlier error.
    #[error("the session has ended")]
    Ended,
}

impl RemoteError {
    /// What to try next, where something can be said.
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
