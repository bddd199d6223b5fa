//! Where the attempts of a campaign come from.

use super::planned::Attempt;
use datasets::Record;

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

/// A list from its beginning to its end, whatever becomes of it.
pub struct Sweep<'a> {
    left: &'a [Attempt],
}

impl Sweep<'_> {
    /// All of these.
    pub fn new(attempts: &[Attempt]) -> Sweep<'_> {
        Sweep { left: attempts }
    }
}

impl Source for Sweep<'_> {
    fn propose(&mut self, builds: usize) -> Vec<Attempt> {
        let count = self.left.chunk_by(Attempt::shares_build_with).take(builds).map(<[Attempt]>::len).sum();
        let (proposed, left) = self.left.split_at(count);
        self.left = left;
        proposed.to_vec()
    }

    fn observe(&mut self, _: &Attempt, _: &Record) {}

    fn left(&self) -> usize {
        self.left.len()
    }
}
