//! Intervals by split conformal prediction: reaches of held-out errors at several levels, by size of the kernel.

use serde::{Deserialize, Serialize};

pub const LEVELS: [f64; 4] = [0.5, 0.8, 0.9, 0.95];
/// Index of the 90 % level.
pub const USUAL: usize = 2;
/// Upper limits of the reference seconds by class: mostly overhead, short, long; the last class has none.
const CLASSES: [f64; 3] = [6e-6, 25e-6, 150e-6];
pub const CLASS_COUNT: usize = CLASSES.len() + 1;
/// Classes with fewer errors use the pooled reaches.
const FEWEST: usize = 40;

/// Half-widths of errors in log space, by size class and level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reaches {
    by_class: Vec<[f64; LEVELS.len()]>,
    pub rows: usize,
}

/// Size class by bound plus overhead.
pub fn size_class(reference_seconds: f64) -> usize {
    CLASSES.iter().take_while(|limit| reference_seconds > **limit).count()
}

impl Reaches {
    /// Fits reaches to held-out errors: pairs of class and log error.
    pub fn fit_reaches(errors: &[(usize, f64)]) -> Option<Reaches> {
        if errors.is_empty() {
            return None;
        }
        let of = |class: Option<usize>| {
            let own = errors.iter().filter(|(one, _)| class.is_none_or(|class| class == *one));
            let mut sizes: Vec<f64> = own.map(|(_, error)| error.abs()).collect();
            sizes.sort_by(f64::total_cmp);
            (!sizes.is_empty()).then(|| (sizes.len(), LEVELS.map(|level| conformal_quantile(&sizes, level))))
        };
        let (_, all) = of(None)?;
        let by_class = (0..CLASS_COUNT).map(|class| match of(Some(class)) {
            Some((count, own)) if count >= FEWEST => own,
            _ => all,
        });
        Some(Reaches { by_class: by_class.collect(), rows: errors.len() })
    }

    /// Takes the larger reach per class and level, valid for every held-out device.
    pub fn or_larger(mut self, other: &Reaches) -> Reaches {
        let pairs = self.by_class.iter_mut().flatten().zip(other.by_class.iter().flatten());
        pairs.for_each(|(own, other)| *own = own.max(*other));
        self.rows += other.rows;
        self
    }

    /// Returns the reach of a class at a level.
    pub fn get_reach(&self, class: usize, level: usize) -> f64 {
        self.by_class[class][level]
    }

    /// Checks values read from a file.
    pub fn is_sound(&self) -> bool {
        let is_reach = |reach: &f64| reach.is_finite() && *reach >= 0.0;
        self.by_class.len() == CLASS_COUNT && self.by_class.iter().flatten().all(is_reach)
    }
}

/// Quantile of ascending errors with the finite-sample correction of conformal prediction.
pub(crate) fn conformal_quantile(ascending: &[f64], level: f64) -> f64 {
    let place = (level * (ascending.len() + 1) as f64).ceil() as usize;
    ascending[place.clamp(1, ascending.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reaches_hold_the_share_that_they_promise() {
        let errors: Vec<(usize, f64)> = (0..1000).map(|place| (place % 2, f64::from(place as u32) / 1000.0)).collect();
        let reaches = Reaches::fit_reaches(&errors).expect("errors");
        for (level, promised) in LEVELS.into_iter().enumerate() {
            for class in 0..2 {
                let own = errors.iter().filter(|(one, _)| *one == class);
                let held = own.filter(|(_, error)| *error <= reaches.get_reach(class, level)).count() as f64 / 500.0;
                assert!((held - promised).abs() < 0.01, "{promised}: {held}");
            }
        }
        assert_eq!(Reaches::fit_reaches(&[]), None);
        // A class without errors of its own takes those of all.
        assert_eq!(reaches.get_reach(3, USUAL), reaches.get_reach(2, USUAL));
    }
}
