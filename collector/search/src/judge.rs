//! Which of the schedules that were built are worth a run, by what their code says of itself.
//!
//! Trees that see the code know more than those that see knobs, and a build beside a run costs little. So more is built than is run:
//! of what was built lately the half that promises most, and whatever is not clearly slower than the best. Where all are alike, all
//! are run.

use crate::Result;
use crate::model::{Goal, Growing, Lessons};
use std::collections::VecDeque;

/// So many rows must have been seen before trees are asked.
const LEARNED_FROM: usize = 8;
/// Trees are grown anew when rows have become more by more than this part.
const ENOUGH: usize = 8;
/// A promise is compared with those of so many that were built before, and with no fewer than so many.
const LAST: usize = 7;
const LEAST: usize = 3;
/// What promises to take this much longer than the best is clearly slower.
const SLOWER: f64 = 1.2;

pub struct Judge {
    seed: u64,
    lessons: Lessons,
    labels: Vec<f32>,
    trees: Growing,
    /// What was promised last: logarithms of times over the default schedule's.
    promises: VecDeque<f64>,
    /// How many more may be passed over.
    spare: usize,
}

impl Judge {
    pub fn new(seed: u64) -> Judge {
        let (lessons, trees) = (Lessons::default(), Growing::new(ENOUGH));
        Judge { seed, lessons, labels: Vec::new(), trees, promises: VecDeque::new(), spare: 0 }
    }

    /// Learns the logarithm of a time over the default schedule's from what its code says.
    pub fn learn<'a>(&mut self, row: impl IntoIterator<Item = (&'a str, f64)>, over_default: f64) {
        self.lessons.add(row);
        self.labels.push(over_default.ln() as f32);
    }

    /// Whether what was built is worth a run, where the best that is known took this part of the default schedule's time. As many
    /// as were run may be passed over, no more.
    pub fn is_worth_a_run<'a>(&mut self, row: impl IntoIterator<Item = (&'a str, f64)>, best: f64) -> Result<bool> {
        self.study()?;
        let Some(model) = self.trees.model() else { return Ok(true) };
        let promise = model.ask(row).mean;
        let before = self.promises.iter().filter(|other| **other < promise).count();
        let is_known = self.promises.len() >= LEAST && 2 * before >= self.promises.len();
        self.promises.push_back(promise);
        if self.promises.len() > LAST {
            self.promises.pop_front();
        }
        let is_worth = !is_known || promise < (SLOWER * best).ln() || self.spare == 0;
        self.spare = if is_worth { self.spare + 1 } else { self.spare - 1 };
        Ok(is_worth)
    }

    fn study(&mut self) -> Result<()> {
        let Judge { seed, lessons, labels, trees, .. } = self;
        if labels.len() < LEARNED_FROM {
            return Ok(());
        }
        trees.study(labels.len(), || lessons.fit(labels, Goal::Value, std::iter::once(*seed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taught() -> Judge {
        let mut judge = Judge::new(1);
        (0..40).for_each(|turn| judge.learn([("cycles", f64::from(turn))], 0.5 + f64::from(turn) / 20.0));
        judge
    }

    fn asks(judge: &mut Judge, cycles: f64, best: f64) -> bool {
        judge.is_worth_a_run([("cycles", cycles)], best).expect("trees")
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
        (0..7).for_each(|turn| ignorant.learn([("cycles", f64::from(turn))], 1.0));
        assert!((0..40).all(|turn| asks(&mut ignorant, f64::from(turn), 0.1)));
    }
}
