//! Simulated annealing over a space: many walkers, whose best points are kept.

use crate::points::Points;
use job::space::Knobs;
use rand::RngExt;
use std::collections::{BTreeMap, BTreeSet};

const WALKERS: usize = 64;
const STEPS: usize = 36;
/// Number of steps without a new best point after which annealing ends.
const PATIENCE: usize = 12;

/// Anneals from `starts` and random points. Returns up to `count` new points, highest scores first.
pub fn anneal_points(points: &mut Points, starts: &[Knobs], count: usize, score: impl Fn(&Knobs) -> f64) -> Vec<Knobs> {
    let mut known: BTreeMap<Knobs, f64> = BTreeMap::new();
    let mut found: Vec<(f64, Knobs)> = Vec::new();
    let drawn: Vec<Knobs> = (starts.len()..WALKERS).filter_map(|_| points.any_allowed()).collect();
    let mut walkers: Vec<Knobs> = starts.iter().take(WALKERS).cloned().chain(drawn).collect();
    let mut scores: Vec<f64> =
        walkers.iter().map(|knobs| *known.entry(knobs.clone()).or_insert_with(|| score(knobs))).collect();
    let mut kept: BTreeSet<Knobs> = BTreeSet::new();
    let mut idle = 0;
    for step in 0..STEPS {
        let heat = 1.0 - step as f64 / STEPS as f64;
        let mut has_news = false;
        for (walker, own) in walkers.iter_mut().zip(&mut scores) {
            if !points.is_taken(walker) && !kept.contains(walker) {
                let place = found.partition_point(|(other, _)| other >= own);
                if place < count {
                    found.insert(place, (*own, walker.clone()));
                    kept.insert(walker.clone());
                    has_news = true;
                }
                found.truncate(count);
            }
            let Some(next) = points.change_axes(walker, 1) else { continue };
            let other = *known.entry(next.clone()).or_insert_with(|| score(&next));
            let likely = ((other - *own) / (heat + 1e-5)).exp().min(1.0);
            if points.random.random_bool(likely) {
                (*walker, *own) = (next, other);
            }
        }
        idle = if has_news { 0 } else { idle + 1 };
        if idle > PATIENCE {
            break;
        }
    }
    found.into_iter().map(|(_, knobs)| knobs).collect()
}
