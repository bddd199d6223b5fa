//! Allocation of trials: chooses the searches with the largest expected saving among several that share a number of
//! trials.

/// Number of recent trials whose gains are considered.
const RECENT: usize = 8;
/// Weight of recent gains in the expected gain. The remaining weight is for the first gain after a series of trials
/// without one.
const BY_GAINS: f64 = 0.5;
/// Number of trials without a gain after which the hope for a gain is halved.
const HALF: usize = 3;
/// Maximum expected gain of a trial, relative to the time.
const HOPE: f64 = 0.05;
/// Share of an equal task's gain that is expected of the same schedule.
const BY_HINT: f64 = 0.5;
/// Minimum relative improvement that counts as a gain.
const GAIN: f64 = 0.005;

/// State of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// Number of calls of the task in the model.
    pub weight: f64,
    /// Best time in nanoseconds after each observed trial, from the first success on.
    pub bests: Vec<f64>,
    /// Number of started trials.
    pub begun: usize,
    /// Number of observed trials, including those of other processes.
    pub heard: usize,
    /// Time in nanoseconds that a hint of an equal task promises.
    pub hinted: Option<f64>,
}

impl Standing {
    /// Observes a trial with its time, or a failure.
    pub fn hear(&mut self, ns: Option<f64>) {
        self.heard += 1;
        let best = self.best().into_iter().chain(ns).fold(f64::INFINITY, f64::min);
        if best.is_finite() {
            self.bests.push(best);
        }
    }

    pub fn best(&self) -> Option<f64> {
        self.bests.last().copied()
    }

    /// Returns the expected saving of a trial in nanoseconds over all calls of the task; infinite before the first
    /// trial.
    pub fn promise(&self) -> f64 {
        if self.begun == 0 {
            return f64::INFINITY;
        }
        let hinted = self.best().zip(self.hinted).map_or(0.0, |(best, hinted)| BY_HINT * (best - hinted));
        // Running trials are assumed to gain nothing.
        self.promise_after(self.begun.saturating_sub(self.heard)).max(self.weight * hinted)
    }

    /// Returns the expected saving after `more` further trials without a gain.
    fn promise_after(&self, more: usize) -> f64 {
        let Some(best) = self.best() else { return 0.0 };
        let past = self.bests.len().saturating_sub(1).min(RECENT);
        let before = self.bests[self.bests.len() - 1 - past];
        // A noisy first time does not indicate possible gains.
        let gained = if past == 0 { 0.0 } else { ((before - best) / past as f64).min(HOPE * best) };
        let hoped = HOPE * best / (1.0 + (self.idle() + more) as f64 / HALF as f64);
        self.weight * (BY_GAINS * gained + (1.0 - BY_GAINS) * hoped)
    }

    /// Number of trials since the last gain.
    pub fn idle(&self) -> usize {
        let Some(best) = self.best() else { return self.begun };
        self.bests.iter().rev().take_while(|earlier| **earlier <= best * (1.0 + GAIN)).count().saturating_sub(1)
    }
}

/// Returns the expected saving of `trials` further trials in nanoseconds, if each goes to the search with the largest
/// expected saving and gains decrease over time. Searches without trials contribute nothing.
pub fn expected<'a>(standings: impl Iterator<Item = &'a Standing>, trials: usize) -> f64 {
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
    // The saving cannot exceed the best times.
    saved.min(open.iter().filter_map(|standing| Some(standing.best()? * standing.weight)).sum())
}

/// Returns the search that should have the next trial, or None without searches.
pub fn next<'a>(standings: impl Iterator<Item = (usize, &'a Standing)>) -> Option<usize> {
    let promises = standings.map(|(place, standing)| (place, standing.promise()));
    // The first of equal maxima.
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
