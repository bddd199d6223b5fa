//! Admission of clients to the board. Each client is greeted on its own thread, so that a silent client delays no
//! other, and a second client learns at once that the board is busy.

use crate::registration::Registration;
use nix::libc::POLLRDHUP;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use remote::handshake::{self, HandshakeVerdict, Key};
use remote::{RemoteError, Waiting};
use std::collections::VecDeque;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

const GREETING: Duration = Duration::from_secs(5);
/// Maximum number of concurrent handshakes; beyond it, the oldest handshake is ended.
const GREETINGS_MAX: usize = 64;
const STACK_BYTES: usize = 256 << 10;

pub struct Client {
    pub stream: TcpStream,
    pub address: SocketAddr,
}

pub type Admitted = (Arc<Client>, Key);

pub struct Admission {
    key: String,
    secret: Option<String>,
    log: fn(String),
    /// Registration at the tracker. Locked while waiting for the tracker, and always before `occupancy`.
    registration: Option<Mutex<Registration>>,
    /// Occupancy of the board. Never locked while waiting for a peer, since every greeting locks it.
    occupancy: Mutex<Occupancy>,
}

#[derive(Default)]
struct Occupancy {
    /// Key that the tracker gives to the next client. `None` unless a session is offered to the tracker.
    match_key: Option<String>,
    /// Client of the running session; once this client disconnects, the client of the next session.
    holder: Option<Arc<Client>>,
}

impl Admission {
    pub fn new(key: &str, secret: Option<&str>, registration: Option<Registration>, log: fn(String)) -> Admission {
        let (registration, occupancy) = (registration.map(Mutex::new), Mutex::default());
        Admission { key: key.to_owned(), secret: secret.map(str::to_owned), log, registration, occupancy }
    }

    pub fn offer_session(&self) {
        let Some(registration) = &self.registration else { return };
        let mut registration = registration.lock().expect("no thread panics with the lock");
        let offered = {
            let occupancy = self.lock_occupancy();
            if occupancy.holder.is_some() {
                return;
            }
            occupancy.match_key.clone()
        };
        if let Err(error) = registration.ensure_offer(offered.as_deref(), |key| self.set_match_key(key)) {
            (self.log)(format!("cannot reach the tracker: {error}; trying again"));
        }
    }

    /// Sets the tracker's key for the next client. Returns false if a client has occupied the board meanwhile.
    fn set_match_key(&self, key: Option<String>) -> bool {
        let mut occupancy = self.lock_occupancy();
        let is_free = occupancy.holder.is_none();
        if is_free {
            occupancy.match_key = key;
        }
        is_free
    }

    pub fn release_client(&self, client: &Arc<Client>) {
        let mut occupancy = self.lock_occupancy();
        occupancy.holder = occupancy.holder.take().filter(|holder| !Arc::ptr_eq(holder, client));
    }

    fn lock_occupancy(&self) -> MutexGuard<'_, Occupancy> {
        self.occupancy.lock().expect("no thread panics with the lock")
    }

    fn greet_client(&self, client: &Arc<Client>) -> Result<Option<Key>, RemoteError> {
        let copy = client.stream.try_clone().map_err(|error| RemoteError::Malformed(error.to_string()))?;
        let mut waiting = Waiting::new(copy, GREETING);
        waiting.begin_activity("reading its key", GREETING);
        let key = handshake::receive_key(&mut waiting)?;
        let verdict = self.admit_client(&key, client);
        waiting.begin_activity("answering its key", GREETING);
        let answered = handshake::send_verdict(verdict, &self.key, &mut waiting);
        match verdict {
            // If the reply does not arrive, the session notices that its client has gone.
            HandshakeVerdict::Taken => Ok(Some(key)),
            HandshakeVerdict::Duplicate => answered.map(|()| None),
            HandshakeVerdict::Mismatch => Err(RemoteError::Refused("the key is wrong".to_owned())),
        }
    }

    /// Admits a client with the correct key if the board is free. The match key of a tracker is valid for one session.
    fn admit_client(&self, key: &Key, client: &Arc<Client>) -> HandshakeVerdict {
        let mut occupancy = self.lock_occupancy();
        let offered = self.registration.as_ref().map(|_| occupancy.match_key.as_deref().unwrap_or_default());
        let expected = offered.unwrap_or(&self.key);
        let secret = self.secret.as_deref();
        let knows = secret.is_none_or(|secret| is_same(secret, key.secret.as_deref().unwrap_or_default()));
        // An agent without its own key accepts any key.
        let is_ours = expected.is_empty() && offered.is_none() || is_same(expected, &key.name) && !expected.is_empty();
        if !knows || !is_ours {
            return HandshakeVerdict::Mismatch;
        }
        if occupancy.holder.as_ref().is_some_and(|holder| !has_hung_up(&holder.stream)) {
            return HandshakeVerdict::Duplicate;
        }
        occupancy.holder = Some(Arc::clone(client));
        // The next session gets a new key.
        occupancy.match_key = None;
        HandshakeVerdict::Taken
    }
}

pub fn greet_all(listener: &TcpListener, admission: &Arc<Admission>, admitted: &Sender<Admitted>) {
    /// Delay after a failed accept, such as with too many open files.
    const PAUSE: Duration = Duration::from_millis(50);
    let mut greetings: VecDeque<(JoinHandle<()>, Weak<Client>)> = VecDeque::new();
    loop {
        let Ok((stream, address)) = listener.accept() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let client = Arc::new(Client { stream, address });
        greetings.retain(|(greeting, _)| !greeting.is_finished());
        if greetings.len() >= GREETINGS_MAX
            && let Some((oldest, client)) = greetings.pop_front()
        {
            if let Some(client) = client.upgrade() {
                let _ = client.stream.shutdown(Shutdown::Both);
            }
            let _ = oldest.join();
        }
        let known = Arc::downgrade(&client);
        let (admission, admitted) = (Arc::clone(admission), admitted.clone());
        let greeting = Builder::new().stack_size(STACK_BYTES).spawn(move || match admission.greet_client(&client) {
            Ok(Some(key)) => {
                // The receiver lives as long as the agent.
                let _ = admitted.send((client, key));
            }
            Ok(None) => {}
            Err(error) => (admission.log)(format!("rejected client {}: {error}", client.address)),
        });
        greetings.extend(greeting.map(|greeting| (greeting, known)));
    }
}

fn is_same(left: &str, right: &str) -> bool {
    let differences = left.bytes().zip(right.bytes()).fold(0, |all, (left, right)| all | (left ^ right));
    differences == 0 && left.len() == right.len()
}

/// Reports whether a client has disconnected. Earlier requests of the client may still be unread.
pub fn has_hung_up(stream: &TcpStream) -> bool {
    // `nix` does not define this flag. poll reports no other event on an intact connection.
    let ends = PollFlags::from_bits_retain(POLLRDHUP);
    poll(&mut [PollFd::new(stream.as_fd(), ends)], PollTimeout::ZERO).is_ok_and(|found| found > 0)
}
