//! A cost model over generated code that selects the built candidates to run: code features predict better than knobs,
//! and building in parallel with a run costs little. A candidate is run if its prediction is in the better half of
//! recent predictions, or not clearly slower than the best, or if all are similar.

use crate::Result;
use crate::model::{Goal, RetrainedTrees, TrainingRows};
use std::collections::VecDeque;

const MIN_TRAINING_ROWS: usize = 8;
const RETRAINING_ROWS: usize = 8;
/// Number of recent predictions that a new prediction is compared with; below, the minimum number.
const RECENT_PREDICTIONS: usize = 7;
const PREDICTIONS_MIN: usize = 3;
/// Ratio of the predicted time to the best time from which a candidate is clearly slower.
const SLOWER: f64 = 1.2;

pub struct Judge {
    seed: u64,
    lessons: TrainingRows,
    labels: Vec<f32>,
    trees: RetrainedTrees,
    /// Recent predictions: logarithms of times relative to the default schedule.
    predictions: VecDeque<f64>,
    /// Number of candidates that may still be rejected; each candidate that is run adds one.
    spare: usize,
}

impl Judge {
    pub fn new(seed: u64) -> Judge {
        let (lessons, trees) = (TrainingRows::default(), RetrainedTrees::new(RETRAINING_ROWS));
        Judge { seed, lessons, labels: Vec::new(), trees, predictions: VecDeque::new(), spare: 0 }
    }

    pub fn add_result<'a>(&mut self, row: impl IntoIterator<Item = (&'a str, f64)>, over_default: f64) {
        self.lessons.add_row(row);
        self.labels.push(over_default.ln() as f32);
    }

    /// Returns whether to run a candidate; `best` is relative to the default. Rejects no more candidates than were run.
    pub fn should_run<'a>(&mut self, row: impl IntoIterator<Item = (&'a str, f64)>, best: f64) -> Result<bool> {
        self.train_if_due()?;
        let Some(model) = self.trees.trained_model() else { return Ok(true) };
        let prediction = model.predict_features(row).mean;
        let before = self.predictions.iter().filter(|other| **other < prediction).count();
        let is_known = self.predictions.len() >= PREDICTIONS_MIN && 2 * before >= self.predictions.len();
        self.predictions.push_back(prediction);
        if self.predictions.len() > RECENT_PREDICTIONS {
            self.predictions.pop_front();
        }
        let is_worth = !is_known || prediction < (SLOWER * best).ln() || self.spare == 0;
        self.spare = if is_worth { self.spare + 1 } else { self.spare - 1 };
        Ok(is_worth)
    }

    fn train_if_due(&mut self) -> Result<()> {
        let Judge { seed, lessons, labels, trees, .. } = self;
        if labels.len() < MIN_TRAINING_ROWS {
            return Ok(());
        }
        trees.train_if_due(labels.len(), || lessons.train_trees(labels, Goal::Value, std::iter::once(*seed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taught() -> Judge {
        let mut judge = Judge::new(1);
        (0..40).for_each(|turn| judge.add_result([("cycles", f64::from(turn))], 0.5 + f64::from(turn) / 20.0));
        judge
    }

    fn asks(judge: &mut Judge, cycles: f64, best: f64) -> bool {
        judge.should_run([("cycles", cycles)], best).expect("trees")
    }

    #[test]
    fn half_of_what_is_built_is_run_and_whatever_is_not_clearly_slower() {
        let mut judge = taught();
        let turns: Vec<f64> = (0..60).map(|turn| f64::from((turn * 17) % 40)).collect();
        let run: Vec<f64> = turns.iter().copied().filter(|cycles| asks(&mut judge, *cycles, 0.1)).collect();
        assert!(run.len() >= 30 && run.len() <= 40, "{} of 60", run.len());
        let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
        assert!(mean(&run) < 0.8 * mean(&turns), "{} of {}", mean(&run), mean(&turns));
        assert!(
            (0..20).all(|turn| asks(&mut judge, f64::from(turn), 1.4)),
            "nothing is clearly slower than what is known"
        );
    }

    #[test]
    fn no_more_is_passed_over_than_is_run_and_nothing_where_little_is_known() {
        let mut judge = taught();
        let run = (0..100).filter(|turn| asks(&mut judge, f64::from(*turn), 0.1)).count();
        assert!(run >= 50, "{run}: each is worse than all before");
        let mut ignorant = Judge::new(1);
        (0..7).for_each(|turn| ignorant.add_result([("cycles", f64::from(turn))], 1.0));
        assert!((0..40).all(|turn| asks(&mut ignorant, f64::from(turn), 0.1)));
    }
}
