//! Tests of exact 64-bit integers against machine arithmetic and numbers worked out by hand.

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
    check(Op::Pad(Pad { pads: vec![1, 0], value: -3.0 }), std::slice::from_ref(&x), &[-3, large, large + 2, -large]);
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
    for (function, wanted) in
        [(ReduceOp::Sum, large + 2), (ReduceOp::Max, large + 2), (ReduceOp::Min, -large), (ReduceOp::L1, 3 * large + 2)]
    {
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
