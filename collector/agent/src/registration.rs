//! Registration of the agent at a tracker. The agent retries without limit while the tracker is unavailable.

use remote::{Address, RemoteError, Tracker};
use std::io::Read;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(5);
/// Number of checks of the tracker after which an assigned but unused session is offered again.
const UNUSED_CHECKS_MAX: u32 = 3;
const PAUSE: Duration = Duration::from_secs(2);

pub struct Registration {
    address: Address,
    key: String,
    port: u16,
    tracker: Option<Tracker>,
    lent_for: u32,
    again_at: Instant,
    is_reported: bool,
}

impl Registration {
    /// Creates a registration without contacting the tracker.
    pub fn new(address: Address, key: &str, port: u16) -> Registration {
        Registration {
            address,
            key: key.to_owned(),
            port,
            tracker: None,
            lent_for: 0,
            again_at: Instant::now(),
            is_reported: false,
        }
    }

    /// Ensures that the tracker offers a session; returns an error once per outage. `offered` is the match key already
    /// offered. `set_key` is called with a new key before the tracker gets the key, and with `None` during an outage;
    /// it returns false if a client has occupied the board.
    pub fn ensure_offer(
        &mut self,
        offered: Option<&str>,
        set_key: impl Fn(Option<String>) -> bool,
    ) -> Result<(), RemoteError> {
        if Instant::now() < self.again_at {
            return Ok(());
        }
        let result = self.try_offer(offered, &set_key);
        if result.is_err() {
            self.tracker = None;
            set_key(None);
            self.again_at = Instant::now() + PAUSE;
        }
        let was_reported = std::mem::replace(&mut self.is_reported, result.is_err());
        if was_reported { Ok(()) } else { result }
    }

    fn try_offer(
        &mut self,
        offered: Option<&str>,
        set_key: &impl Fn(Option<String>) -> bool,
    ) -> Result<(), RemoteError> {
        if self.tracker.is_none() {
            let mut tracker = Tracker::open(&self.address, PATIENCE)?;
            tracker.register_server(&self.key, self.port, PATIENCE)?;
            self.tracker = Some(tracker);
        }
        let tracker = self.tracker.as_mut().expect("the connection was just opened");
        if let Some(offered) = offered {
            let is_offered = tracker.pending_keys(PATIENCE)?.iter().any(|key| key == offered);
            self.lent_for = if is_offered { 0 } else { self.lent_for + 1 };
            if self.lent_for < UNUSED_CHECKS_MAX {
                return Ok(());
            }
        }
        self.lent_for = 0;
        let match_key = format!("{}:{}", self.key, random_suffix());
        // The tracker may assign the session before it replies.
        if set_key(Some(match_key.clone())) {
            tracker.offer_session(&self.key, self.port, &match_key, PATIENCE)
        } else {
            Ok(())
        }
    }
}

fn random_suffix() -> String {
    let mut bytes = [0; 16];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    // Without randomness the key could be guessed, so no client is admitted.
    read.expect("`/dev/urandom` is readable");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
