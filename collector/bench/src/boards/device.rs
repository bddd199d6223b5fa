//! A remote device: its address, the RPC session with the device, and the facts that the device reports.

use remote::agent::{AgentDescription, HOST, LEAVE};
use remote::handshake::Key;
use remote::tracker::QueuePosition;
use remote::wire::Value;
use remote::{Address, RemoteError, Session, Tracker};
use std::time::{Duration, Instant};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    pub at: DeviceLocation,
    /// Key that the server requires, or name of the devices at a tracker.
    pub key: String,
    pub secret: Option<String>,
    /// Timeout for a server's greeting and for the assignment of a device by a tracker.
    pub patience: Duration,
    pub position: QueuePosition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceLocation {
    Server(Address),
    Tracker(Address),
}

pub struct Device {
    pub session: Session,
    /// Facts reported by the agent; None for TVM's own server.
    pub description: Option<AgentDescription>,
    pub address: Address,
    pub uploads: u64,
    /// Size of the thread pool of a server without our agent.
    pub threads: Option<usize>,
    /// LLVM's CPU name and target triple, for a server with LLVM and without our agent.
    pub llvm: Option<(String, String)>,
}

/// Time limit that the session requests from the device's server; longer than the deadline of any single job.
const SESSION: Duration = Duration::from_secs(3000);

impl Device {
    /// Opens a session with the server, or with the next device that the tracker assigns.
    pub fn open(access: &Access) -> Result<Device, RemoteError> {
        let (address, name) = match &access.at {
            DeviceLocation::Server(address) => (address.clone(), access.key.clone()),
            DeviceLocation::Tracker(tracker) => {
                let lent = Tracker::open(tracker, access.patience)?;
                let lent = lent.request_device(&access.key, "opcollect", access.position, access.patience)?;
                (lent.address, lent.match_key)
            }
        };
        let key = Key { name, secret: access.secret.clone(), timeout: Some(SESSION) };
        let mut session = Session::open(&address, &key, access.patience)?;
        let description = read_description(&mut session)?;
        let (mut threads, mut llvm) = (None, None);
        if description.is_none() {
            threads = call_number(&mut session, "runtime.NumThreads")?;
            llvm = call_text(&mut session, "target.llvm_get_system_cpu")?
                .zip(call_text(&mut session, "target.llvm_get_system_triple")?);
        }
        Ok(Device { session, description, address, uploads: 0, threads, llvm })
    }

    /// Asks the agent to stop. Returns false if the agent cannot stop after this session.
    pub fn stop_agent(mut self) -> Result<bool, RemoteError> {
        let Some(function) = self.session.find_function(LEAVE)? else { return Ok(false) };
        self.session.call(function, Vec::new()).map(|_| true)
    }

    /// Describes the processor and whether it is emulated. All devices of a campaign must have the same description.
    pub fn likeness(&self) -> String {
        let unknown = "a processor of unknown type";
        match (&self.description, &self.llvm) {
            (Some(description), _) => {
                let model = description.facts.cpu_model.as_deref().unwrap_or(unknown);
                let how = if description.emulated.is_some() { "emulated" } else { "hardware" };
                format!("{how} of {}, {model}", description.facts.architecture)
            }
            (None, Some((cpu, triple))) => format!("TVM's server on {cpu} of {triple}"),
            (None, None) => format!("TVM's server on {unknown}"),
        }
    }

    /// Opens a session as `open` does, and retries until the timeout, because a killed server may be restarted.
    pub fn open_again(access: &Access, is_wanted: &dyn Fn() -> bool) -> Result<Device, RemoteError> {
        const FIRST: Duration = Duration::from_millis(50);
        const LONGEST: Duration = Duration::from_secs(2);
        let until = Instant::now() + access.patience;
        let mut pause = FIRST;
        loop {
            match Device::open(access) {
                Ok(device) => return Ok(device),
                // A retry cannot fix a wrong key or a server of another protocol.
                Err(error @ (RemoteError::KeyRefused { .. } | RemoteError::SpeaksOtherwise { .. }))
                    if matches!(access.at, DeviceLocation::Server(_)) =>
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

fn read_description(session: &mut Session) -> Result<Option<AgentDescription>, RemoteError> {
    let Some(function) = session.find_function(HOST)? else { return Ok(None) };
    let Value::Text(text) = session.call(function, Vec::new())? else {
        return Err(RemoteError::Malformed("the agent sent no description of itself".to_owned()));
    };
    let description = serde_json::from_str(&text);
    description.map(Some).map_err(|error| {
        RemoteError::Refused(format!(
            "the agent's description is invalid; agent and `opcollect` may have different versions: {error}"
        ))
    })
}

fn call_number(session: &mut Session, name: &str) -> Result<Option<usize>, RemoteError> {
    let Some(function) = session.find_function(name)? else { return Ok(None) };
    match session.call(function, Vec::new()) {
        Ok(Value::Int(number)) => Ok(usize::try_from(number).ok()),
        Ok(_) | Err(RemoteError::Refused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn call_text(session: &mut Session, name: &str) -> Result<Option<String>, RemoteError> {
    let Some(function) = session.find_function(name)? else { return Ok(None) };
    match session.call(function, Vec::new()) {
        Ok(Value::Text(text)) => Ok(Some(text)),
        Ok(_) | Err(RemoteError::Refused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
