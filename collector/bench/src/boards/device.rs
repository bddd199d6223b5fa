//! One device at a time: where it is, the session with it, and what it says of itself.

use remote::agent::{HOST, LEAVE, Told};
use remote::handshake::Key;
use remote::tracker::Turn;
use remote::wire::Value;
use remote::{Address, RemoteError, Session, Tracker};
use std::time::{Duration, Instant};

/// How devices are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Where.
    pub at: At,
    /// What is offered: the server's key, or the key that devices have at a tracker.
    pub key: String,
    /// What the servers want every client to know.
    pub secret: Option<String>,
    /// A server is given so long to greet, and a tracker to lend a device.
    pub patience: Duration,
    /// Who gets a device of a tracker first.
    pub turn: Turn,
}

/// A server, or who knows servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum At {
    /// One server.
    Server(Address),
    /// A tracker that lends devices.
    Tracker(Address),
}

/// A device in a session.
pub struct Device {
    /// The session.
    pub session: Session,
    /// What its agent says; TVM's own server says nothing.
    pub told: Option<Told>,
    /// Where it is.
    pub address: Address,
    /// Libraries that were uploaded in this session.
    pub uploads: u64,
    /// How many threads its pool has, where nobody else says.
    pub threads: Option<usize>,
    /// What LLVM says of its processor, where its server has LLVM.
    pub llvm: Option<(String, String)>,
}

/// A session's own watchdog ends it after so long: beyond any single job's deadline.
const SESSION: Duration = Duration::from_secs(3000);

impl Device {
    /// Begins a session with the server, or with the next device that the tracker lends.
    pub fn open(access: &Access) -> Result<Device, RemoteError> {
        let (address, name) = match &access.at {
            At::Server(address) => (address.clone(), access.key.clone()),
            At::Tracker(tracker) => {
                let lent = Tracker::open(tracker, access.patience)?;
                let lent = lent.request(&access.key, "opcollect", access.turn, access.patience)?;
                (lent.address, lent.match_key)
            }
        };
        let key = Key { name, secret: access.secret.clone(), timeout: Some(SESSION) };
        let mut session = Session::open(&address, &key, access.patience)?;
        let told = told(&mut session)?;
        let (mut threads, mut llvm) = (None, None);
        if told.is_none() {
            threads = number(&mut session, "runtime.NumThreads")?;
            llvm = text(&mut session, "target.llvm_get_system_cpu")?
                .zip(text(&mut session, "target.llvm_get_system_triple")?);
        }
        Ok(Device { session, told, address, uploads: 0, threads, llvm })
    }

    /// Asks its agent to serve nobody after this session; whether it is going to.
    pub fn leave(mut self) -> Result<bool, RemoteError> {
        let Some(function) = self.session.function(LEAVE)? else { return Ok(false) };
        self.session.call(function, Vec::new()).map(|_| true)
    }

    /// What devices must have in common whose times stand under one description: processor, and whether it is emulated.
    pub fn likeness(&self) -> String {
        let unknown = "an unknown processor";
        match (&self.told, &self.llvm) {
            (Some(told), _) => {
                let model = told.facts.cpu_model.as_deref().unwrap_or(unknown);
                let how = if told.emulated.is_some() { "emulated" } else { "hardware" };
                format!("{how} of {}, {model}", told.facts.architecture)
            }
            (None, Some((cpu, triple))) => format!("TVM's server on {cpu} of {triple}"),
            (None, None) => format!("TVM's server on {unknown}"),
        }
    }

    /// The same, again and again for as long as the patience says: a server that was killed is started again by somebody.
    pub fn open_again(access: &Access, is_wanted: &dyn Fn() -> bool) -> Result<Device, RemoteError> {
        const FIRST: Duration = Duration::from_millis(50);
        const LONGEST: Duration = Duration::from_secs(2);
        let until = Instant::now() + access.patience;
        let mut pause = FIRST;
        loop {
            match Device::open(access) {
                Ok(device) => return Ok(device),
                // Waiting changes no key and makes no server of what is none.
                Err(error @ (RemoteError::KeyRefused { .. } | RemoteError::SpeaksOtherwise { .. }))
                    if matches!(access.at, At::Server(_)) =>
                {
                    return Err(error);
                }
                Err(error) if Instant::now() + pause >= until || !is_wanted() => return Err(error),
                Err(_) => std::thread::sleep(pause),
            }
            pause = (pause * 2).min(LONGEST);
        }
    }
}

fn told(session: &mut Session) -> Result<Option<Told>, RemoteError> {
    let Some(function) = session.function(HOST)? else { return Ok(None) };
    let Value::Text(text) = session.call(function, Vec::new())? else {
        return Err(RemoteError::Malformed("an agent tells nothing of itself".to_owned()));
    };
    let told = serde_json::from_str(&text);
    told.map(Some).map_err(|error| RemoteError::Refused(format!("the agent is of another version: {error}")))
}

fn number(session: &mut Session, name: &str) -> Result<Option<usize>, RemoteError> {
    let Some(function) = session.function(name)? else { return Ok(None) };
    match session.call(function, Vec::new()) {
        Ok(Value::Int(number)) => Ok(usize::try_from(number).ok()),
        Ok(_) | Err(RemoteError::Refused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn text(session: &mut Session, name: &str) -> Result<Option<String>, RemoteError> {
    let Some(function) = session.function(name)? else { return Ok(None) };
    match session.call(function, Vec::new()) {
        Ok(Value::Text(text)) => Ok(Some(text)),
        Ok(_) | Err(RemoteError::Refused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
