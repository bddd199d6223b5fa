//! Exact computation with 64-bit integers, which 64-bit floats round above 2^53. Elementwise functions are computed in
//! 128 bits. Other operators are computed in floating point on numbers that it holds exactly: on each digit of 16 bits
//! if they are linear in their operands, on the ranks of the elements if they only compare them.

use super::compute_numbers;
use super::movement::{broadcast_strides, strided_offsets};
use super::pointwise::compare_values;
use super::reduce::reduction_targets;
use super::tensor::Array;
use models::operators::{
    Binary, BinaryOp, Clip, Compare, Op, Pad, Pool, PoolMode, Reduce, ReduceOp, Resize, ResizeMode, ScatterElements,
    ScatterNd, ScatterOp, Unary, UnaryOp,
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
        Op::ArgReduce(_) | Op::ArgTop(_) => compute_by_rank(op, inputs, &[0], y).is_some(),
        _ if !y.is_wide() => false,
        Op::Binary(Binary { function }) => compute_binary(*function, inputs, y),
        Op::Unary(Unary { function }) => map_elements(inputs[0], y, |x| unary_value(*function, x)),
        Op::Clip(Clip { low, high }) => map_elements(inputs[0], y, |x| Some(x.max(*low as i128).min(*high as i128))),
        Op::Reduce(Reduce { function: ReduceOp::Max | ReduceOp::Min, .. })
        | Op::Pool(Pool { mode: PoolMode::Max, .. })
        | Op::GlobalPool(_)
        | Op::AdaptivePool(_) => select_by_rank(op, inputs, &[0], y),
        Op::Reduce(Reduce { function, axes, .. }) => reduce_elements(*function, inputs[0], axes, y),
        Op::ScatterElements(ScatterElements { combine, .. }) | Op::ScatterNd(ScatterNd { combine }) => match combine {
            ScatterOp::Replace | ScatterOp::Add => compute_by_digit(op, inputs, &[&[0, 2]], y),
            ScatterOp::Max | ScatterOp::Min => select_by_rank(op, inputs, &[0, 2], y),
            // Products of three and more numbers are rounded.
            ScatterOp::Mul => false,
        },
        Op::Gather(_) | Op::GatherElements(_) | Op::GatherNd(_) => compute_by_digit(op, inputs, &[&[0]], y),
        Op::Where(_) => compute_by_digit(op, inputs, &[&[1, 2]], y),
        Op::MatMul(_) | Op::Dense(_) | Op::Conv(_) | Op::ConvTranspose(_) => {
            compute_by_digit(op, inputs, &[&[0], &[1]], y)
        }
        // Products of three digits are too large.
        Op::Einsum(_) if inputs.len() <= 2 => {
            let all: Vec<usize> = (0..inputs.len()).collect();
            compute_by_digit(op, inputs, &all.chunks(1).collect::<Vec<_>>(), y)
        }
        Op::Resize(Resize { mode: ResizeMode::Nearest, .. })
        | Op::Reshape(_)
        | Op::Flatten(_)
        | Op::Identity(_)
        | Op::Transpose(_)
        | Op::Concat(_)
        | Op::Slice(_)
        | Op::Pad(_)
        | Op::BorderPad(_)
        | Op::Expand(_)
        | Op::Tile(_)
        | Op::Trilu(_)
        | Op::CumSum(_)
        | Op::BiasAdd(_) => compute_by_digit(op, inputs, &[&(0..inputs.len()).collect::<Vec<_>>()], y),
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
        let op = match op {
            Op::Pad(Pad { pads, value }) => {
                Op::Pad(Pad { pads: pads.clone(), value: digit_of(*value as i128, digits[0]) })
            }
            other => other.clone(),
        };
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

#[cfg(test)]
mod tests {
    use crate::{Tensor, Tolerance, compare_tensors, evaluate_operator};
    use models::operators::{
        Binary, BinaryOp, Cast, Clip, Compare, CompareOp, Concat, CumSum, Einsum, Gather, MatMul, Op, Pad, Reduce,
        ReduceOp, ScatterElements, ScatterOp, Slice, Unary, UnaryOp, Where,
    };
    use models::types::{DType, TensorType};
    use proptest::prelude::*;

    const LARGE: i64 = (1 << 53) + 1;

    fn signed(extents: &[i64], numbers: &[i64]) -> Tensor {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        Tensor::from_bytes(TensorType::new(DType::I64, extents), bytes).unwrap()
    }

    fn unsigned(numbers: &[u64]) -> Tensor {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        Tensor::from_bytes(TensorType::new(DType::U64, &[numbers.len() as i64]), bytes).unwrap()
    }

    #[track_caller]
    fn check(op: Op, inputs: &[Tensor], wanted: &[i128]) {
        let output = evaluate_operator(&op, inputs).unwrap();
        assert_eq!(output.to_wide().unwrap(), wanted, "{op:?}");
    }

    fn binary(function: BinaryOp) -> Op {
        Op::Binary(Binary { function })
    }

    #[test]
    fn operators_keep_all_bits_of_64_bit_integers() {
        let large = i128::from(LARGE);
        let x = signed(&[3], &[LARGE, LARGE + 2, -LARGE]);
        check(
            Op::Concat(Concat { axis: 0 }),
            &[x.clone(), x.clone()],
            &[large, large + 2, -large, large, large + 2, -large],
        );
        let slice = Slice { axes: vec![0], starts: vec![2], stops: vec![0], steps: vec![-1] };
        check(Op::Slice(slice), std::slice::from_ref(&x), &[-large, large + 2]);
        check(
            Op::Pad(Pad { pads: vec![1, 0], value: -3.0 }),
            std::slice::from_ref(&x),
            &[-3, large, large + 2, -large],
        );
        check(Op::Gather(Gather { axis: 0 }), &[x.clone(), signed(&[2], &[-1, 0])], &[-large, large]);
        let yes = Tensor::from_numbers(TensorType::new(DType::Bool, &[3]), &[1.0, 0.0, 1.0]).unwrap();
        check(Op::Where(Where {}), &[yes, x.clone(), signed(&[1], &[5])], &[large, 5, -large]);
        let add = ScatterElements { axis: 0, combine: ScatterOp::Add };
        let updates = [x.clone(), signed(&[1], &[1]), signed(&[1], &[LARGE])];
        check(Op::ScatterElements(add), &updates, &[large, 2 * large + 2, -large]);
        let max = ScatterElements { axis: 0, combine: ScatterOp::Max };
        let updates = [x.clone(), signed(&[1], &[0]), signed(&[1], &[LARGE + 1])];
        check(Op::ScatterElements(max), &updates, &[large + 1, large + 2, -large]);
        check(
            Op::CumSum(CumSum { axis: 0, exclusive: false, reverse: false }),
            std::slice::from_ref(&x),
            &[large, 2 * large + 2, large + 2],
        );
        for (function, wanted) in [
            (ReduceOp::Sum, large + 2),
            (ReduceOp::Max, large + 2),
            (ReduceOp::Min, -large),
            (ReduceOp::L1, 3 * large + 2),
        ] {
            check(Op::Reduce(Reduce { function, axes: vec![0], keep: false }), std::slice::from_ref(&x), &[wanted]);
        }
        let (low, high) = (-(2.0_f64.powi(54)), 2.0_f64.powi(53));
        check(Op::Clip(Clip { low, high }), std::slice::from_ref(&x), &[large - 1, large - 1, -large]);
        let column = signed(&[3, 1], &[1, 2, 3]);
        let product = large + 2 * (large + 2) - 3 * large;
        let multiply = Op::MatMul(MatMul { transpose_a: false, transpose_b: false });
        check(multiply, &[signed(&[1, 3], &[LARGE, LARGE + 2, -LARGE]), column], &[product]);
        let einsum = Op::Einsum(Einsum { equation: "a,a->".to_owned() });
        check(einsum, &[x.clone(), signed(&[3], &[1, 2, 3])], &[product]);
    }

    #[test]
    fn comparisons_and_casts_of_64_bit_integers_are_exact() {
        let equal = Op::Compare(Compare { function: CompareOp::Equal });
        let found = evaluate_operator(&equal, &[unsigned(&[u64::MAX, 7]), unsigned(&[u64::MAX - 1, 7])]).unwrap();
        assert_eq!(found.to_numbers(), [0.0, 1.0]);
        check(Op::Cast(Cast { to: DType::I64 }), &[unsigned(&[u64::MAX, 1 << 63])], &[-1, i64::MIN.into()]);
        check(Op::Cast(Cast { to: DType::U64 }), &[signed(&[1], &[-2])], &[(u64::MAX - 1).into()]);
        // Just above half of a step of 32-bit floats: rounding to 64 bits first would give a tie.
        let number = (1_i64 << 60) + (1 << 36) + 1;
        let float = evaluate_operator(&Op::Cast(Cast { to: DType::F32 }), &[signed(&[1], &[number])]).unwrap();
        assert_eq!(float.to_numbers(), [f64::from(number as f32)]);
        let exact = Tolerance { absolute: 0.0, relative: 0.0 };
        let compared = compare_tensors(&signed(&[1], &[LARGE]), &signed(&[1], &[LARGE - 1]), exact).unwrap();
        assert_eq!((compared.ok, compared.max_abs_error), (false, 1.0));
    }

    #[test]
    fn unsigned_integers_use_all_bits() {
        let top = 1_u64 << 63;
        check(binary(BinaryOp::Add), &[unsigned(&[u64::MAX]), unsigned(&[2])], &[1]);
        check(binary(BinaryOp::ShiftRight), &[unsigned(&[u64::MAX, top]), unsigned(&[63, 62])], &[1, 2]);
        check(binary(BinaryOp::ShiftLeft), &[unsigned(&[3, 3]), unsigned(&[63, 64])], &[top.into(), 0]);
        check(binary(BinaryOp::BitAnd), &[unsigned(&[u64::MAX]), unsigned(&[top + 1])], &[(top + 1).into()]);
        check(Op::Unary(Unary { function: UnaryOp::BitNot }), &[unsigned(&[1])], &[(u64::MAX - 1).into()]);
    }

    proptest! {
        #[test]
        fn arithmetic_wraps_as_in_machine_code(a in any::<i64>(), b in any::<i64>()) {
            let nonzero = if b == 0 { 1 } else { b };
            let floor = a.wrapping_div(nonzero) - i64::from(a.wrapping_rem(nonzero) != 0 && (a < 0) != (nonzero < 0));
            for (function, b, wanted) in [
                (BinaryOp::Add, b, a.wrapping_add(b)),
                (BinaryOp::Sub, b, a.wrapping_sub(b)),
                (BinaryOp::Mul, b, a.wrapping_mul(b)),
                (BinaryOp::Div, nonzero, a.wrapping_div(nonzero)),
                (BinaryOp::Fmod, nonzero, a.wrapping_rem(nonzero)),
                (BinaryOp::FloorDiv, nonzero, floor),
                (BinaryOp::BitXor, b, a ^ b),
                (BinaryOp::Max, b, a.max(b)),
            ] {
                let output = evaluate_operator(&binary(function), &[signed(&[1], &[a]), signed(&[1], &[b])]).unwrap();
                prop_assert_eq!(output.to_wide().unwrap(), vec![i128::from(wanted)], "{:?}", function);
            }
        }
    }
}
