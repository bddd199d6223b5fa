//! Which client gets the board. Each client is greeted on a thread of its own, so that a silent client delays no other, and a
//! second client gets the answer at once that the board is busy.

use crate::registration::Registration;
use nix::libc::POLLRDHUP;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use remote::handshake::{self, Key, Verdict};
use remote::{RemoteError, Waiting};
use std::collections::VecDeque;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// A client is given this long to send its key.
const GREETING: Duration = Duration::from_secs(5);
/// Greetings at once. Where more clients connect, the oldest greeting ends.
const GREETINGS_MAX: usize = 64;
/// A greeting holds a key of some KiB.
const STACK_BYTES: usize = 256 << 10;

/// A client that has connected.
pub struct Client {
    /// Connection of the client.
    pub stream: TcpStream,
    /// Address of the client.
    pub address: SocketAddr,
}

/// A client that gets the board, with its key.
pub type Admitted = (Arc<Client>, Key);

/// Decides which client gets the board.
pub struct Admission {
    /// The key of the agent, and the secret that clients must send.
    key: String,
    secret: Option<String>,
    /// Gets messages for the log.
    tell: fn(String),
    /// Behind a lock of its own, which is held while the tracker is asked. That one is taken before `occupancy`.
    registration: Option<Mutex<Registration>>,
    /// Never held while another side is waited for: every greeting takes it.
    occupancy: Mutex<Occupancy>,
}

#[derive(Default)]
struct Occupancy {
    /// The key that the tracker gives to the next client; none while nothing is offered, so in every session.
    match_key: Option<String>,
    /// The client of the running session, or of the next one where that client has closed its connection.
    holder: Option<Arc<Client>>,
}

impl Admission {
    /// For an agent with this key and this secret, and perhaps a tracker.
    pub fn new(key: &str, secret: Option<&str>, registration: Option<Registration>, tell: fn(String)) -> Admission {
        let (registration, occupancy) = (registration.map(Mutex::new), Mutex::default());
        Admission { key: key.to_owned(), secret: secret.map(str::to_owned), tell, registration, occupancy }
    }

    /// Offers a session at the tracker, unless a client has the board.
    pub fn offer(&self) {
        let Some(registration) = &self.registration else { return };
        let mut registration = registration.lock().expect("no thread panics with the lock");
        let offered = {
            let occupancy = self.occupancy();
            if occupancy.holder.is_some() {
                return;
            }
            occupancy.match_key.clone()
        };
        if let Err(error) = registration.look(offered.as_deref(), |key| self.set_match_key(key)) {
            (self.tell)(format!("the tracker is not there: {error}; trying again"));
        }
    }

    /// Sets the key of the next client. Returns false where a client has got the board since.
    fn set_match_key(&self, key: Option<String>) -> bool {
        let mut occupancy = self.occupancy();
        let is_free = occupancy.holder.is_none();
        if is_free {
            occupancy.match_key = key;
        }
        is_free
    }

    /// Frees the board after a client's session.
    pub fn release(&self, client: &Arc<Client>) {
        let mut occupancy = self.occupancy();
        occupancy.holder = occupancy.holder.take().filter(|holder| !Arc::ptr_eq(holder, client));
    }

    fn occupancy(&self) -> MutexGuard<'_, Occupancy> {
        self.occupancy.lock().expect("no thread panics with the lock")
    }

    /// Reads a client's key and answers it.
    fn greet(&self, client: &Arc<Client>) -> Result<Option<Key>, RemoteError> {
        let copy = client.stream.try_clone().map_err(|error| RemoteError::Malformed(error.to_string()))?;
        let mut waiting = Waiting::new(copy, GREETING);
        waiting.begin("reading its key", GREETING);
        let key = handshake::hear(&mut waiting)?;
        let verdict = self.admit(&key, client);
        waiting.begin("answering its key", GREETING);
        let answered = handshake::answer(verdict, &self.key, &mut waiting);
        match verdict {
            // Where the answer does not arrive, the session sees that its client has gone.
            Verdict::Taken => Ok(Some(key)),
            Verdict::Duplicate => answered.map(|()| None),
            Verdict::Mismatch => Err(RemoteError::Refused("its key is wrong".to_owned())),
        }
    }

    /// Takes a client whose key is right while no other client has the board. At a tracker's agent the key is the one that the
    /// tracker gave away, and it is good for one session.
    fn admit(&self, key: &Key, client: &Arc<Client>) -> Verdict {
        let mut occupancy = self.occupancy();
        let offered = self.registration.as_ref().map(|_| occupancy.match_key.as_deref().unwrap_or_default());
        let expected = offered.unwrap_or(&self.key);
        let secret = self.secret.as_deref();
        let knows = secret.is_none_or(|secret| is_same(secret, key.secret.as_deref().unwrap_or_default()));
        // An agent without a key of its own takes any.
        let is_ours = expected.is_empty() && offered.is_none() || is_same(expected, &key.name) && !expected.is_empty();
        if !knows || !is_ours {
            return Verdict::Mismatch;
        }
        if occupancy.holder.as_ref().is_some_and(|holder| !has_hung_up(&holder.stream)) {
            return Verdict::Duplicate;
        }
        occupancy.holder = Some(Arc::clone(client));
        // The next session gets a key of its own.
        occupancy.match_key = None;
        Verdict::Taken
    }
}

/// Greets every client that connects, and sends on each one that gets the board.
pub fn greet_all(listener: &TcpListener, admission: &Arc<Admission>, admitted: &Sender<Admitted>) {
    /// Where no connection can be accepted, such as with too many open files.
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
        let greeting = Builder::new().stack_size(STACK_BYTES).spawn(move || match admission.greet(&client) {
            Ok(Some(key)) => {
                // The receiver ends with the agent only.
                let _ = admitted.send((client, key));
            }
            Ok(None) => {}
            Err(error) => (admission.tell)(format!("{} was sent away: {error}", client.address)),
        });
        greetings.extend(greeting.map(|greeting| (greeting, known)));
    }
}

/// Compares in a time that does not depend on the first difference.
fn is_same(left: &str, right: &str) -> bool {
    let differences = left.bytes().zip(right.bytes()).fold(0, |all, (left, right)| all | (left ^ right));
    differences == 0 && left.len() == right.len()
}

/// Returns whether a client has closed its connection; requests of it may still be unread.
pub fn has_hung_up(stream: &TcpStream) -> bool {
    // `nix` has no name for it. Nothing else that poll reports is about a connection that goes on.
    let ends = PollFlags::from_bits_retain(POLLRDHUP);
    poll(&mut [PollFd::new(stream.as_fd(), ends)], PollTimeout::ZERO).is_ok_and(|found| found > 0)
}
