//! Draws schedules from a space.

use super::{Knobs, Space, canonical};
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;

/// Up to `count` different points in an order that depends on the seed alone; the default point comes first.
///
/// Small spaces are listed and shuffled, large ones drawn with a bound on rejected draws.
pub fn sample(space: &Space, seed: u64, count: usize) -> Vec<Knobs> {
    const LISTED_AT_MOST: u64 = 4096;
    const DRAWS_PER_POINT: usize = 64;
    let mut chosen = vec![space.default.clone()];
    let mut seen: BTreeSet<Knobs> = chosen.iter().cloned().collect();
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut keep = |knobs: Knobs, chosen: &mut Vec<Knobs>| {
        if chosen.len() < count && space.allows(&knobs) && seen.insert(knobs.clone()) {
            chosen.push(knobs);
        }
    };
    if space.size() <= LISTED_AT_MOST {
        let mut order: Vec<u64> = (0..space.size()).collect();
        order.shuffle(&mut random);
        for place in order {
            keep(point(space, place), &mut chosen);
        }
    } else {
        for _ in 0..count.saturating_mul(DRAWS_PER_POINT) {
            if chosen.len() >= count {
                break;
            }
            keep(draw(space, &mut random), &mut chosen);
        }
    }
    chosen.truncate(count);
    chosen
}

/// Points without end, whether rules forbid them or not, the same ones every time.
pub(crate) fn drawn(space: &Space) -> impl Iterator<Item = Knobs> {
    let mut random = ChaCha8Rng::seed_from_u64(0);
    std::iter::repeat_with(move || draw(space, &mut random))
}

fn draw(space: &Space, random: &mut ChaCha8Rng) -> Knobs {
    let knobs = space.axes.iter().map(|axis| {
        let place = random.random_range(0..axis.settings.len());
        (axis.name.to_owned(), axis.settings[place].clone())
    });
    space.within(canonical(Knobs(knobs.collect())))
}

/// The point of a position in the product of the axes; whether it is allowed is another question.
pub fn point(space: &Space, mut position: u64) -> Knobs {
    let knobs = space.axes.iter().map(|axis| {
        let count = axis.settings.len() as u64;
        let place = usize::try_from(position % count).expect("fewer settings than memory");
        position /= count;
        (axis.name.to_owned(), axis.settings[place].clone())
    });
    canonical(Knobs(knobs.collect()))
}
