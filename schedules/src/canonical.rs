//! Removes knobs without effect, so that equal schedules compare equal.

use crate::axes::{Declaration, SHARED, SUM, Ways, winograd_tile};
use crate::choices::{SummedBy, Unit};
use crate::gpu::{self, UNIT, sum, tensor};
use crate::knobs::{Knobs, Setting};
use crate::{attention, contraction, declare, dots, winograd};
use std::sync::LazyLock;

const FAMILIES: [&[&Declaration]; 9] = [
    SHARED,
    contraction::AXES,
    winograd::AXES,
    dots::AXES,
    attention::AXES,
    declare::AXES,
    gpu::AXES,
    sum::AXES,
    tensor::AXES,
];

pub const NEWEST_AXIS: u32 = {
    let (mut newest, mut family) = (0, 0);
    while family < FAMILIES.len() {
        let mut place = 0;
        while place < FAMILIES[family].len() {
            let version = FAMILIES[family][place].version;
            newest = if version > newest { version } else { newest };
            place += 1;
        }
        family += 1;
    }
    newest
};

static DECLARED: LazyLock<Vec<&Declaration>> = LazyLock::new(|| {
    let mut all = FAMILIES.concat();
    all.sort_unstable_by_key(|declaration| declaration.name);
    all
});

pub fn find_declaration(name: &str) -> Option<&'static Declaration> {
    let found = DECLARED.binary_search_by(|declaration| declaration.name.cmp(name));
    found.ok().map(|place| DECLARED[place])
}

fn computing_way(knobs: &Knobs) -> Ways {
    if winograd_tile(knobs).is_some() {
        Ways::WINOGRAD
    } else if dots::are_lanes_positions(knobs) {
        Ways::DOTS
    } else if UNIT.is_set_to(knobs, Unit::Tensor) {
        Ways::TENSOR
    } else if SUM.is_set_to(knobs, SummedBy::Block) && sum::AXES.iter().any(|axis| axis.is_in(knobs)) {
        Ways::BLOCK_SUM
    } else {
        Ways::DIRECT
    }
}

pub fn canonical_knobs(mut knobs: Knobs) -> Knobs {
    let way = computing_way(&knobs);
    // Both lists are sorted by name.
    let mut declared = DECLARED.iter().peekable();
    let decides = |(name, setting): (&String, &Setting)| {
        while declared.next_if(|axis| axis.name < name.as_str()).is_some() {}
        match declared.peek().filter(|axis| axis.name == name) {
            Some(axis) => axis.ways.has(way) && !axis.is_neutral(setting) && (axis.decides)(&knobs),
            None => way == Ways::DIRECT,
        }
    };
    let kept: Vec<bool> = knobs.0.iter().map(decides).collect();
    if kept.contains(&false) {
        let mut kept = kept.into_iter();
        knobs.0.retain(|_, _| kept.next().unwrap_or(true));
    }
    contraction::settle_copies(&mut knobs);
    if way == Ways::DOTS {
        dots::settle_quads(&mut knobs);
    }
    knobs
}

#[cfg(test)]
mod tests {
    use super::DECLARED;

    #[test]
    fn every_axis_has_its_own_name() {
        let twice: Vec<&str> =
            DECLARED.windows(2).filter(|pair| pair[0].name == pair[1].name).map(|pair| pair[0].name).collect();
        assert!(twice.is_empty(), "{twice:?}");
    }
}
