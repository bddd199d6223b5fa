//! Evaluates how well a predictor orders the schedules of a task, which is what a tuner requires.

use super::HeldOutPredictions;
use super::metrics::bootstrap_interval;
use samples::Samples;
use samples::statistics::median;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Minimum number of schedules of a task whose order is scored.
pub const MIN_SCHEDULES: usize = 4;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranking {
    pub tasks: usize,
    /// Smallest and largest number of schedules of a task; zeros in evaluations of earlier versions.
    #[serde(default)]
    pub schedules: (usize, usize),
    /// Mean over tasks of the ratio of the best time to the time of the schedule that is predicted to be fastest.
    pub top1: f64,
    /// 95 % confidence interval of `top1`, by resampling tasks.
    #[serde(default)]
    pub top1_interval: (f64, f64),
    /// Like `top1`, with the best of the five schedules that are predicted to be fastest.
    pub top5: f64,
    /// Like `top1`, weighted by the time of each task, as in TenSet's tables of cost models.
    #[serde(default)]
    pub top1_by_time: f64,
    #[serde(default)]
    pub top5_by_time: f64,
    /// Mean slowdown in percent of the best of the ten schedules predicted to be fastest, over the fastest schedule.
    pub regret10: f64,
    /// Median over tasks of the rank correlation; the same for `spearman`.
    pub kendall: f64,
    pub spearman: f64,
}

/// Scores the predicted order of schedules, per task and split; None if no task has enough schedules.
pub(super) fn rank_tasks(samples: &Samples, answers: &HeldOutPredictions) -> Option<Ranking> {
    let mut tasks: BTreeMap<(usize, u64), Vec<(f64, f64)>> = BTreeMap::new();
    for (round, (_, range)) in answers.splits.iter().enumerate() {
        for (row, prediction) in answers.rows[range.clone()].iter().zip(&answers.predicted[range.clone()]) {
            tasks.entry((round, samples.rows[*row].task)).or_default().push((*prediction, samples.rows[*row].time_ns));
        }
    }
    tasks.retain(|_, schedules| schedules.len() >= MIN_SCHEDULES);
    if tasks.is_empty() {
        return None;
    }
    let count = tasks.len() as f64;
    let sizes = || tasks.values().map(Vec::len);
    let schedules = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
    let (mut top5, mut regret10) = (0.0, 0.0);
    let (mut time, mut time1, mut time5) = (0.0, 0.0, 0.0);
    let (mut ratios, mut groups) = (Vec::new(), Vec::new());
    let (mut kendalls, mut spearmans) = (Vec::new(), Vec::new());
    for ((_, task), schedules) in &mut tasks {
        schedules.sort_by(|one, two| one.0.total_cmp(&two.0));
        let best_of = |most: usize| schedules.iter().take(most).map(|(_, time)| *time).fold(f64::INFINITY, f64::min);
        let best = best_of(usize::MAX);
        ratios.push(best / best_of(1));
        groups.push(*task);
        top5 += best / best_of(5) / count;
        time += best;
        time1 += best_of(1);
        time5 += best_of(5);
        regret10 += 100.0 * (best_of(10) / best - 1.0) / count;
        let (predictions, times): (Vec<f64>, Vec<f64>) = schedules.iter().copied().unzip();
        kendalls.push(samples::statistics::kendall(&predictions, &times));
        spearmans.push(samples::statistics::spearman(&predictions, &times));
    }
    kendalls.retain(|value| value.is_finite());
    spearmans.retain(|value| value.is_finite());
    Some(Ranking {
        tasks: tasks.len(),
        schedules,
        top1: ratios.iter().sum::<f64>() / count,
        top1_interval: bootstrap_interval(&ratios, &groups),
        top5,
        top1_by_time: time / time1,
        top5_by_time: time / time5,
        regret10,
        kendall: median(&mut kendalls),
        spearman: median(&mut spearmans),
    })
}
