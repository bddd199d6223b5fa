//! Points of a space that were not taken yet: drawn, changed, crossed.

use job::space::{Axis, Knobs, Setting, Space, canonical, point};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;

/// So many draws may be forbidden or taken before a search for another point is given up, or done by listing.
const DRAWS: usize = 256;
/// A space of so many points may be listed.
const LISTED_AT_MOST: u64 = 1 << 16;

/// A space, and which of its points were taken.
pub struct Points {
    pub space: Space,
    pub random: ChaCha8Rng,
    taken: BTreeSet<Knobs>,
}

impl Points {
    pub fn new(space: &Space, seed: u64) -> Points {
        Points { space: space.clone(), random: ChaCha8Rng::seed_from_u64(seed), taken: BTreeSet::new() }
    }

    /// Takes a point; says whether nobody had.
    pub fn take(&mut self, knobs: &Knobs) -> bool {
        self.taken.insert(knobs.clone())
    }

    pub fn taken(&self) -> impl Iterator<Item = &Knobs> {
        self.taken.iter()
    }

    pub fn is_taken(&self, knobs: &Knobs) -> bool {
        self.taken.contains(knobs)
    }

    /// Any allowed point.
    pub fn any(&mut self) -> Option<Knobs> {
        for _ in 0..DRAWS {
            let knobs = self.raw();
            if self.space.allows(&knobs) {
                return Some(knobs);
            }
        }
        None
    }

    /// A point that was not taken, and is now; nothing where there seem to be no more.
    pub fn draw(&mut self) -> Option<Knobs> {
        for _ in 0..DRAWS {
            let knobs = self.raw();
            if self.space.allows(&knobs) && self.take(&knobs) {
                return Some(knobs);
            }
        }
        if self.space.size() > LISTED_AT_MOST {
            return None;
        }
        let all = (0..self.space.size()).map(|place| point(&self.space, place));
        let left: BTreeSet<Knobs> =
            all.filter(|knobs| self.space.allows(knobs) && !self.taken.contains(knobs)).collect();
        let left: Vec<Knobs> = left.into_iter().collect();
        let chosen = (!left.is_empty()).then(|| left[self.random.random_range(0..left.len())].clone())?;
        self.take(&chosen);
        Some(chosen)
    }

    fn raw(&mut self) -> Knobs {
        let random = &mut self.random;
        let knobs = self.space.axes.iter().map(|axis| (axis.name.to_owned(), setting(axis, random)));
        self.space.within(canonical(Knobs(knobs.collect())))
    }

    /// The same point with knobs for all axes: those that decided nothing are as in the default one, or drawn.
    fn whole(&mut self, knobs: &Knobs) -> Knobs {
        let mut whole = knobs.clone();
        for axis in &self.space.axes {
            if !whole.0.contains_key(axis.name) {
                let usual = Space::neutral(axis.name).filter(|setting| axis.settings.contains(setting));
                let usual = usual.or_else(|| self.space.default.0.get(axis.name).cloned());
                whole.0.insert(axis.name.to_owned(), usual.unwrap_or_else(|| setting(axis, &mut self.random)));
            }
        }
        whole
    }

    /// The point with so many axes drawn anew; nothing where no allowed one is found.
    pub fn changed(&mut self, knobs: &Knobs, axes: usize) -> Option<Knobs> {
        const TRIES: usize = 16;
        let whole = self.whole(knobs);
        for _ in 0..TRIES {
            let mut other = whole.clone();
            for _ in 0..axes.min(self.space.axes.len()) {
                let axis = &self.space.axes[self.random.random_range(0..self.space.axes.len())];
                other.0.insert(axis.name.to_owned(), setting(axis, &mut self.random));
            }
            let other = canonical(other);
            if other != *knobs && self.space.allows(&other) {
                return Some(other);
            }
        }
        None
    }

    /// All allowed points that differ in the setting of one axis.
    pub fn neighbours(&mut self, knobs: &Knobs) -> Vec<Knobs> {
        let whole = self.whole(knobs);
        let axes = self.space.axes.iter();
        let settings = axes.flat_map(|axis| axis.settings.iter().map(move |setting| (axis.name, setting)));
        let mut found = BTreeSet::new();
        for (name, setting) in settings {
            let mut other = whole.clone();
            other.0.insert(name.to_owned(), setting.clone());
            let other = canonical(other);
            if other != *knobs && self.space.allows(&other) {
                found.insert(other);
            }
        }
        found.into_iter().collect()
    }

    /// A point with the settings of one parent up to some axis, and of the other from there.
    pub fn crossed(&mut self, one: &Knobs, other: &Knobs) -> Knobs {
        let (mut child, other) = (self.whole(one), self.whole(other));
        let from = self.random.random_range(0..=self.space.axes.len());
        for axis in &self.space.axes[from..] {
            child.0.insert(axis.name.to_owned(), other.0[axis.name].clone());
        }
        canonical(child)
    }
}

fn setting(axis: &Axis, random: &mut ChaCha8Rng) -> Setting {
    axis.settings[random.random_range(0..axis.settings.len())].clone()
}
