//! Samples schedules from a space.

use super::{Knobs, Space, canonical_knobs};
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;

/// Returns up to `count` distinct schedules, the default first; the order depends only on the seed.
pub fn sample_points(space: &Space, seed: u64, count: usize) -> Vec<Knobs> {
    const LISTED_AT_MOST: u64 = 4096;
    const DRAWS_PER_POINT: usize = 64;
    let mut chosen = vec![space.default.clone()];
    let mut seen: BTreeSet<Knobs> = chosen.iter().cloned().collect();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut keep = |knobs: Knobs, chosen: &mut Vec<Knobs>| {
        if chosen.len() < count && space.allows_point(&knobs) && seen.insert(knobs.clone()) {
            chosen.push(knobs);
        }
    };
    if space.point_count() <= LISTED_AT_MOST {
        let mut order: Vec<u64> = (0..space.point_count()).collect();
        order.shuffle(&mut random);
        for place in order {
            keep(nth_point(space, place), &mut chosen);
        }
    } else {
        for _ in 0..count.saturating_mul(DRAWS_PER_POINT) {
            if chosen.len() >= count {
                break;
            }
            keep(draw_point(space, &mut random), &mut chosen);
        }
    }
    chosen.truncate(count);
    chosen
}

/// Returns an endless, deterministic sequence of random points; ignores rules.
pub(crate) fn random_points(space: &Space) -> impl Iterator<Item = Knobs> {
    let mut random = ChaCha8Rng::seed_from_u64(0);
    std::iter::repeat_with(move || draw_point(space, &mut random))
}

fn draw_point(space: &Space, random: &mut ChaCha8Rng) -> Knobs {
    let knobs = space.axes.iter().map(|axis| {
        let place = random.random_range(0..axis.settings.len());
        (axis.name.to_owned(), axis.settings[place].clone())
    });
    space.reduce_overhang(canonical_knobs(Knobs(knobs.collect())))
}

/// Returns the point at an index of the product of all axes; ignores rules.
pub fn nth_point(space: &Space, mut position: u64) -> Knobs {
    let knobs = space.axes.iter().map(|axis| {
        let count = axis.settings.len() as u64;
        let place =
            usize::try_from(position % count).expect("an axis has fewer settings than the address space has bytes");
        position /= count;
        (axis.name.to_owned(), axis.settings[place].clone())
    });
    canonical_knobs(Knobs(knobs.collect()))
}
