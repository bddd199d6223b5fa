//! Exact computation with 64-bit integers, which 64-bit floats round above 2^53. Elementwise functions are computed in
//! 128 bits. Other operators are computed in floating point on numbers that it holds exactly: on each digit of 16 bits
//! if they are linear in their operands, on the ranks of the elements if they only compare them.

#[cfg(test)]
mod tests;

use crate::compute_numbers;
use crate::index::index_operand;
use crate::movement::{broadcast_strides, map_padding, strided_offsets};
use crate::pointwise::{compare_values, is_linear};
use crate::reduce::{reduction_targets, returns_places};
use crate::tensor::Array;
use models::operators::{
    Binary, BinaryOp, Class, Clip, Compare, Op, Reduce, ReduceOp, ScatterElements, ScatterNd, ScatterOp, Unary, UnaryOp,
};
use models::types::DType;

/// Computes an operator that reads or writes 64-bit integers. Returns false if the result is exact in floating point,
/// or if the operator has no rule here.
pub(super) fn compute_integers(op: &Op, inputs: &[&Array], y: &mut Array) -> bool {
    let reads_wide = inputs.iter().any(|input| input.is_wide());
    match op {
        _ if !reads_wide => false,
        Op::Cast(_) => cast_elements(inputs[0], y),
        Op::Compare(Compare { function }) => {
            zip_elements(inputs[0], inputs[1], y, |a, b| i128::from(compare_values(*function, a, b)))
        }
        op if returns_places(op) => compute_by_rank(op, inputs, &[0], y).is_some(),
        _ if !y.is_wide() => false,
        Op::Binary(Binary { function }) => compute_binary(*function, inputs, y),
        Op::Unary(Unary { function }) => map_elements(inputs[0], y, |x| unary_value(*function, x)),
        Op::Clip(Clip { low, high }) => map_elements(inputs[0], y, |x| Some(x.max(*low as i128).min(*high as i128))),
        Op::Reduce(Reduce { function: ReduceOp::Max | ReduceOp::Min, .. }) => select_by_rank(op, inputs, &[0], y),
        Op::Reduce(Reduce { function, axes, .. }) => reduce_elements(*function, inputs[0], axes, y),
        Op::ScatterElements(ScatterElements { combine: ScatterOp::Max | ScatterOp::Min, .. })
        | Op::ScatterNd(ScatterNd { combine: ScatterOp::Max | ScatterOp::Min }) => {
            select_by_rank(op, inputs, &[0, 2], y)
        }
        // Products of three and more numbers are rounded.
        Op::ScatterElements(ScatterElements { combine: ScatterOp::Mul, .. })
        | Op::ScatterNd(ScatterNd { combine: ScatterOp::Mul }) => false,
        _ => compute_by_class(op, inputs, y),
    }
}

fn compute_by_class(op: &Op, inputs: &[&Array], y: &mut Array) -> bool {
    let is_element = |operand: &usize| inputs[*operand].is_wide() && index_operand(op) != Some(*operand);
    let elements: Vec<usize> = (0..inputs.len()).filter(is_element).collect();
    match op.class() {
        // The numbers of the result are attributes.
        _ if elements.is_empty() => false,
        // Products of three digits are too large.
        Class::Contraction if inputs.len() > 2 => false,
        Class::Contraction => compute_by_digit(op, inputs, &elements.chunks(1).collect::<Vec<_>>(), y),
        // Only maxima are pools of integers.
        Class::Pool => select_by_rank(op, inputs, &[0], y),
        // Sums and copies.
        Class::Reduction | Class::Movement | Class::View => compute_by_digit(op, inputs, &[&elements], y),
        Class::Pointwise if is_linear(op) => compute_by_digit(op, inputs, &[&elements], y),
        _ => false,
    }
}

/// Converts to the nearest float in one rounding, and to integers modulo their range.
fn cast_elements(x: &Array, y: &mut Array) -> bool {
    match y.tensor_type().dtype {
        DType::F32 => y.data = x.integers().iter().map(|&x| f64::from(x as f32)).collect(),
        DType::F64 | DType::F16 | DType::BF16 => y.data.copy_from_slice(&x.data),
        _ => y.set_integers(x.integers().iter().copied()),
    }
    true
}

fn map_elements(x: &Array, y: &mut Array, function: impl Fn(i128) -> Option<i128>) -> bool {
    let mapped: Option<Vec<i128>> = x.integers().iter().map(|&x| function(x)).collect();
    let Some(mapped) = mapped else { return false };
    y.set_integers(mapped.into_iter());
    true
}

fn unary_value(function: UnaryOp, x: i128) -> Option<i128> {
    match function {
        UnaryOp::Relu => Some(x.max(0)),
        UnaryOp::Neg => Some(-x),
        UnaryOp::Abs => Some(x.abs()),
        UnaryOp::Square => Some(x.wrapping_mul(x)),
        UnaryOp::Sign => Some(x.signum()),
        UnaryOp::BitNot => Some(!x),
        _ => None,
    }
}

fn zip_elements(a: &Array, b: &Array, y: &mut Array, function: impl Fn(i128, i128) -> i128) -> bool {
    let walk = |array: &Array| strided_offsets(&y.extents, &broadcast_strides(&array.extents, y.extents.len()));
    let places: Vec<(usize, usize)> = walk(a).zip(walk(b)).collect();
    let (a, b) = (a.integers(), b.integers());
    y.set_integers(places.into_iter().map(|(a_at, b_at)| function(a[a_at], b[b_at])));
    true
}

fn compute_binary(function: BinaryOp, inputs: &[&Array], y: &mut Array) -> bool {
    let divides = matches!(function, BinaryOp::Div | BinaryOp::Mod | BinaryOp::Fmod | BinaryOp::FloorDiv);
    // A quotient by zero is undefined.
    if divides && inputs[1].integers().contains(&0) {
        return false;
    }
    let value: fn(i128, i128) -> i128 = match function {
        BinaryOp::Add => |a, b| a + b,
        BinaryOp::Sub => |a, b| a - b,
        BinaryOp::Mul => i128::wrapping_mul,
        BinaryOp::Max => i128::max,
        BinaryOp::Min => i128::min,
        BinaryOp::Div => |a, b| a / b,
        BinaryOp::Fmod => |a, b| a % b,
        BinaryOp::Mod => |a, b| a - b * floor_quotient(a, b),
        BinaryOp::FloorDiv => floor_quotient,
        BinaryOp::BitAnd => |a, b| a & b,
        BinaryOp::BitOr => |a, b| a | b,
        BinaryOp::BitXor => |a, b| a ^ b,
        BinaryOp::ShiftLeft => |a, b| if (0..64).contains(&b) { a << b } else { 0 },
        BinaryOp::ShiftRight => |a, b| a >> b.clamp(0, 64),
        BinaryOp::Pow | BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => return false,
    };
    zip_elements(inputs[0], inputs[1], y, value)
}

fn floor_quotient(a: i128, b: i128) -> i128 {
    let quotient = a / b;
    if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}

fn reduce_elements(function: ReduceOp, x: &Array, axes: &[i64], y: &mut Array) -> bool {
    let (start, combine): (i128, fn(i128, i128) -> i128) = match function {
        ReduceOp::Sum => (0, i128::wrapping_add),
        ReduceOp::L1 => (0, |sum, x| sum.wrapping_add(x.abs())),
        ReduceOp::SumSquare => (0, |sum, x| sum.wrapping_add(x.wrapping_mul(x))),
        ReduceOp::Prod => (1, i128::wrapping_mul),
        _ => return false,
    };
    let mut folded = vec![start; y.data.len()];
    for (x, target) in x.integers().iter().zip(reduction_targets(x, axes)) {
        folded[target] = combine(folded[target], *x);
    }
    y.set_integers(folded.into_iter());
    true
}

/// Computes an operator that only compares elements, on their ranks among the distinct elements of the operands
/// `compared`. Returns the distinct elements in order.
fn compute_by_rank(op: &Op, inputs: &[&Array], compared: &[usize], y: &mut Array) -> Option<Vec<i128>> {
    let mut distinct: Vec<i128> =
        compared.iter().flat_map(|&operand| inputs[operand].integers().into_owned()).collect();
    distinct.sort_unstable();
    distinct.dedup();
    let rank = |x: &i128| distinct.binary_search(x).expect("every element is in the list") as f64;
    let ranked = replace_operands(inputs, |operand, input| {
        compared.contains(&operand).then(|| input.integers().iter().map(rank).collect())
    });
    compute_numbers(op, &ranked.iter().collect::<Vec<_>>(), y).then_some(distinct)
}

/// Computes an operator that returns the elements at some ranks.
fn select_by_rank(op: &Op, inputs: &[&Array], compared: &[usize], y: &mut Array) -> bool {
    let mut ranks = y.clone();
    let Some(distinct) = compute_by_rank(op, inputs, compared, &mut ranks) else { return false };
    // The maximum of no elements is infinite, which has no rank.
    let selected: Option<Vec<i128>> =
        ranks.data.iter().map(|rank| rank.is_finite().then(|| distinct[*rank as usize])).collect();
    let Some(selected) = selected else { return false };
    y.set_integers(selected.into_iter());
    true
}

/// Number of digits of an integer, and the size of a digit. Products of two digits have 32 bits, so that sums of 2^21
/// products are exact.
const DIGITS: u32 = 4;
const DIGIT_BITS: u32 = 16;

/// Returns a digit, of which the highest has the sign.
fn digit_of(x: i128, digit: u32) -> f64 {
    let rest = x >> (DIGIT_BITS * digit);
    (if digit + 1 == DIGITS { rest } else { rest & ((1 << DIGIT_BITS) - 1) }) as f64
}

/// Computes an operator that is linear in the operands of each group: the sum, over all choices of a digit for each
/// group, of the operator on these digits times the values of their places. Other operands stay as they are.
fn compute_by_digit(op: &Op, inputs: &[&Array], groups: &[&[usize]], y: &mut Array) -> bool {
    let mut sums = vec![0_i128; y.data.len()];
    for choice in 0..DIGITS.pow(groups.len() as u32) {
        let digits: Vec<u32> = (0..groups.len() as u32).map(|group| choice / DIGITS.pow(group) % DIGITS).collect();
        let place: u32 = digits.iter().sum();
        // Higher places have no bits of the result.
        if place >= DIGITS {
            continue;
        }
        let parts = replace_operands(inputs, |operand, input| {
            let group = groups.iter().position(|group| group.contains(&operand))?;
            Some(input.integers().iter().map(|&x| digit_of(x, digits[group])).collect())
        });
        let op = map_padding(op, |value| digit_of(value as i128, digits[0]));
        let mut part = y.clone();
        if !compute_numbers(&op, &parts.iter().collect::<Vec<_>>(), &mut part) {
            return false;
        }
        for (sum, part) in sums.iter_mut().zip(&part.data) {
            *sum = sum.wrapping_add((*part as i128) << (DIGIT_BITS * place));
        }
    }
    y.set_integers(sums.into_iter());
    true
}

fn replace_operands(inputs: &[&Array], replace: impl Fn(usize, &Array) -> Option<Vec<f64>>) -> Vec<Array> {
    let replaced = |(operand, input): (usize, &&Array)| match replace(operand, input) {
        Some(data) => input.with_data(data),
        None => (*input).clone(),
    };
    inputs.iter().enumerate().map(replaced).collect()
}
