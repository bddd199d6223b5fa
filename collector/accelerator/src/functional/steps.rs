//! Inner loops of the functional simulation: products and ALU operations.

use super::Modules;
use crate::check::{each_step, step_count};
use crate::core::Core;
use crate::instruction::{Alu, AluOp, Multiply};

impl Modules<'_> {
    pub(super) fn execute_multiply(&mut self, multiply: &Multiply) -> Result<(), &'static str> {
        let ops = self.step_sequence(multiply.steps)?;
        let factors = [multiply.sum, multiply.data, multiply.weight];
        let Core { batch, block, .. } = self.core;
        let (batch, block) = (batch as usize, block as usize);
        let vector = batch * block;
        let Modules { data, weights, sums, totals, .. } = self;
        let mut left = false;
        if multiply.is_reset {
            totals.resets += step_count(multiply.steps);
            each_step(multiply.steps, &ops, factors, |sum, _, _| {
                match sums.get_mut(sum * vector..(sum + 1) * vector) {
                    Some(sums) => sums.fill(0),
                    None => left = true,
                }
            });
        } else {
            totals.products += step_count(multiply.steps);
            each_step(multiply.steps, &ops, factors, |sum, at, weight| {
                let sums = sums.get_mut(sum * vector..(sum + 1) * vector);
                let data = data.get(at * vector..(at + 1) * vector);
                let weights = weights.get(weight * block * block..(weight + 1) * block * block);
                let (Some(sums), Some(data), Some(weights)) = (sums, data, weights) else {
                    left = true;
                    return;
                };
                for (sums, data) in sums.chunks_exact_mut(block).zip(data.chunks_exact(block)) {
                    match block {
                        16 => add_products::<16>(sums, data, weights),
                        8 => add_products::<8>(sums, data, weights),
                        _ => any_product(sums, data, weights, block),
                    }
                }
            });
        }
        if left { Err("the core's memory") } else { Ok(()) }
    }

    pub(super) fn execute_alu(&mut self, alu: &Alu) -> Result<(), &'static str> {
        let ops = self.step_sequence(alu.steps)?;
        self.totals.changes += step_count(alu.steps);
        let vector = (self.core.batch * self.core.block) as usize;
        let sums = &mut self.sums;
        let mut left = false;
        each_step(alu.steps, &ops, [alu.sum, alu.other, [0, 0]], |sum, other, _| {
            let is_inside = |place: usize| (place + 1) * vector <= sums.len();
            if !is_inside(sum) || alu.immediate.is_none() && !is_inside(other) {
                left = true;
                return;
            }
            for lane in 0..vector {
                let by = alu.immediate.map_or_else(|| sums[other * vector + lane], i32::from);
                let sum = &mut sums[sum * vector + lane];
                *sum = match alu.op {
                    AluOp::Min => (*sum).min(by),
                    AluOp::Max => (*sum).max(by),
                    AluOp::Add => sum.wrapping_add(by),
                    AluOp::ShiftRight => shift_sum(*sum, by),
                };
            }
        });
        if left { Err("the core's memory") } else { Ok(()) }
    }
}

/// Shifts a sum right by `by` bits, or left if `by` is negative.
fn shift_sum(sum: i32, by: i32) -> i32 {
    match u32::try_from(by) {
        Ok(by) => sum >> by.min(31),
        Err(_) => sum.checked_shl(by.unsigned_abs()).unwrap_or(0),
    }
}

fn add_products<const N: usize>(sums: &mut [i32], data: &[i8], weights: &[i8]) {
    let (Some(data), (rows, _)) = (data.first_chunk::<N>(), weights.as_chunks::<N>()) else { return };
    for (sum, row) in sums.iter_mut().zip(rows) {
        let products = data.iter().zip(row).map(|(x, w)| i32::from(i16::from(*x) * i16::from(*w)));
        *sum = sum.wrapping_add(products.sum());
    }
}

fn any_product(sums: &mut [i32], data: &[i8], weights: &[i8], block: usize) {
    for (sum, row) in sums.iter_mut().zip(weights.chunks_exact(block)) {
        let products = data.iter().zip(row).map(|(x, w)| i32::from(*x) * i32::from(*w));
        *sum = sum.wrapping_add(products.sum());
    }
}
