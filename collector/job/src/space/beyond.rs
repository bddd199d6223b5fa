//! How far loops over tiles reach past the end: tiles that are taken together, and steps that a thread takes at once, need not
//! divide what there is, and what is too much is walked and left out one by one.

use super::{Knobs, order};
use crate::tiles::{count, filled};

/// The loops of a result that is computed in tiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loops {
    /// Extents of the result, by place.
    pub extents: Vec<i64>,
    /// Whether channels stand second, or last.
    pub is_conv: bool,
    /// Whether columns may be computed that fill the last tile, and cut.
    pub may_fill: bool,
}

/// No loops at all.
pub(super) const NONE: Loops = Loops { extents: Vec::new(), is_conv: false, may_fill: false };

/// What is walked may be so many times what there is, in tiles.
pub(super) const MOST: f64 = 1.25;

impl Loops {
    /// Steps that are walked, tiles together and threads' steps filled, over tiles that there are.
    pub fn walked(&self, knobs: &Knobs) -> f64 {
        let rank = self.extents.len();
        if rank < 2 {
            return 1.0;
        }
        let number = |name: &str| knobs.number(name).unwrap_or(1).max(1);
        let is_blocked = matches!(knobs.choice("layout"), Some("blocked" | "dots"));
        let block = if is_blocked { number("block") } else { 1 };
        let (channel, columns) = if self.is_conv { (1, rank - 1) } else { (rank - 1, rank - 2) };
        let axes = |place: usize| match place {
            place if place == channel => (number("tile_c") * block, number("cache_c")),
            place if place == columns => (number("tile_x"), number("cache_x")),
            place if self.is_conv && place > 1 && place + 2 == rank => (number("tile_y"), number("cache_y")),
            _ => (1, 1),
        };
        let mut walked = 1.0;
        let mut outer = Vec::with_capacity(rank);
        for (place, extent) in self.extents.iter().enumerate() {
            let (tile, together) = axes(place);
            let tiles = count(*extent, tile);
            walked *= filled(tiles, together) as f64 / tiles.max(1) as f64;
            outer.push(count(tiles, together));
        }
        let places = order::of_tiles(knobs.choice("outer").unwrap_or("space"), channel, rank, self.is_conv);
        let inside = places.iter().map(|&place| axes(place).1).filter(|together| *together > 1);
        let loops: Vec<i64> = places.iter().map(|&place| outer[place]).chain(inside).collect();
        let is_cut = self.is_conv && self.may_fill && self.extents[columns] % number("tile_x") != 0;
        let home = if knobs.choice("sum_at") == Some("cache") { rank } else { loops.len() };
        let rows = places.iter().position(|&place| place == columns).unwrap_or(rank);
        let fused = if is_cut { rows } else { usize::try_from(number("parallel")).unwrap_or(1) };
        let steps: i64 = loops.iter().take(fused.min(home).max(1)).product();
        walked * filled(steps, number("grain")) as f64 / steps.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::super::Setting;
    use super::*;

    #[test]
    fn what_does_not_divide_is_walked_past_the_end() {
        let loops = Loops { extents: vec![1, 64, 14, 14], is_conv: true, may_fill: true };
        let walked = |text: &str| {
            let knobs = text.split_whitespace().map(|pair| {
                let (name, value) = pair.split_once('=').unwrap();
                let setting = value.parse().map_or_else(|_| Setting::Choice(value.to_owned()), Setting::Number);
                (name.to_owned(), setting)
            });
            loops.walked(&Knobs(knobs.collect()))
        };
        assert_eq!(walked("tile_c=8 tile_y=2 tile_x=14 outer=space parallel=2"), 1.0);
        assert_eq!(walked("tile_c=8 tile_y=2 tile_x=14 outer=space parallel=1 grain=4"), 4.0, "there is one image");
        assert_eq!(
            walked("tile_c=8 tile_y=2 tile_x=14 outer=channels parallel=2 grain=4"),
            1.0,
            "eight tiles of channels"
        );
        assert_eq!(walked("tile_c=16 cache_c=3 tile_y=2 tile_x=14 outer=space"), 1.5, "six for four");
        assert_eq!(walked("layout=blocked block=32 tile_c=2 cache_c=8 tile_x=14 outer=space"), 8.0);
    }
}
