//! Where the attempts of a campaign come from.

use super::planned::Attempt;
use datasets::{Key, Outcome, Record};
use std::collections::{BTreeMap, HashMap, VecDeque};

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

    /// Hears that an attempt is not made here, because another process makes or has made it.
    fn forgo(&mut self, _attempt: &Attempt) {}

    /// Hears that another process has claimed an attempt. Returns whether the source will propose it again, in case that process
    /// ends before it is made.
    fn put_off(&mut self, _attempt: &Attempt) -> bool {
        false
    }

    /// How the work stands in words, where more can be said than how many attempts there were.
    fn standing(&self) -> Option<String> {
        None
    }

    /// How many attempts it would propose still, as far as it knows.
    fn left(&self) -> usize;

    /// Returns how many of the attempts left it has put off.
    fn held(&self) -> usize {
        0
    }
}

/// A list from its beginning to its end, with all visits of each experiment.
///
/// A further visit comes a quarter of the list after the one before, or later, so that visits of one experiment meet the machine
/// at different times, and most of them while the rest is being built. What was built is kept for them by the bench; a list is
/// quartered in steps of at most [`MOST_BETWEEN`] attempts, so that this has a bound.
pub struct Sweep {
    /// Where each experiment stands in the list.
    places: HashMap<Key, usize>,
    /// First visits.
    waiting: VecDeque<Attempt>,
    /// Further visits, by how many attempts of the list come before them, and by their places in it.
    later: BTreeMap<(usize, usize), Attempt>,
    /// How many attempts of the list came before now; where all have, this goes on with further visits.
    moment: usize,
    /// Attempts between two visits of one experiment.
    between: usize,
    /// Attempts that other processes had claimed when they were proposed; proposed again when nothing else is left.
    held: VecDeque<Attempt>,
    /// When each experiment was last proposed.
    proposed: HashMap<Key, usize>,
    /// Attempts that were proposed and have not ended.
    open: usize,
}

/// Attempts between two visits of one experiment, at most.
const MOST_BETWEEN: usize = 2048;

impl Sweep {
    /// All of these.
    pub fn new(attempts: Vec<Attempt>) -> Sweep {
        Sweep {
            places: attempts.iter().enumerate().map(|(place, attempt)| (attempt.key, place)).collect(),
            between: attempts.len().div_ceil(4).clamp(1, MOST_BETWEEN),
            waiting: attempts.into(),
            later: BTreeMap::new(),
            moment: 0,
            held: VecDeque::new(),
            proposed: HashMap::new(),
            open: 0,
        }
    }

    /// The next further visits whose time has come, at most so many.
    fn due(&mut self, most: usize) -> Vec<Attempt> {
        // At the end of the list time goes on only when everything has ended, or the last ones would be visited in one go.
        if self.waiting.is_empty()
            && self.open == 0
            && let Some(((moment, _), _)) = self.later.first_key_value()
        {
            self.moment = self.moment.max(*moment);
        }
        let is_due = |((moment, _), _): &(&(usize, usize), &Attempt)| *moment <= self.moment;
        let due: Vec<(usize, usize)> =
            self.later.iter().take_while(is_due).take(most).map(|(place, _)| *place).collect();
        due.iter().filter_map(|place| self.later.remove(place)).collect()
    }

    /// Proposes a visit in the runner process of this moment.
    fn propose_now(&mut self, attempt: Attempt) -> Attempt {
        self.proposed.insert(attempt.key, self.moment);
        self.open += 1;
        Attempt { process: u32::try_from(self.moment / self.between).unwrap_or(u32::MAX), ..attempt }
    }

    fn revisit(&mut self, attempt: Option<Attempt>) {
        let Some(attempt) = attempt else { return };
        let moment = self.proposed.get(&attempt.key).copied().unwrap_or(self.moment) + self.between;
        self.later.insert((moment, self.places.get(&attempt.key).copied().unwrap_or_default()), attempt);
    }
}

impl Source for Sweep {
    fn propose(&mut self, builds: usize) -> Vec<Attempt> {
        let mut proposed = self.due(2 * builds);
        let begins = |place: &usize| *place == 0 || !self.waiting[place - 1].shares_build_with(&self.waiting[*place]);
        let count = (0..self.waiting.len()).filter(begins).nth(builds).unwrap_or(self.waiting.len());
        self.moment += count;
        proposed.extend(self.waiting.drain(..count));
        if proposed.is_empty() && self.open == 0 {
            proposed.extend(self.held.drain(..self.held.len().min(builds)));
        }
        proposed.into_iter().map(|attempt| self.propose_now(attempt)).collect()
    }

    fn observe(&mut self, attempt: &Attempt, record: &Record) {
        self.open -= 1;
        self.revisit(attempt.next_visit().filter(|_| record.outcome == Outcome::Ok));
    }

    fn forgo(&mut self, attempt: &Attempt) {
        self.open -= 1;
        // Another process made this visit, and may leave later ones to this one.
        self.revisit(attempt.next_visit());
    }

    fn put_off(&mut self, attempt: &Attempt) -> bool {
        self.open -= 1;
        self.held.push_back(attempt.clone());
        true
    }

    fn left(&self) -> usize {
        self.waiting.iter().chain(self.later.values()).map(Attempt::visits_left).sum::<usize>() + self.held()
    }

    fn held(&self) -> usize {
        self.held.iter().map(Attempt::visits_left).sum()
    }
}
