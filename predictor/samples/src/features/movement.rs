//! Access pattern of operators that only move data: contiguous runs are copied fast, single elements are not.

use super::work::Work;
use models::Op;
use models::operators::{Concat, Slice, Transpose};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Movement {
    /// Number of consecutive elements that are contiguous in both input and output.
    pub run: i64,
    /// Distance in the input of elements that are adjacent in the output.
    pub step: i64,
    /// Number of input elements before the first one that is read.
    pub offset: i64,
}

impl Movement {
    const SINGLE: Movement = Movement { run: 1, step: 1, offset: 0 };

    /// Describes the access pattern of a slice, transposition or concatenation; None for other operators.
    pub fn from_operator(op: &Op, input: &[i64], output: &[i64]) -> Option<Movement> {
        match op {
            Op::Slice(Slice { axes, starts, steps, .. }) => Some(slice_movement(input, output, axes, starts, steps)),
            Op::Transpose(Transpose { permutation }) => Some(transpose_movement(input, permutation)),
            Op::Concat(Concat { axis }) => {
                let axis = resolve_axis(*axis, input.len());
                Some(Movement { run: extent_product(&input[axis.min(input.len())..]), ..Movement::SINGLE })
            }
            _ => None,
        }
    }
}

impl Work {
    pub fn set_movement(&mut self, movement: &Movement) {
        self.run = movement.run.max(1) as f64;
        self.step = movement.step.max(1) as f64;
        self.offset = movement.offset.max(0) as f64;
    }
}

fn slice_movement(input: &[i64], output: &[i64], axes: &[i64], starts: &[i64], steps: &[i64]) -> Movement {
    let mut movement = Movement::SINGLE;
    let mut stride = 1i64;
    let mut is_together = true;
    for axis in (0..input.len().min(output.len())).rev() {
        let given = axes.iter().position(|given| resolve_axis(*given, input.len()) == axis);
        let value_on_axis =
            |numbers: &[i64], other: i64| given.and_then(|at| numbers.get(at)).copied().unwrap_or(other);
        let (start, step) = (value_on_axis(starts, 0), value_on_axis(steps, 1));
        let start = if start < 0 { start.saturating_add(input[axis]) } else { start }.clamp(0, input[axis].max(0));
        movement.offset = movement.offset.saturating_add(start.saturating_mul(stride));
        if axis + 1 == input.len() {
            movement.step = step.saturating_abs();
        }
        if is_together && step == 1 {
            movement.run = movement.run.saturating_mul(output[axis]);
        }
        is_together &= output[axis] == input[axis] && step == 1;
        stride = stride.saturating_mul(input[axis]);
    }
    movement
}

fn transpose_movement(input: &[i64], permutation: &[i64]) -> Movement {
    let rank = input.len();
    let stays = permutation.iter().enumerate().rev().take_while(|(at, from)| resolve_axis(**from, rank) == *at).count();
    let last = permutation.last().map_or(0, |from| resolve_axis(*from, rank));
    Movement {
        run: extent_product(&input[rank.saturating_sub(stays)..]),
        step: extent_product(input.get(last + 1..).unwrap_or_default()),
        offset: 0,
    }
}

fn resolve_axis(axis: i64, rank: usize) -> usize {
    usize::try_from(if axis < 0 { axis.saturating_add(rank as i64) } else { axis }).unwrap_or(0)
}

fn extent_product(extents: &[i64]) -> i64 {
    extents.iter().fold(1, |product, extent| product.saturating_mul(*extent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_runs_with_an_offset() {
        let slice = |axes: &[i64], starts: &[i64], steps: &[i64], output: &[i64]| {
            let (axes, starts, steps) = (axes.to_vec(), starts.to_vec(), steps.to_vec());
            let stops = vec![i64::MAX; axes.len()];
            Movement::from_operator(&Op::Slice(Slice { axes, starts, stops, steps }), &[2, 6, 5, 4], output)
                .expect("a movement")
        };
        // Half of the channels: all pixels of three channels are contiguous.
        assert_eq!(slice(&[1], &[3], &[1], &[2, 3, 5, 4]), Movement { run: 60, step: 1, offset: 60 });
        assert_eq!(slice(&[-1], &[-2], &[1], &[2, 6, 5, 2]), Movement { run: 2, step: 1, offset: 2 });
        assert_eq!(slice(&[2, 3], &[1, 0], &[2, 2], &[2, 6, 2, 2]), Movement { run: 1, step: 2, offset: 4 });
    }

    #[test]
    fn transposed_data_is_picked_up_in_steps() {
        let transpose = |permutation: &[i64]| {
            Movement::from_operator(&Op::Transpose(Transpose { permutation: permutation.to_vec() }), &[2, 6, 5, 4], &[])
                .expect("a movement")
        };
        assert_eq!(transpose(&[0, 2, 1, 3]), Movement { run: 4, step: 1, offset: 0 });
        assert_eq!(transpose(&[0, 2, 3, 1]), Movement { run: 1, step: 20, offset: 0 });
        assert_eq!(transpose(&[1, 0, 2, 3]), Movement { run: 20, step: 1, offset: 0 });
    }
}
