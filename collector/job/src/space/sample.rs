//! Draws schedules from a space.

use super::axes::choice;
use super::gpu::{sum, tensor};
use super::{Knobs, Space, dots, winograd};
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
pub(super) fn drawn(space: &Space) -> impl Iterator<Item = Knobs> {
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

/// Leaves out knobs that decide nothing, so that equal schedules are equal points.
pub fn canonical(mut knobs: Knobs) -> Knobs {
    knobs.0.retain(|name, setting| Space::neutral(name).as_ref() != Some(setting));
    // Without tiles that are taken together there is nothing else to finish first.
    if !["cache_c", "cache_y", "cache_x"].iter().any(|name| knobs.0.contains_key(*name)) {
        knobs.0.remove("sum_at");
    }
    if !knobs.0.contains_key("sum_at") {
        knobs.0.remove("cache_r");
    }
    if knobs.choice("copy_at") == Some("part") && !knobs.0.contains_key("cache_r") {
        knobs.0.insert("copy_at".to_owned(), choice("outer"));
    }
    if knobs.choice("pool") == Some("no") {
        knobs.0.remove("grain");
    }
    // What columns come to is computed from the input as it is.
    knobs.0.remove(if knobs.choice("windows") == Some("columns_first") { "pad_at" } else { "row" });
    if knobs.winograd_tile().is_some() {
        knobs.0.retain(|name, _| winograd::decides(name));
    } else {
        knobs.0.retain(|name, _| !winograd::AXES.contains(&name.as_str()));
    }
    if knobs.choice("layout") == Some("plain") {
        knobs.0.remove("block");
        knobs.0.remove("unseen");
    }
    dots::canonical(&mut knobs);
    if knobs.choice("stage") == Some("global") {
        knobs.0.remove("fetch");
        knobs.0.remove("pad_rows");
    }
    match knobs.choice("unit") {
        Some("tensor") => {
            knobs.0.retain(|name, _| matches!(name.as_str(), "unit" | "pad_rows" | "split_k") || tensor::is_axis(name));
        }
        _ => knobs.0.retain(|name, _| !tensor::is_axis(name)),
    }
    let is_of_sums = |name: &str| sum::AXES.contains(&name);
    match knobs.choice("sum") {
        Some("block") if knobs.0.keys().any(|name| is_of_sums(name)) => {
            knobs.0.retain(|name, _| matches!(name.as_str(), "unit" | "sum") || is_of_sums(name));
        }
        _ => knobs.0.retain(|name, _| !is_of_sums(name)),
    }
    knobs
}
