//! Sources of attempts: the interface, and the sweep over a fixed list.

use super::planned::Attempt;
use datasets::{Key, Outcome, Record};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// A source that proposes attempts and receives their results.
pub trait Source {
    /// Returns the next attempts, of at most `builds` builds; attempts that share a build are adjacent. The list is
    /// empty if an attempt in flight has to end first, or if the source is exhausted.
    fn propose(&mut self, builds: usize) -> Vec<Attempt>;

    /// Returns a reason if the cost model rejects a built candidate. `_built` describes the artifact.
    fn reject_candidate(&mut self, _attempt: &Attempt, _built: &Record) -> Option<String> {
        None
    }

    /// Passes the record of a finished attempt to the source.
    fn observe(&mut self, attempt: &Attempt, record: &Record);

    /// Reports an attempt that is not executed here because another process executes or has executed it.
    fn skip_attempt(&mut self, _attempt: &Attempt) {}

    /// Notes that another process has claimed an attempt. Returns whether to propose it again, as that process may end.
    fn postpone(&mut self, _attempt: &Attempt) -> bool {
        false
    }

    /// Returns a progress message, if the source can report more than the number of attempts.
    fn progress_message(&self) -> Option<String> {
        None
    }

    /// Returns the number of attempts that the source still expects to propose.
    fn attempts_left(&self) -> usize;

    /// Returns the number of remaining attempts that an attempt in flight stands for, including itself.
    fn visits_of(&self, _attempt: &Attempt) -> usize {
        1
    }

    /// Returns the number of remaining attempts that were postponed because other processes claimed them.
    fn postponed_count(&self) -> usize {
        0
    }
}

/// A source that proposes a list from beginning to end, with all visits (repeated measurements) of each experiment.
///
/// Visits of an experiment are at least a quarter of the list apart, or [`MAX_BETWEEN`] attempts of a long list, so
/// that they sample different states of the machine. The limit bounds the number of artifacts kept for later visits.
pub struct Sweep {
    places: HashMap<Key, usize>,
    /// Attempts of the list that have not been proposed yet; each is the first visit of its experiment.
    waiting: VecDeque<Attempt>,
    /// Further visits, by the value of `moment` at which they are due and by position of the experiment in the list.
    later: BTreeMap<(usize, usize), Attempt>,
    /// Number of list entries proposed so far; after the list's end, it advances to the due times of further visits.
    moment: usize,
    /// Number of attempts between two visits of one experiment.
    between: usize,
    /// Attempts claimed by other processes when proposed; proposed again when nothing else is left.
    held: VecDeque<Attempt>,
    /// Value of `moment` when each experiment was last proposed.
    proposed: HashMap<Key, usize>,
    /// Number of attempts in flight.
    open: usize,
}

const MAX_BETWEEN: usize = 2048;

impl Sweep {
    /// Creates a sweep over these attempts.
    pub fn new(attempts: Vec<Attempt>) -> Sweep {
        Sweep {
            places: attempts.iter().enumerate().map(|(place, attempt)| (attempt.key, place)).collect(),
            between: attempts.len().div_ceil(4).clamp(1, MAX_BETWEEN),
            waiting: attempts.into(),
            later: BTreeMap::new(),
            moment: 0,
            held: VecDeque::new(),
            proposed: HashMap::new(),
            open: 0,
        }
    }

    fn due_visits(&mut self, most: usize) -> Vec<Attempt> {
        // At the end of the list, the moment advances only when everything has ended. Otherwise,
        // the last experiments would be visited without a pause.
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

    /// Marks an attempt as proposed, and assigns it to the runner process that corresponds to `moment`.
    fn propose_now(&mut self, attempt: Attempt) -> Attempt {
        self.proposed.insert(attempt.key, self.moment);
        self.open += 1;
        Attempt { process: u32::try_from(self.moment / self.between).unwrap_or(u32::MAX), ..attempt }
    }

    fn schedule_visit(&mut self, attempt: Option<Attempt>) {
        let Some(attempt) = attempt else { return };
        let moment = self.proposed.get(&attempt.key).copied().unwrap_or(self.moment) + self.between;
        self.later.insert((moment, self.places.get(&attempt.key).copied().unwrap_or_default()), attempt);
    }
}

impl Source for Sweep {
    fn propose(&mut self, builds: usize) -> Vec<Attempt> {
        let mut proposed = self.due_visits(2 * builds);
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
        self.schedule_visit(attempt.next_visit().filter(|_| record.outcome == Outcome::Ok));
    }

    fn skip_attempt(&mut self, attempt: &Attempt) {
        self.open -= 1;
        // The other process made this visit, but later visits may be left for this process.
        self.schedule_visit(attempt.next_visit());
    }

    fn postpone(&mut self, attempt: &Attempt) -> bool {
        self.open -= 1;
        self.held.push_back(attempt.clone());
        true
    }

    fn visits_of(&self, attempt: &Attempt) -> usize {
        attempt.visits_left()
    }

    fn attempts_left(&self) -> usize {
        self.waiting.iter().chain(self.later.values()).map(Attempt::visits_left).sum::<usize>() + self.postponed_count()
    }

    fn postponed_count(&self) -> usize {
        self.held.iter().map(Attempt::visits_left).sum()
    }
}
