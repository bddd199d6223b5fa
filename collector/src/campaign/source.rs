//! Where the attempts of a campaign come from.

use super::planned::Attempt;
use datasets::{Key, Outcome, Record};
use std::collections::{HashMap, VecDeque};

/// Proposes attempts, and hears what became of them.
pub trait Source {
    /// The next attempts, of at most so many builds: those that share a build are neighbours. None means that there is
    /// nothing to try before something that is in hand has ended, or at all.
    fn propose(&mut self, builds: usize) -> Vec<Attempt>;

    /// Why something that was built is not worth a run, if it is not; its record says what was built.
    fn pass_over(&mut self, _attempt: &Attempt, _built: &Record) -> Option<String> {
        None
    }

    /// Hears the record of an attempt.
    fn observe(&mut self, attempt: &Attempt, record: &Record);

    /// Hears that an attempt is not made here, because others make it or have made it.
    fn forgo(&mut self, _attempt: &Attempt) {}

    /// How the work stands in words, where more can be said than how many attempts there were.
    fn standing(&self) -> Option<String> {
        None
    }

    /// How many attempts it would propose still, as far as it knows.
    fn left(&self) -> usize;
}

/// A list from its beginning to its end, and again for each further visit of what gave a time.
///
/// A visit comes a whole pass after the one before, so that visits of one experiment meet the machine at different times. What
/// was built is kept between passes by the bench; a list of more builds than [`WINDOW_BUILDS`] is done in windows, so that this
/// has a bound.
pub struct Sweep {
    /// Where each experiment stands in the list.
    places: HashMap<Key, usize>,
    /// Attempts of later windows.
    waiting: VecDeque<Attempt>,
    /// The rest of this pass.
    pass: VecDeque<Attempt>,
    /// The next pass of this window.
    next_pass: Vec<Attempt>,
    /// Attempts that were proposed and have not ended.
    open: usize,
}

/// Builds of one window.
const WINDOW_BUILDS: usize = 2048;

impl Sweep {
    /// All of these.
    pub fn new(attempts: Vec<Attempt>) -> Sweep {
        let places = attempts.iter().enumerate().map(|(place, attempt)| (attempt.key, place)).collect();
        Sweep { places, waiting: attempts.into(), pass: VecDeque::new(), next_pass: Vec::new(), open: 0 }
    }

    /// Begins the next pass, or else the next window, once everything of this pass has ended.
    fn begin_pass(&mut self) {
        if !self.pass.is_empty() || self.open > 0 {
            return;
        }
        // What ran on other CPUs ended in another order.
        self.next_pass.sort_by_key(|attempt| self.places.get(&attempt.key).copied());
        self.pass = std::mem::take(&mut self.next_pass).into();
        if self.pass.is_empty() {
            let count = leading_builds(&self.waiting, WINDOW_BUILDS);
            self.pass = self.waiting.drain(..count).collect();
        }
    }
}

/// How many attempts the first builds of a list serve.
fn leading_builds(attempts: &VecDeque<Attempt>, builds: usize) -> usize {
    let begins = |place: &usize| *place == 0 || !attempts[place - 1].shares_build_with(&attempts[*place]);
    (0..attempts.len()).filter(begins).nth(builds).unwrap_or(attempts.len())
}

impl Source for Sweep {
    fn propose(&mut self, builds: usize) -> Vec<Attempt> {
        self.begin_pass();
        let count = leading_builds(&self.pass, builds);
        self.open += count;
        self.pass.drain(..count).collect()
    }

    fn observe(&mut self, attempt: &Attempt, record: &Record) {
        self.open -= 1;
        self.next_pass.extend(attempt.next_visit().filter(|_| record.outcome == Outcome::Ok));
    }

    fn forgo(&mut self, attempt: &Attempt) {
        self.open -= 1;
        // Another process made this visit, and may leave later ones to this one.
        self.next_pass.extend(attempt.next_visit());
    }

    fn left(&self) -> usize {
        self.waiting.iter().chain(&self.pass).chain(&self.next_pass).map(Attempt::visits_left).sum()
    }
}
