//! Operators that move elements and have one batched input.

use super::position::{BatchPosition, COMBINES, Operand, Outcome, Step, index, split_axes};
use models::operators::{BorderPad, Expand, Gather, OneHot, Op, Pad, Slice, Tile, Transpose};
use std::slice::from_mut;

pub(super) fn movement_step(mut op: Op, position: BatchPosition, operands: &[Operand]) -> Outcome<Step> {
    let (a, rank) = (position.axis, operands[0].rank());
    let (is_split, axis) = match &mut op {
        Op::Transpose(Transpose { permutation }) => {
            let to = permutation.iter().position(|&axis| index(axis) == a);
            (false, to.ok_or("the permutation lacks a dimension")?)
        }
        Op::Slice(slice) => match slice.axes.iter().position(|&axis| index(axis) == a) {
            Some(place) if position.is_whole() => {
                if slice.starts[place] == slice.stops[place] {
                    return Err("the slice has no sample".to_owned());
                }
                let Slice { axes, starts, stops, steps } = slice;
                for list in [axes, starts, stops, steps] {
                    list.remove(place);
                }
                (false, a)
            }
            _ => (split_axes(&mut slice.axes, a), a),
        },
        Op::Pad(Pad { pads, .. }) | Op::BorderPad(BorderPad { pads, .. }) => {
            let is_padded = (pads[a], pads[rank + a]) != (0, 0);
            if is_padded {
                pads.insert(rank + a, 0);
                pads.insert(a, 0);
            }
            (is_padded, a)
        }
        Op::Tile(Tile { repeats }) => {
            let is_repeated = repeats[a] != 1;
            if is_repeated {
                repeats.insert(a, 1);
            }
            (is_repeated, a)
        }
        Op::Expand(Expand { shape }) => {
            let out_rank = rank.max(shape.len());
            let to = a + out_rank - rank;
            let mut padded = vec![1; out_rank - shape.len()];
            padded.append(shape);
            *shape = padded;
            let is_expanded = position.is_whole() && shape[to] > 1;
            if is_expanded {
                shape.insert(to, 1);
            } else {
                shape[to] = 1;
            }
            (is_expanded, to)
        }
        Op::Gather(Gather { axis }) => {
            let to = if index(*axis) < a { a + operands[1].rank() - 1 } else { a };
            (split_axes(from_mut(axis), a), to)
        }
        Op::OneHot(OneHot { axis, .. }) => (false, a + usize::from(index(*axis) <= a)),
        Op::Trilu(_) if a + 1 < rank => (a + 2 == rank, a),
        _ => return Err(COMBINES.to_owned()),
    };
    Ok(Step { op, axis, is_split })
}
