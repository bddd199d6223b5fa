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
            lent_for: 0,
            again_at: Instant::now(),
            is_told: false,
        }
    }

    /// Sees to it that a session is offered; what went wrong, once until it is right again. `offered` is the key of the session
    /// that is offered already. `set_key` gets the key of another one before the tracker does, and none where the tracker is
    /// not there; it returns false where a client has got the board since, so that no session is offered.
    pub fn look(&mut self, offered: Option<&str>, set_key: impl Fn(Option<String>) -> bool) -> Result<(), RemoteError> {
        if Instant::now() < self.again_at {
            return Ok(());
        }
        let looked = self.try_look(offered, &set_key);
        if looked.is_err() {
            self.tracker = None;
            set_key(None);
            self.again_at = Instant::now() + PAUSE;
        }
        let was_told = std::mem::replace(&mut self.is_told, looked.is_err());
        if was_told { Ok(()) } else { looked }
    }

    fn try_look(
        &mut self,
        offered: Option<&str>,
        set_key: &impl Fn(Option<String>) -> bool,
    ) -> Result<(), RemoteError> {
        if self.tracker.is_none() {
            let mut tracker = Tracker::open(&self.address, PATIENCE)?;
            tracker.introduce(&self.key, self.port, PATIENCE)?;
            self.tracker = Some(tracker);
        }
        let tracker = self.tracker.as_mut().expect("just opened");
        if let Some(offered) = offered {
            let is_offered = tracker.pending(PATIENCE)?.iter().any(|key| key == offered);
            self.lent_for = if is_offered { 0 } else { self.lent_for + 1 };
            if self.lent_for < LOOKS {
                return Ok(());
            }
        }
        self.lent_for = 0;
        let match_key = format!("{}:{}", self.key, chance());
        // The tracker may lend the session before it answers.
        if set_key(Some(match_key.clone())) { tracker.put(&self.key, self.port, &match_key, PATIENCE) } else { Ok(()) }
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
