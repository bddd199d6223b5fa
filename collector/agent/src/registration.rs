//! What a tracker knows of this agent: which sessions it offers. A tracker that is not there is asked again and again.

use remote::{Address, RemoteError, Tracker};
use std::io::Read;
use std::time::{Duration, Instant};

/// A tracker is given so long to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// What was lent and never used is offered anew after so many looks.
const LOOKS: u32 = 3;
/// A tracker that did not answer is left alone for so long.
const PAUSE: Duration = Duration::from_secs(2);

/// An agent's place at a tracker.
pub struct Registration {
    address: Address,
    key: String,
    port: u16,
    tracker: Option<Tracker>,
    match_key: String,
    lent_for: u32,
    again_at: Instant,
    /// Whether somebody was told that the tracker is not there.
    is_told: bool,
}

impl Registration {
    /// Of an agent that listens at this port; nothing is said before the first look.
    pub fn new(address: Address, key: &str, port: u16) -> Registration {
        Registration {
            address,
            key: key.to_owned(),
            port,
            tracker: None,
            match_key: String::new(),
            lent_for: 0,
            again_at: Instant::now(),
            is_told: false,
        }
    }

    /// The key that the next client must have; none while nothing is offered.
    pub fn match_key(&self) -> Option<&str> {
        Some(self.match_key.as_str()).filter(|key| !key.is_empty())
    }

    /// Sees to it that a session is offered; what went wrong, once until it is right again.
    pub fn look(&mut self) -> Result<(), RemoteError> {
        if Instant::now() < self.again_at {
            return Ok(());
        }
        let looked = self.try_look();
        if looked.is_err() {
            self.tracker = None;
            self.match_key.clear();
            self.again_at = Instant::now() + PAUSE;
        }
        let was_told = std::mem::replace(&mut self.is_told, looked.is_err());
        if was_told { Ok(()) } else { looked }
    }

    /// A client has come with the key: the next session gets a key of its own.
    pub fn offer_again(&mut self) {
        self.match_key.clear();
    }

    fn try_look(&mut self) -> Result<(), RemoteError> {
        if self.tracker.is_none() {
            let mut tracker = Tracker::open(&self.address, PATIENCE)?;
            tracker.introduce(&self.key, self.port, PATIENCE)?;
            self.tracker = Some(tracker);
            self.match_key.clear();
        }
        let tracker = self.tracker.as_mut().expect("just opened");
        if !self.match_key.is_empty() {
            let is_offered = tracker.pending(PATIENCE)?.contains(&self.match_key);
            self.lent_for = if is_offered { 0 } else { self.lent_for + 1 };
            if self.lent_for < LOOKS {
                return Ok(());
            }
        }
        self.match_key = format!("{}:{}", self.key, chance());
        self.lent_for = 0;
        tracker.put(&self.key, self.port, &self.match_key, PATIENCE)
    }
}

/// What nobody can foresee, as text.
fn chance() -> String {
    let mut bytes = [0; 16];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    // Without chance there is no key that only the tracker's clients know, so nobody is let in.
    read.expect("every machine that runs this has /dev/urandom");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
