//! Allocation of trials to several searches: chooses the search with the largest expected saving.

const RECENT: usize = 8;
/// Weight of recent gains in the expected gain; the rest is the weight of a gain after trials without any.
const GAINS_WEIGHT: f64 = 0.5;
/// Number of trials without a gain after which the expected next gain is halved.
const HALVING_TRIALS: usize = 3;
/// Maximum expected gain of a trial, relative to the best time.
const GAIN_MAX: f64 = 0.05;
/// Expected share of the gain that a hint (a fast schedule of an equal task) promises.
const HINT_SHARE: f64 = 0.5;
/// Minimum relative improvement that counts as a gain.
const GAIN_MIN: f64 = 0.005;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    pub weight: f64,
    /// Best time in nanoseconds after each observed trial, from the first successful one on.
    pub bests: Vec<f64>,
    pub begun: usize,
    /// Number of observed trials, including trials of other processes.
    pub observed: usize,
    /// Time in nanoseconds that a hint of an equal task promises.
    pub hinted: Option<f64>,
}

impl Standing {
    /// Records the time of a trial, or a failure as None.
    pub fn observe_trial(&mut self, ns: Option<f64>) {
        self.observed += 1;
        let best = self.best_ns().into_iter().chain(ns).fold(f64::INFINITY, f64::min);
        if best.is_finite() {
            self.bests.push(best);
        }
    }

    pub fn best_ns(&self) -> Option<f64> {
        self.bests.last().copied()
    }

    /// Returns the next trial's expected saving in nanoseconds, summed over all calls; infinite before the first trial.
    pub fn expected_saving(&self) -> f64 {
        if self.begun == 0 {
            return f64::INFINITY;
        }
        let hinted = self.best_ns().zip(self.hinted).map_or(0.0, |(best, hinted)| HINT_SHARE * (best - hinted));
        // Running trials are assumed to gain nothing.
        self.saving_after(self.begun.saturating_sub(self.observed)).max(self.weight * hinted)
    }

    fn saving_after(&self, more: usize) -> f64 {
        let Some(best) = self.best_ns() else { return 0.0 };
        let past = self.bests.len().saturating_sub(1).min(RECENT);
        let before = self.bests[self.bests.len() - 1 - past];
        // A noisy first time does not indicate possible gains.
        let gained = if past == 0 { 0.0 } else { ((before - best) / past as f64).min(GAIN_MAX * best) };
        let expected = GAIN_MAX * best / (1.0 + (self.trials_since_gain() + more) as f64 / HALVING_TRIALS as f64);
        self.weight * (GAINS_WEIGHT * gained + (1.0 - GAINS_WEIGHT) * expected)
    }

    pub fn trials_since_gain(&self) -> usize {
        let Some(best) = self.best_ns() else { return self.begun };
        self.bests.iter().rev().take_while(|earlier| **earlier <= best * (1.0 + GAIN_MIN)).count().saturating_sub(1)
    }
}

/// Returns the expected saving in nanoseconds of `trials` further trials, each given to the most promising search.
pub fn total_saving<'a>(standings: impl Iterator<Item = &'a Standing>, trials: usize) -> f64 {
    const STEPS: usize = 64;
    let open: Vec<&Standing> = standings.filter(|standing| standing.best_ns().is_some()).collect();
    let mut more = vec![0; open.len()];
    let step = trials.div_ceil(STEPS).max(1);
    let mut saved = 0.0;
    let mut left = trials;
    while left > 0 {
        let savings = open
            .iter()
            .zip(&more)
            .map(|(standing, &more)| standing.saving_after(more) / (1.0 + more as f64 / RECENT as f64));
        let most = savings.enumerate().max_by(|one, other| one.1.total_cmp(&other.1));
        let Some((place, saving)) = most else { break };
        let trials = step.min(left);
        saved += saving * trials as f64;
        more[place] += trials;
        left -= trials;
    }
    // The saving cannot exceed the best times.
    saved.min(open.iter().filter_map(|standing| Some(standing.best_ns()? * standing.weight)).sum())
}

/// Returns the place with the largest expected saving, the first of equal ones.
pub fn pick_search(savings: impl Iterator<Item = (usize, f64)>) -> Option<usize> {
    let most = savings.fold(None, |most: Option<(usize, f64)>, one| match most {
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
        times.iter().for_each(|ns| standing.observe_trial(Some(*ns)));
        standing
    }

    fn chosen(standings: &[Standing]) -> Option<usize> {
        pick_search(standings.iter().map(Standing::expected_saving).enumerate())
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
        let of = |standings: &[&Standing], trials| total_saving(standings.iter().copied(), trials);
        assert_eq!((of(&[], 100), of(&[&tired], 0), of(&[&Standing::default()], 9)), (0.0, 0.0, 0.0));
        assert!(of(&[&tired], 10) < of(&[&tired], 100));
        assert!(of(&[&tired], 50) < of(&[&improving], 50));
        assert!(of(&[&improving], 50) <= of(&[&tired, &improving], 50));
        assert!(of(&[&improving], 1_000_000) <= 102.5, "not more than there is");
    }

    #[test]
    fn what_was_gained_long_ago_is_told_from_noise() {
        assert_eq!(standing(1.0, &[]).trials_since_gain(), 0);
        assert_eq!(standing(1.0, &[100.0, 50.0, 60.0, 70.0]).trials_since_gain(), 2);
        assert_eq!(standing(1.0, &[100.0, 50.0, 49.9, 70.0]).trials_since_gain(), 2, "a fifth of a percent is no gain");
        let mut failing = Standing { begun: 5, ..Standing::default() };
        failing.observe_trial(None);
        assert_eq!((failing.trials_since_gain(), failing.best_ns(), failing.expected_saving()), (5, None, 0.0));
    }
}
