//! Operators that move elements and have one batched input.

use super::place::{COMBINES, Operand, Outcome, Place, Step, index, shift_axis};
use models::operators::{BorderPad, Expand, Gather, OneHot, Op, Pad, Slice, Tile, Transpose};

/// Operators of one batched input that copy elements.
pub(super) fn movement_step(mut op: Op, place: Place, operands: &[Operand]) -> Outcome<Step> {
    let (a, rank) = (place.axis, operands[0].rank());
    let step = match &mut op {
        Op::Transpose(Transpose { permutation }) => {
            let to = permutation.iter().position(|&axis| index(axis) == a).ok_or("its permutation is incomplete")?;
            Step::Keep(op, to)
        }
        Op::Slice(slice) => match slice.axes.iter().position(|&axis| index(axis) == a) {
            None => Step::Keep(op, a),
            Some(position) if place.is_whole() => {
                if slice.starts[position] == slice.stops[position] {
                    return Err("it takes no sample".to_owned());
                }
                let Slice { axes, starts, stops, steps } = slice;
                for list in [axes, starts, stops, steps] {
                    list.remove(position);
                }
                Step::Keep(op, a)
            }
            Some(_) => {
                slice.axes.iter_mut().for_each(|axis| shift_axis(axis, a));
                Step::Split(op, a)
            }
        },
        Op::Pad(Pad { pads, .. }) | Op::BorderPad(BorderPad { pads, .. }) => {
            if (pads[a], pads[rank + a]) == (0, 0) {
                Step::Keep(op, a)
            } else {
                pads.insert(rank + a, 0);
                pads.insert(a, 0);
                Step::Split(op, a)
            }
        }
        Op::Tile(Tile { repeats }) => {
            if repeats[a] == 1 {
                Step::Keep(op, a)
            } else {
                repeats.insert(a, 1);
                Step::Split(op, a)
            }
        }
        Op::Expand(Expand { shape }) => {
            let out_rank = rank.max(shape.len());
            let to = a + out_rank - rank;
            let mut padded = vec![1; out_rank - shape.len()];
            padded.append(shape);
            *shape = padded;
            if place.is_whole() && shape[to] > 1 {
                shape.insert(to, 1);
                Step::Split(op, to)
            } else {
                shape[to] = 1;
                Step::Keep(op, to)
            }
        }
        Op::Gather(Gather { axis }) => {
            let looked_up = operands[1].rank();
            if index(*axis) == a {
                shift_axis(axis, a);
                Step::Split(op, a)
            } else if index(*axis) < a {
                Step::Keep(op, a + looked_up - 1)
            } else {
                Step::Keep(op, a)
            }
        }
        Op::OneHot(OneHot { axis, .. }) => {
            let to = a + usize::from(index(*axis) <= a);
            Step::Keep(op, to)
        }
        Op::Trilu(_) if a + 2 < rank => Step::Keep(op, a),
        Op::Trilu(_) if a + 2 == rank => Step::Split(op, a),
        _ => return Err(COMBINES.to_owned()),
    };
    Ok(step)
}
