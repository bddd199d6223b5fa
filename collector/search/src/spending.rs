//! Where the next trials save most: on which of several searches that share a number of trials.

/// How far back recent gains are looked for, in trials.
const RECENT: usize = 8;
/// How much of what is expected follows from recent gains; the rest is the hope for the first gain after so many without.
const BY_GAINS: f64 = 0.5;
/// Trials without a gain after which hope is half of what it was.
const HALF: usize = 3;
/// What a trial gains at best, as a part of the time.
const HOPE: f64 = 0.05;
/// How much of what an equal task gained is expected of the same schedule.
const BY_HINT: f64 = 0.5;
/// A gain is one that is larger than this part of the time.
const GAIN: f64 = 0.005;

/// How a search stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// How often its task is run.
    pub weight: f64,
    /// The best time in nanoseconds after each trial that was heard of, since there was one.
    pub bests: Vec<f64>,
    /// Trials that were begun.
    pub begun: usize,
    /// Trials that were heard of, others' included.
    pub heard: usize,
    /// The time in nanoseconds that an equal task's gain promises.
    pub hinted: Option<f64>,
}

impl Standing {
    /// Hears of a trial, which gave this time or none.
    pub fn hear(&mut self, ns: Option<f64>) {
        self.heard += 1;
        let best = self.best().into_iter().chain(ns).fold(f64::INFINITY, f64::min);
        if best.is_finite() {
            self.bests.push(best);
        }
    }

    /// The best time so far.
    pub fn best(&self) -> Option<f64> {
        self.bests.last().copied()
    }

    /// Nanoseconds that a trial is expected to save, of all times that the task is run; infinite where nothing was tried.
    pub fn promise(&self) -> f64 {
        if self.begun == 0 {
            return f64::INFINITY;
        }
        let hinted = self.best().zip(self.hinted).map_or(0.0, |(best, hinted)| BY_HINT * (best - hinted));
        // Trials that are not heard of yet are taken to gain nothing.
        self.promise_after(self.begun.saturating_sub(self.heard)).max(self.weight * hinted)
    }

    /// The same after so many more trials that gain nothing.
    fn promise_after(&self, more: usize) -> f64 {
        let Some(best) = self.best() else { return 0.0 };
        let past = self.bests.len().saturating_sub(1).min(RECENT);
        let before = self.bests[self.bests.len() - 1 - past];
        // A first time that somebody disturbed is no sign of what is left to gain.
        let gained = if past == 0 { 0.0 } else { ((before - best) / past as f64).min(HOPE * best) };
        let hoped = HOPE * best / (1.0 + (self.idle() + more) as f64 / HALF as f64);
        self.weight * (BY_GAINS * gained + (1.0 - BY_GAINS) * hoped)
    }

    /// Trials since the last gain.
    pub fn idle(&self) -> usize {
        let Some(best) = self.best() else { return self.begun };
        self.bests.iter().rev().take_while(|earlier| **earlier <= best * (1.0 + GAIN)).count().saturating_sub(1)
    }
}

/// Nanoseconds that so many more trials are expected to save, when each goes where it promises most and what was gained lately is
/// gained ever more slowly; searches that were not begun promise nothing that is known.
pub fn expected<'a>(standings: impl Iterator<Item = &'a Standing>, trials: usize) -> f64 {
    /// Trials that are looked ahead at once.
    const STEPS: usize = 64;
    let open: Vec<&Standing> = standings.filter(|standing| standing.best().is_some()).collect();
    let mut more = vec![0; open.len()];
    let step = trials.div_ceil(STEPS).max(1);
    let mut saved = 0.0;
    let mut left = trials;
    while left > 0 {
        let promises = open
            .iter()
            .zip(&more)
            .map(|(standing, &more)| standing.promise_after(more) / (1.0 + more as f64 / RECENT as f64));
        let most = promises.enumerate().max_by(|one, other| one.1.total_cmp(&other.1));
        let Some((place, promise)) = most else { break };
        let trials = step.min(left);
        saved += promise * trials as f64;
        more[place] += trials;
        left -= trials;
    }
    // Nothing is faster than no time at all.
    saved.min(open.iter().filter_map(|standing| Some(standing.best()? * standing.weight)).sum())
}

/// Which of these should have the next trials; nothing where there are none.
pub fn next<'a>(standings: impl Iterator<Item = (usize, &'a Standing)>) -> Option<usize> {
    let promises = standings.map(|(place, standing)| (place, standing.promise()));
    // The first of equals.
    let most = promises.fold(None, |most: Option<(usize, f64)>, one| match most {
        Some(most) if most.1 >= one.1 => Some(most),
        _ => Some(one),
    });
    most.map(|(place, _)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(weight: f64, times: &[f64]) -> Standing {
        let mut standing = Standing { weight, begun: times.len(), ..Standing::default() };
        times.iter().for_each(|ns| standing.hear(Some(*ns)));
        standing
    }

    fn chosen(standings: &[Standing]) -> Option<usize> {
        next(standings.iter().enumerate())
    }

    #[test]
    fn trials_go_where_most_time_is_spent_and_where_they_gained() {
        assert_eq!(chosen(&[]), None);
        let (slow, fast) = (standing(1.0, &[100.0; 20]), standing(1.0, &[10.0; 20]));
        assert_eq!(chosen(&[fast.clone(), slow.clone()]), Some(1));
        let often = Standing { weight: 30.0, ..fast.clone() };
        assert_eq!(chosen(&[often, slow.clone()]), Some(0));
        let new = Standing::default();
        assert_eq!(chosen(&[slow.clone(), new]), Some(1), "all are tried once");
        let improving = standing(1.0, &(0..20).map(|turn| 150.0 - 2.5 * f64::from(turn)).collect::<Vec<_>>());
        assert_eq!(chosen(&[slow.clone(), improving]), Some(1));
        let tired = standing(1.0, &[100.0; 200]);
        assert_eq!(chosen(&[tired, slow]), Some(1));
        let hinted = Standing { hinted: Some(80.0), ..standing(1.0, &[100.0; 200]) };
        assert_eq!(chosen(&[hinted, standing(1.0, &[100.0; 4])]), Some(0), "what an equal task gained");
        let disturbed = standing(1.0, &[5000.0, 10.0, 10.0, 10.0]);
        assert_eq!(
            chosen(&[disturbed, standing(1.0, &[100.0; 4])]),
            Some(1),
            "its default was not as slow as it looked"
        );
    }

    #[test]
    fn what_is_expected_grows_with_trials_and_with_recent_gains() {
        let tired = standing(1.0, &[100.0; 200]);
        let improving = standing(1.0, &(0..20).map(|turn| 150.0 - 2.5 * f64::from(turn)).collect::<Vec<_>>());
        let of = |standings: &[&Standing], trials| expected(standings.iter().copied(), trials);
        assert_eq!((of(&[], 100), of(&[&tired], 0), of(&[&Standing::default()], 9)), (0.0, 0.0, 0.0));
        assert!(of(&[&tired], 10) < of(&[&tired], 100));
        assert!(of(&[&tired], 50) < of(&[&improving], 50));
        assert!(of(&[&improving], 50) <= of(&[&tired, &improving], 50));
        assert!(of(&[&improving], 1_000_000) <= 102.5, "not more than there is");
    }

    #[test]
    fn what_was_gained_long_ago_is_told_from_noise() {
        assert_eq!(standing(1.0, &[]).idle(), 0);
        assert_eq!(standing(1.0, &[100.0, 50.0, 60.0, 70.0]).idle(), 2);
        assert_eq!(standing(1.0, &[100.0, 50.0, 49.9, 70.0]).idle(), 2, "a fifth of a percent is no gain");
        let mut failing = Standing { begun: 5, ..Standing::default() };
        failing.hear(None);
        assert_eq!((failing.idle(), failing.best(), failing.promise()), (5, None, 0.0));
    }
}
