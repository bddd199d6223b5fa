//! Split conformal prediction intervals: half-widths from held-out errors, at several levels and by kernel size.

use learn::levels::LEVELS;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Index of the default level, 90 %, in [`LEVELS`].
pub const DEFAULT_LEVEL: usize = 2;
/// Upper limits of the size classes, in reference seconds: mostly overhead, short, long. The last class has no limit.
const CLASSES: [f64; 3] = [6e-6, 25e-6, 150e-6];
pub const CLASS_COUNT: usize = CLASSES.len() + 1;
/// Minimum number of errors of a size class; classes with fewer use the half-widths of all classes together.
const FEWEST: usize = 40;

/// Half-widths ("reaches") of prediction intervals in log space, by size class and level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reaches {
    by_class: Vec<[f64; LEVELS.len()]>,
    pub rows: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct DeviceError {
    pub device: usize,
    pub generation: usize,
    pub class: usize,
    /// Log ratio of predicted to measured value.
    pub error: f64,
}

pub fn size_class(reference_seconds: f64) -> usize {
    CLASSES.iter().take_while(|limit| reference_seconds > **limit).count()
}

pub fn level_share(level: u8) -> f64 {
    f64::from(level) / 100.0
}

impl Reaches {
    pub fn fit(errors: &[(usize, f64)]) -> Option<Reaches> {
        Reaches::from_classes(|class| {
            let own = errors.iter().filter(|(one, _)| class.is_none_or(|class| class == *one));
            let mut sizes: Vec<f64> = own.map(|(_, error)| error.abs()).collect();
            sizes.sort_by(f64::total_cmp);
            (!sizes.is_empty())
                .then(|| (sizes.len(), LEVELS.map(|level| conformal_quantile(&sizes, level_share(level)))))
        })
    }

    /// Fits half-widths to errors on held-out devices, each of which has the same total weight.
    ///
    /// Errors of devices of one generation are correlated, so the independent observations are the g generations. The
    /// half-widths are multiplied by √(1 + 1/g), the factor of a prediction interval for one more observation.
    pub fn fit_devices(errors: &[DeviceError]) -> Option<Reaches> {
        Reaches::from_classes(|class| {
            let own = || errors.iter().filter(|one| class.is_none_or(|class| class == one.class));
            let mut rows = BTreeMap::<usize, usize>::new();
            own().for_each(|one| *rows.entry(one.device).or_default() += 1);
            let generations = own().map(|one| one.generation).collect::<BTreeSet<_>>().len();
            let mut sizes: Vec<(f64, f64)> =
                own().map(|one| (one.error.abs(), 1.0 / (rows[&one.device] * rows.len()) as f64)).collect();
            sizes.sort_by(|one, two| one.0.total_cmp(&two.0));
            let wider = (1.0 + 1.0 / generations as f64).sqrt();
            (!sizes.is_empty())
                .then(|| (sizes.len(), LEVELS.map(|level| wider * weighted_quantile(&sizes, level_share(level)))))
        })
    }

    /// Combines the classes' half-widths; `fit_class(None)` fits all classes together.
    fn from_classes(fit_class: impl Fn(Option<usize>) -> Option<(usize, [f64; LEVELS.len()])>) -> Option<Reaches> {
        let (rows, all) = fit_class(None)?;
        let by_class = (0..CLASS_COUNT).map(|class| match fit_class(Some(class)) {
            Some((count, own)) if count >= FEWEST => own,
            _ => all,
        });
        Some(Reaches { by_class: by_class.collect(), rows })
    }

    pub fn half_width(&self, class: usize, level: usize) -> f64 {
        self.by_class[class][level]
    }

    /// Returns whether half-widths read from a file are complete, finite and not negative.
    pub fn is_sound(&self) -> bool {
        let is_reach = |reach: &f64| reach.is_finite() && *reach >= 0.0;
        self.by_class.len() == CLASS_COUNT && self.by_class.iter().flatten().all(is_reach)
    }
}

/// Returns the quantile of errors in ascending order, with the finite-sample correction of conformal prediction.
pub(crate) fn conformal_quantile(ascending: &[f64], level: f64) -> f64 {
    let place = (level * (ascending.len() + 1) as f64).ceil() as usize;
    ascending[place.clamp(1, ascending.len()) - 1]
}

/// Returns the quantile of ascending errors with weights that sum to 1.
fn weighted_quantile(ascending: &[(f64, f64)], level: f64) -> f64 {
    let mut sum = 0.0;
    let reached = ascending.iter().find(|(_, weight)| {
        sum += weight;
        sum >= level
    });
    reached.or(ascending.last()).map_or(0.0, |(size, _)| *size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn reaches_hold_the_share_that_they_promise() {
        let errors: Vec<(usize, f64)> = (0..1000).map(|place| (place % 2, f64::from(place as u32) / 1000.0)).collect();
        let reaches = Reaches::fit(&errors).expect("errors");
        for (level, promised) in LEVELS.map(level_share).into_iter().enumerate() {
            for class in 0..2 {
                let own = errors.iter().filter(|(one, _)| *one == class);
                let held = own.filter(|(_, error)| *error <= reaches.half_width(class, level)).count() as f64 / 500.0;
                assert!((held - promised).abs() < 0.01, "{promised}: {held}");
            }
        }
        assert_eq!(Reaches::fit(&[]), None);
        // A class without errors of its own has the half-widths of all classes.
        assert_eq!(reaches.half_width(3, DEFAULT_LEVEL), reaches.half_width(2, DEFAULT_LEVEL));
    }

    fn drawn_errors(generations: usize, random: &mut ChaCha8Rng) -> Vec<DeviceError> {
        let mut normal = || (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
        let mut errors = Vec::new();
        for generation in 0..generations {
            let of_generation = 0.2 * normal();
            for device in 2 * generation..2 * generation + 2 {
                let of_device = of_generation + 0.1 * normal();
                // Devices have different numbers of rows.
                let rows = if device % 3 == 0 { 400 } else { 100 };
                errors.extend((0..rows).map(|row| {
                    let error = of_device + 0.15 * normal();
                    DeviceError { device, generation, class: row % 2, error }
                }));
            }
        }
        errors
    }

    #[test]
    fn reaches_of_held_out_devices_hold_for_further_devices() {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        for (generations, least) in [(2, 0.85), (4, 0.88), (12, 0.88)] {
            let (mut held, mut of) = (0usize, 0usize);
            for _ in 0..300 {
                let reaches = Reaches::fit_devices(&drawn_errors(generations, &mut random)).expect("errors");
                let strange = drawn_errors(1, &mut random);
                held += strange
                    .iter()
                    .filter(|one| one.error.abs() <= reaches.half_width(one.class, DEFAULT_LEVEL))
                    .count();
                of += strange.len();
            }
            let held = held as f64 / of as f64;
            assert!((least..0.93).contains(&held), "{generations} generations: {held}");
        }
    }
}
