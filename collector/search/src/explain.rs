//! The importance of axes: predicted effects of changing one axis around the best schedules of a search.

use crate::features::{self, View};
use crate::model::{Goal, TrainingRows};
use crate::{Problem, Result};
use job::space::{Knobs, Setting, Space, canonical_knobs};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    pub axis: String,
    /// Mean predicted time with the worst setting relative to the best setting.
    pub worst_over_best: f64,
    pub best: Setting,
    pub worst: Setting,
}

const TRIALS_MIN: usize = 16;
const BEST_SCHEDULES: usize = 8;
const ENSEMBLES: u64 = 3;

/// Returns the effects of the axes, largest first; an empty list for too few timed points. Times are in nanoseconds.
pub fn axis_effects(problem: &Problem, timed: &[(Knobs, f64)], seed: u64) -> Result<Vec<Effect>> {
    if timed.len() < TRIALS_MIN {
        return Ok(Vec::new());
    }
    let mut rows = TrainingRows::default();
    let features_of = |knobs: &Knobs| features::point_features(problem, knobs, View::Knobs);
    for (knobs, _) in timed {
        rows.add_row(features_of(knobs).iter_named());
    }
    let least = timed.iter().map(|(_, ns)| *ns).fold(f64::INFINITY, f64::min);
    let labels: Vec<f32> = timed.iter().map(|(_, ns)| (ns / least).ln() as f32).collect();
    let model = rows.train_trees(&labels, Goal::Value, (0..ENSEMBLES).map(|set| seed.wrapping_add(set)))?;
    let mut fastest: Vec<&(Knobs, f64)> = timed.iter().collect();
    fastest.sort_by(|one, other| one.1.total_cmp(&other.1));
    fastest.truncate(BEST_SCHEDULES);
    let space = &problem.space;
    let mut effects: Vec<Effect> = Vec::new();
    for axis in &space.axes {
        // Mean prediction of each setting that is allowed around most of the best schedules.
        let mut means: Vec<(f64, &Setting)> = Vec::new();
        for setting in &axis.settings {
            let changed = fastest.iter().filter_map(|(knobs, _)| with_setting(space, knobs, axis.name, setting));
            let predictions: Vec<f64> =
                changed.map(|knobs| model.predict_features(features_of(&knobs).iter_named()).mean).collect();
            if 2 * predictions.len() > fastest.len() {
                means.push((predictions.iter().sum::<f64>() / predictions.len() as f64, setting));
            }
        }
        means.sort_by(|one, other| one.0.total_cmp(&other.0));
        if let (Some((low, best)), Some((high, worst))) = (means.first(), means.last()) {
            let worst_over_best = (high - low).exp();
            let (best, worst) = ((*best).clone(), (*worst).clone());
            effects.push(Effect { axis: axis.name.to_owned(), worst_over_best, best, worst });
        }
    }
    effects.sort_by(|one, other| other.worst_over_best.total_cmp(&one.worst_over_best));
    Ok(effects)
}

/// Returns the knobs with one axis changed, or None if the setting is not allowed or has no effect.
fn with_setting(space: &Space, knobs: &Knobs, axis: &str, setting: &Setting) -> Option<Knobs> {
    let is_neutral = Space::neutral_setting(axis).as_ref() == Some(setting);
    let mut changed = knobs.clone();
    changed.0.insert(axis.to_owned(), setting.clone());
    let changed = canonical_knobs(changed);
    let decides = is_neutral || changed.0.get(axis) == Some(setting);
    (decides && space.allows_point(&changed)).then_some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::points::Points;
    use crate::synthetic::billion_points;

    #[test]
    fn the_axis_that_decides_the_time_comes_first() {
        let problem = billion_points();
        let mut points = Points::new(&problem.space, 1);
        let drawn: Vec<Knobs> = (0..200).filter_map(|_| points.draw_new()).collect();
        let time = |knobs: &Knobs| {
            let away = |name: &str, best: i64| (knobs.number(name).unwrap_or(0) - best).abs() as f64;
            100.0 * (1.0 + 0.5 * away("d", 6)) * (1.0 + 0.05 * away("h", 1))
        };
        let timed: Vec<(Knobs, f64)> = drawn.into_iter().map(|knobs| (knobs.clone(), time(&knobs))).collect();
        let effects = axis_effects(&problem, &timed, 1).expect("trees");
        assert_eq!((effects[0].axis.as_str(), &effects[0].best), ("d", &Setting::Number(6)), "{effects:?}");
        assert!(effects[0].worst_over_best > 2.0 && effects[1].worst_over_best < 1.6, "{effects:?}");
        assert_eq!(effects.len(), 10);
        assert_eq!(super::axis_effects(&problem, &timed[..8], 1).expect("nothing"), []);
    }
}
