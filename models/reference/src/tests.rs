//! Compares reference computations with numbers worked out by hand.

use super::*;
use models::infer::infer_type;
use models::operators::{
    AdaptivePool, ArgReduce, ArgTop, Attention, BatchNorm, Binary, BinaryOp, Border, BorderPad, Cast, Clip, Compare,
    CompareOp, Concat, Conv, ConvTranspose, CumSum, Dense, Dequantize, Einsum, Expand, Gather, GatherElements,
    GatherNd, GlobalPool, GroupNorm, Identity, LayerNorm, LpNorm, Lrn, MatMul, MeanVarianceNorm, OneHot, PRelu, Pad,
    Pool, PoolMode, QConv, Quantize, Reduce, ReduceOp, Requantize, Resize, ResizeMode, RmsNorm, Rope, ScaleShift,
    ScatterElements, ScatterNd, ScatterOp, Slice, Softmax, Tile, Transpose, Trilu, Unary, UnaryOp, Where,
};
use models::task::{Parameter, Step};
use models::types::DType;
use proptest::prelude::*;

fn f32(extents: &[i64], numbers: &[f64]) -> Tensor {
    Tensor::from_numbers(TensorType::f32(extents), numbers).unwrap()
}

fn counting(extents: &[i64]) -> Tensor {
    let count = extents.iter().product::<i64>();
    f32(extents, &(1..=count).map(|number| number as f64).collect::<Vec<_>>())
}

fn single(op: Op, types: &[&str]) -> Task {
    let types: Vec<TensorType> = types.iter().map(|ty| ty.parse().expect("a type")).collect();
    let output = infer_type(&op, &types.iter().collect::<Vec<_>>()).expect("types that fit");
    let inputs = (0..types.len()).map(Operand::Parameter).collect();
    let parameters = types.into_iter().map(|ty| Parameter { ty, is_constant: false }).collect();
    Task { parameters, steps: vec![Step { op, inputs, output }] }
}

fn run(op: Op, inputs: &[Tensor]) -> Vec<f64> {
    let types: Vec<String> = inputs.iter().map(|input| input.tensor_type().to_string()).collect();
    let task = single(op, &types.iter().map(String::as_str).collect::<Vec<_>>());
    evaluate_task(&task, inputs).unwrap().to_numbers()
}

#[track_caller]
fn check(op: Op, inputs: &[Tensor], expected: &[f64]) {
    let actual = run(op, inputs);
    assert_eq!(actual.len(), expected.len());
    let is_near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-6 || a == b;
    assert!(actual.iter().zip(expected).all(is_near), "{actual:?} is not {expected:?}");
}

fn pool(mode: PoolMode, ceil: bool, count_pad: bool) -> Op {
    Op::Pool(Pool { mode, kernel: vec![2], strides: vec![2], pads: vec![1, 0], dilations: vec![1], ceil, count_pad })
}

#[test]
fn every_operator_has_a_reference_computation() {
    let is_missing = |text: &&str| {
        let task = Task::from_text(text).expect("an example is a task");
        evaluate_task(&task, &random_inputs(&task, 1).expect("inputs of a known task")).is_err()
    };
    let examples = models::operators::EXAMPLES.iter().flat_map(|(_, texts)| *texts).copied();
    assert_eq!(examples.filter(is_missing).collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn contractions_by_hand() {
    let conv = Op::Conv(Conv { strides: vec![1, 1], pads: vec![1, 0, 0, 0], dilations: vec![1, 1], groups: 1 });
    // Rows above the data count as zero: [1 2 3] under the second filter row, then both rows.
    check(conv, &[counting(&[1, 1, 2, 3]), counting(&[1, 1, 2, 2])], &[11.0, 18.0, 37.0, 47.0]);
    let grouped = Op::Conv(Conv { strides: vec![2], pads: vec![0, 0], dilations: vec![2], groups: 2 });
    let x = counting(&[1, 2, 5]);
    check(grouped, &[x, counting(&[2, 1, 2])], &[7.0, 13.0, 50.0, 64.0]);
    let (a, b) = (counting(&[2, 3]), counting(&[3, 2]));
    check(Op::MatMul(MatMul { transpose_a: false, transpose_b: false }), &[a.clone(), b], &[22.0, 28.0, 49.0, 64.0]);
    check(Op::Dense(Dense {}), &[a, counting(&[1, 3])], &[14.0, 32.0]);
}

#[test]
fn pools_by_hand() {
    let x = || [f32(&[1, 1, 4], &[-1.0, -2.0, -3.0, -4.0])];
    check(pool(PoolMode::Max, false, false), &x(), &[-1.0, -2.0]);
    check(pool(PoolMode::Max, true, false), &x(), &[-1.0, -2.0, -4.0]);
    check(pool(PoolMode::Average, true, false), &x(), &[-1.0, -2.5, -4.0]);
    // The leading pad counts; what only rounding up reaches does not.
    check(pool(PoolMode::Average, true, true), &x(), &[-0.5, -2.5, -4.0]);
    check(Op::GlobalPool(GlobalPool { mode: PoolMode::Average }), &x(), &[-2.5]);
    check(Op::GlobalPool(GlobalPool { mode: PoolMode::Max }), &x(), &[-1.0]);
}

/// The reference iterates over the data under a window, not over the window, so a huge window takes no longer.
#[test]
fn a_window_far_larger_than_its_data() {
    let op = |mode, count_pad| {
        Op::Pool(Pool {
            mode,
            kernel: vec![1 << 30],
            strides: vec![1 << 29],
            pads: vec![(1 << 30) - 1; 2],
            dilations: vec![1],
            ceil: false,
            count_pad,
        })
    };
    check(op(PoolMode::Max, false), &[counting(&[1, 1, 4])], &[1.0, 4.0, 4.0]);
    check(op(PoolMode::Average, false), &[counting(&[1, 1, 4])], &[1.0, 2.5, 3.0]);
    check(op(PoolMode::Average, true), &[f32(&[1, 1, 1], &[1e9])], &[1e9 / f64::from(1 << 30); 2]);
}

#[test]
fn empty_outputs_take_no_time() {
    let wide = || f32(&[1, 1 << 40, 0], &[]);
    check(Op::Concat(Concat { axis: 0 }), &[wide(), wide()], &[]);
    check(Op::Transpose(Transpose { permutation: vec![2, 0, 1] }), &[wide()], &[]);
}

#[test]
fn movement_by_hand() {
    check(Op::Transpose(Transpose { permutation: vec![1, 0] }), &[counting(&[2, 3])], &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    let parts = [counting(&[2, 1]), counting(&[2, 2])];
    check(Op::Concat(Concat { axis: 1 }), &parts, &[1.0, 1.0, 2.0, 2.0, 3.0, 4.0]);
    check(Op::Pad(Pad { pads: vec![0, 1, 1, 0], value: 9.0 }), &[counting(&[1, 2])], &[9.0, 1.0, 2.0, 9.0, 9.0, 9.0]);
    let slice = Op::Slice(Slice { axes: vec![0, 1], starts: vec![1, 0], stops: vec![2, 3], steps: vec![1, 2] });
    check(slice, &[counting(&[2, 3])], &[4.0, 6.0]);
    let column = f32(&[2, 1], &[10.0, 20.0]);
    check(Op::Binary(Binary { function: BinaryOp::Sub }), &[column, counting(&[2])], &[9.0, 8.0, 19.0, 18.0]);
}

fn whole(dtype: DType, extents: &[i64], numbers: &[f64]) -> Tensor {
    Tensor::from_numbers(TensorType::new(dtype, extents), numbers).unwrap()
}

#[test]
fn look_ups_by_hand() {
    let x = || counting(&[2, 3]);
    let at = |extents: &[i64], numbers: &[f64]| whole(DType::I64, extents, numbers);
    check(Op::Gather(Gather { axis: 1 }), &[x(), at(&[2], &[2.0, -3.0])], &[3.0, 1.0, 6.0, 4.0]);
    check(Op::GatherElements(GatherElements { axis: 1 }), &[x(), at(&[2, 1], &[2.0, 0.0])], &[3.0, 4.0]);
    check(Op::GatherNd(GatherNd { batch: 0 }), &[x(), at(&[2, 2], &[0.0, 1.0, 1.0, -1.0])], &[2.0, 6.0]);
    check(Op::GatherNd(GatherNd { batch: 1 }), &[x(), at(&[2, 1], &[1.0, 2.0])], &[2.0, 6.0]);
    let scatter = |combine| Op::ScatterElements(ScatterElements { axis: 1, combine });
    let inputs = || [x(), at(&[1, 3], &[1.0, 1.0, 0.0]), f32(&[1, 3], &[10.0, 20.0, 30.0])];
    check(scatter(ScatterOp::Replace), &inputs(), &[30.0, 20.0, 3.0, 4.0, 5.0, 6.0]);
    check(scatter(ScatterOp::Add), &inputs(), &[31.0, 32.0, 3.0, 4.0, 5.0, 6.0]);
    let rows = [x(), at(&[1, 1], &[-1.0]), f32(&[1, 3], &[9.0, 0.5, 7.0])];
    check(Op::ScatterNd(ScatterNd { combine: ScatterOp::Max }), &rows, &[1.0, 2.0, 3.0, 9.0, 5.0, 7.0]);
    let one_hot = Op::OneHot(OneHot { axis: 0, depth: 3, on: 5.0, off: 1.0, to: DType::F32 });
    check(one_hot, &[at(&[2], &[1.0, -1.0])], &[1.0, 1.0, 5.0, 1.0, 1.0, 5.0]);
    check(Op::Trilu(Trilu { upper: true, diagonal: 1 }), &[x()], &[0.0, 2.0, 3.0, 0.0, 0.0, 6.0]);
    check(Op::Tile(Tile { repeats: vec![1, 2] }), &[counting(&[1, 2])], &[1.0, 2.0, 1.0, 2.0]);
    check(Op::Expand(Expand { shape: vec![2, 1, 1] }), &[counting(&[1, 2])], &[1.0, 2.0, 1.0, 2.0]);
    let pad = |border| Op::BorderPad(BorderPad { border, pads: vec![2, 1] });
    check(pad(Border::Reflect), &[counting(&[3])], &[3.0, 2.0, 1.0, 2.0, 3.0, 2.0]);
    check(pad(Border::Edge), &[counting(&[3])], &[1.0, 1.0, 1.0, 2.0, 3.0, 3.0]);
    check(pad(Border::Wrap), &[counting(&[3])], &[2.0, 3.0, 1.0, 2.0, 3.0, 1.0]);
    let back = Op::Slice(Slice { axes: vec![1], starts: vec![2], stops: vec![-1], steps: vec![-2] });
    check(back, &[x()], &[3.0, 1.0, 6.0, 4.0]);
}

#[test]
fn reductions_by_hand() {
    let reduce = |function, axes: &[i64]| Op::Reduce(Reduce { function, axes: axes.to_vec(), keep: false });
    check(reduce(ReduceOp::Mean, &[0]), &[counting(&[2, 3])], &[2.5, 3.5, 4.5]);
    check(reduce(ReduceOp::Prod, &[1]), &[counting(&[2, 3])], &[6.0, 120.0]);
    check(reduce(ReduceOp::L2, &[0, 1]), &[f32(&[1, 2], &[-3.0, 4.0])], &[5.0]);
    check(reduce(ReduceOp::L1, &[1]), &[f32(&[1, 2], &[-3.0, 4.0])], &[7.0]);
    let large = whole(DType::F64, &[2], &[1000.0, 1000.0]);
    check(reduce(ReduceOp::LogSumExp, &[0]), &[large], &[1000.0 + 2f64.ln()]);
    for infinite in [f64::INFINITY, f64::NEG_INFINITY] {
        let row = whole(DType::F64, &[2], &[infinite, f64::NEG_INFINITY]);
        check(reduce(ReduceOp::LogSumExp, &[0]), &[row], &[infinite]);
    }
    let arg = |largest, last| Op::ArgReduce(ArgReduce { largest, axis: 0, keep: false, last });
    let x = || [f32(&[4], &[2.0, 7.0, 2.0, 7.0])];
    check(arg(true, false), &x(), &[1.0]);
    check(arg(true, true), &x(), &[3.0]);
    check(arg(false, false), &x(), &[0.0]);
    check(arg(false, true), &x(), &[2.0]);
    let top = |largest| Op::ArgTop(ArgTop { count: 3, axis: 0, largest });
    check(top(true), &[f32(&[4, 2], &[2.0, 1.0, 7.0, 3.0, 2.0, 3.0, 7.0, 0.0])], &[1.0, 1.0, 3.0, 2.0, 0.0, 0.0]);
    check(top(false), &x(), &[0.0, 2.0, 1.0]);
    let sums = |exclusive, reverse| Op::CumSum(CumSum { axis: 1, exclusive, reverse });
    check(sums(false, false), &[counting(&[2, 2])], &[1.0, 3.0, 3.0, 7.0]);
    check(sums(true, true), &[counting(&[2, 2])], &[2.0, 0.0, 4.0, 0.0]);
    check(Op::LpNorm(LpNorm { axis: 1, order: 1 }), &[f32(&[1, 2], &[-3.0, 1.0])], &[-0.75, 0.25]);
    check(Op::RmsNorm(RmsNorm { axis: 0, epsilon: 1e-12 }), &[f32(&[2], &[1.0, 7.0]), counting(&[2])], &[0.2, 2.8]);
    let group = Op::GroupNorm(GroupNorm { groups: 2, epsilon: 1e-12 });
    let pairs = f32(&[1, 4, 1], &[1.0, 3.0, 10.0, 30.0]);
    check(group, &[pairs, counting(&[4]), f32(&[4], &[0.0; 4])], &[-1.0, 2.0, -3.0, 4.0]);
    check(
        Op::MeanVarianceNorm(MeanVarianceNorm { axes: vec![0], epsilon: 1.0 }),
        &[f32(&[2], &[0.0, 2.0])],
        &[-0.5, 0.5],
    );
    let lrn = Op::Lrn(Lrn { size: 3, alpha: 3.0, beta: 1.0, bias: 1.0 });
    check(lrn, &[counting(&[1, 3])], &[1.0 / 6.0, 2.0 / 15.0, 3.0 / 14.0]);
    let adaptive = |mode| Op::AdaptivePool(AdaptivePool { mode, extents: vec![2] });
    check(adaptive(PoolMode::Average), &[counting(&[1, 1, 3])], &[1.5, 2.5]);
    check(adaptive(PoolMode::Lp { order: 1 }), &[counting(&[1, 1, 3])], &[3.0, 5.0]);
}

#[test]
fn choices_and_bits_by_hand() {
    let x = || counting(&[4]);
    let compare = |function| Op::Compare(Compare { function });
    check(compare(CompareOp::GreaterOrEqual), &[x(), f32(&[], &[3.0])], &[0.0, 0.0, 1.0, 1.0]);
    let condition = whole(DType::Bool, &[4], &[1.0, 0.0, 0.0, 1.0]);
    check(Op::Where(Where {}), &[condition, x(), f32(&[], &[9.0])], &[1.0, 9.0, 9.0, 4.0]);
    check(Op::PRelu(PRelu {}), &[f32(&[2, 1], &[-2.0, 3.0]), f32(&[1], &[0.5])], &[-1.0, 3.0]);
    let binary = |function| Op::Binary(Binary { function });
    let pair = |dtype| [whole(dtype, &[2], &[-7.0, 7.0]), whole(dtype, &[2], &[3.0, -3.0])];
    for dtype in [DType::F32, DType::I8, DType::I64] {
        check(binary(BinaryOp::Mod), &pair(dtype), &[2.0, -2.0]);
        check(binary(BinaryOp::Fmod), &pair(dtype), &[-1.0, 1.0]);
        check(binary(BinaryOp::FloorDiv), &pair(dtype), &[-3.0, -3.0]);
    }
    let bytes = [whole(DType::U8, &[2], &[0xF0.into(), 3.0]), whole(DType::U8, &[2], &[1.0, 2.0])];
    check(binary(BinaryOp::ShiftLeft), &bytes, &[f64::from(0xE0), 12.0]);
    check(binary(BinaryOp::BitXor), &bytes, &[f64::from(0xF1), 1.0]);
    check(Op::Unary(Unary { function: UnaryOp::BitNot }), &[whole(DType::U8, &[1], &[1.0])], &[254.0]);
    check(Op::Unary(Unary { function: UnaryOp::Round }), &[f32(&[3], &[0.5, 1.5, -2.5])], &[0.0, 2.0, -2.0]);
    check(Op::Unary(Unary { function: UnaryOp::Mish }), &[f32(&[2], &[0.0, 1.0])], &[0.0, 0.865_098_4]);
    check(Op::Unary(Unary { function: UnaryOp::GeluTanh }), &[f32(&[2], &[-1.0, 1.0])], &[-0.158_808, 0.841_192]);
}

#[test]
fn sums_of_products_by_hand() {
    let einsum = |equation: &str| Op::Einsum(Einsum { equation: equation.to_owned() });
    check(einsum("ij,kj->ki"), &[counting(&[2, 2]), counting(&[1, 2])], &[5.0, 11.0]);
    check(einsum("ii->"), &[counting(&[2, 2])], &[5.0]);
    let attention = |causal, window| Op::Attention(Attention { causal, scale: 1.0, window, softcap: None });
    // Scores 0 and ln 3 weigh the values 1:3.
    let q = || f32(&[1, 1, 2, 1], &[1.0, 1.0]);
    let k = || f32(&[1, 1, 2, 1], &[0.0, 3f64.ln()]);
    let v = || f32(&[1, 1, 2, 1], &[0.0, 4.0]);
    check(attention(false, None), &[q(), k(), v()], &[3.0, 3.0]);
    check(attention(true, None), &[q(), k(), v()], &[0.0, 3.0]);
    check(attention(true, Some(1)), &[q(), k(), v()], &[0.0, 4.0]);
    check(attention(false, None), &[q(), k(), v(), f32(&[1, 2], &[3f64.ln(), 0.0])], &[2.0, 2.0]);
    let apart = f32(&[1, 1, 2, 1], &[0.0, 5.0]);
    check(attention(false, None), &[q(), apart, v(), f32(&[1, 2], &[-1e9, -1e9])], &[2.0, 2.0]);
    let quarter = || [f32(&[4], &[1.0, 2.0, 3.0, 4.0]), f32(&[2], &[0.0, 1.0]), f32(&[2], &[1.0, 0.0])];
    check(Op::Rope(Rope { rotary: 4, interleaved: false }), &quarter(), &[-3.0, 2.0, 1.0, 4.0]);
    check(Op::Rope(Rope { rotary: 4, interleaved: true }), &quarter(), &[-2.0, 1.0, 3.0, 4.0]);
}

#[test]
fn quantised_numbers_by_hand() {
    let vector = |numbers: &[f64]| f32(&[numbers.len() as i64], numbers);
    let quantize = Op::Quantize(Quantize { to: DType::U8, axis: 0 });
    let zero = whole(DType::U8, &[], &[10.0]);
    let x = vector(&[0.25, 0.75, -9.0, 999.0]);
    check(quantize, &[x, f32(&[], &[0.5]), zero], &[10.0, 12.0, 0.0, 255.0]);
    let stored = whole(DType::I8, &[2], &[-3.0, 4.0]);
    check(Op::Dequantize(Dequantize { axis: 0 }), &[stored, vector(&[0.5, 2.0])], &[-1.5, 8.0]);
    let requantize = Op::Requantize(Requantize { to: DType::I8, axis: 0, zero: -1, low: -1, high: 100 });
    let sums = whole(DType::I32, &[4], &[5.0, 7.0, -50.0, 5000.0]);
    check(requantize, &[sums, f32(&[], &[0.5])], &[1.0, 3.0, -1.0, 100.0]);
    // Padding counts as the zero point, so as nothing.
    let conv =
        Op::QConv(QConv { strides: vec![1], pads: vec![1, 0], dilations: vec![1], groups: 1, x_zero: 100, w_zero: 1 });
    let x = whole(DType::U8, &[1, 1, 2], &[103.0, 98.0]);
    check(conv, &[x, whole(DType::I8, &[1, 1, 2], &[2.0, 6.0])], &[15.0, -7.0]);
}

#[test]
fn resizing_by_hand() {
    let check = |mode, extents: &[i64], x: &Tensor, expected: &[f64]| {
        check(Op::Resize(Resize { mode, extents: extents.to_vec() }), std::slice::from_ref(x), expected);
    };
    let line = f32(&[1, 1, 2], &[0.0, 4.0]);
    check(ResizeMode::Nearest, &[5], &line, &[0.0, 0.0, 0.0, 4.0, 4.0]);
    check(ResizeMode::Linear, &[4], &line, &[0.0, 1.0, 3.0, 4.0]);
    check(ResizeMode::LinearAligned, &[5], &line, &[0.0, 1.0, 2.0, 3.0, 4.0]);
    check(ResizeMode::LinearAligned, &[1], &line, &[0.0]);
    let square = counting(&[1, 1, 2, 2]);
    check(ResizeMode::LinearAligned, &[3, 3], &square, &[1.0, 1.5, 2.0, 2.0, 2.5, 3.0, 3.0, 3.5, 4.0]);
    check(ResizeMode::Linear, &[1, 1], &square, &[2.5]);
}

#[test]
fn pointwise_by_hand() {
    let x = || [f32(&[4], &[-4.0, -1.0, 0.5, 8.0])];
    let unary = |function| Op::Unary(Unary { function });
    check(unary(UnaryOp::Relu), &x(), &[0.0, 0.0, 0.5, 8.0]);
    check(unary(UnaryOp::LeakyRelu { alpha: 0.25 }), &x(), &[-1.0, -0.25, 0.5, 8.0]);
    check(unary(UnaryOp::HardSwish), &x(), &[0.0, -1.0 / 3.0, 0.291_666_67, 8.0]);
    check(unary(UnaryOp::Silu), &x(), &[-0.071_944_84, -0.268_941_42, 0.311_229_67, 7.997_317_1]);
    check(unary(UnaryOp::Gelu), &x(), &[-0.000_126_68, -0.158_655_25, 0.345_731_23, 8.0]);
    check(Op::Clip(Clip { low: -1.5, high: 6.0 }), &x(), &[-1.5, -1.0, 0.5, 6.0]);
    check(Op::Softmax(Softmax { axis: 0, log: false }), &[f32(&[2], &[0.0, 3f64.ln()])], &[0.25, 0.75]);
    check(Op::Softmax(Softmax { axis: 0, log: true }), &[f32(&[2], &[0.0, 3f64.ln()])], &[0.25f64.ln(), 0.75f64.ln()]);
    check(
        Op::ScaleShift(ScaleShift { axis: 1 }),
        &[counting(&[1, 2, 2]), counting(&[2]), counting(&[2])],
        &[2.0, 3.0, 8.0, 10.0],
    );
    let norm = Op::LayerNorm(LayerNorm { axis: 1, epsilon: 1e-12 });
    let pairs = f32(&[2, 2], &[1.0, 3.0, 5.0, 5.0]);
    check(norm, &[pairs, f32(&[2], &[1.0, 2.0]), f32(&[2], &[0.0, 10.0])], &[-1.0, 12.0, 0.0, 10.0]);
    let vectors = [4.0, 1.0, 3.0, 3.75].map(|number| f32(&[1], &[number]));
    let inputs = [vec![f32(&[1, 1], &[5.0])], vectors.to_vec()].concat();
    check(Op::BatchNorm(BatchNorm { epsilon: 0.25 }), &inputs, &[5.0]);
}

#[test]
fn integers_wrap_and_casts_drop_the_fraction() {
    let bytes = |numbers: &[f64]| Tensor::from_numbers(TensorType::new(DType::I8, &[1, 2]), numbers).unwrap();
    check(
        Op::MatMul(MatMul { transpose_a: false, transpose_b: true }),
        &[bytes(&[127.0, -128.0]), bytes(&[127.0, -128.0])],
        &[32513.0],
    );
    check(Op::Binary(Binary { function: BinaryOp::Add }), &[bytes(&[100.0, 1.0]), bytes(&[100.0, 1.0])], &[-56.0, 2.0]);
    check(Op::Cast(Cast { to: DType::I32 }), &[f32(&[2], &[-1.9, 2.9])], &[-1.0, 2.0]);
}

#[test]
fn inputs_are_the_same_for_the_same_seed_and_positive_where_needed() {
    let task =
        single(Op::BatchNorm(BatchNorm { epsilon: 1e-5 }), &["f32[1,4,8]", "f32[4]", "f32[4]", "f32[4]", "f32[4]"]);
    let inputs = random_inputs(&task, 7).unwrap();
    assert_eq!(random_inputs(&task, 7).unwrap(), inputs);
    assert_ne!(random_inputs(&task, 8).unwrap(), inputs);
    assert_ne!(inputs[1], inputs[2]);
    assert!(inputs[4].to_numbers().iter().all(|number| (0.5..1.5).contains(number)));
    assert!(inputs[0].to_numbers().iter().any(|number| *number < 0.0));
    // The stream itself is a promise: stored results refer to it.
    expect_test::expect!["[0.31908154487609863, 0.9842175245285034, -0.785330057144165, -0.981897234916687]"]
        .assert_eq(&format!("{:?}", inputs[1].to_numbers()));
}

#[test]
fn a_wrong_tensor_is_an_error() {
    let layer = "conv(f32[1,3,224,224], const f32[64,3,7,7]) dilations=[1,1] groups=1 pads=[3,3,3,3] strides=[2,2]";
    let text = format!("{layer} | bias_add(_, const f32[64]) axis=1 | unary(_) function=\"relu\"");
    let task = Task::from_text(&text).unwrap();
    let mut inputs = random_inputs(&task, 1).unwrap();
    inputs[2] = f32(&[1], &[0.0]);
    let says = evaluate_task(&task, &inputs).unwrap_err().to_string();
    assert_eq!(says, "task `conv2d+bias+relu`: parameter 2 has type f32[64], but the tensor has type f32[1]");
    assert!(evaluate_task(&task, &inputs[..2]).unwrap_err().to_string().contains("expected 3 input tensors, got 2"));
    let large = single(Op::Identity(Identity {}), &["f32[268435457]"]);
    assert!(random_inputs(&large, 1).unwrap_err().to_string().contains("more than 268435456 elements"));
}

#[test]
fn comparison() {
    let tolerance = Tolerance { absolute: 0.5, relative: 0.1 };
    let expected = f32(&[3], &[0.0, 10.0, f64::NAN]);
    let near = compare_tensors(&f32(&[3], &[0.4, 11.0, f64::NAN]), &expected, tolerance).unwrap();
    assert!(near.ok && near.worst_index == 0 && near.max_abs_error == 1.0 && near.max_rel_error == 0.1);
    let far = compare_tensors(&f32(&[3], &[0.6, 10.0, f64::NAN]), &expected, tolerance).unwrap();
    assert!(!far.ok && far.worst_index == 0);
    let lost = compare_tensors(&f32(&[3], &[0.0, f64::NAN, f64::NAN]), &expected, tolerance).unwrap();
    assert!(!lost.ok && lost.worst_index == 1 && lost.max_abs_error == f64::INFINITY);
    let exact = Tolerance { absolute: 0.0, relative: 0.0 };
    assert!(compare_tensors(&expected, &expected, exact).unwrap().ok);
    assert!(compare_tensors(&f32(&[2], &[0.0, 10.0]), &expected, exact).is_err());
}

/// The logarithm of the sum of a softmax is zero but for rounding.
#[test]
fn cancellation_leaves_the_rounding_of_its_operands() {
    use models::GraphBuilder;
    let mut builder = GraphBuilder::new("one");
    let x = builder.add_input("x", TensorType::f32(&[2, 5])).unwrap();
    let shares = builder.push(Op::Softmax(Softmax { axis: 1, log: false }), &[x]).unwrap();
    let sum = Op::Reduce(Reduce { function: ReduceOp::Sum, axes: vec![1], keep: false });
    let sum = builder.push(sum, &[shares]).unwrap();
    let y = builder.push(Op::Unary(Unary { function: UnaryOp::Log }), &[sum]).unwrap();
    // All elements of these rows equal their mean.
    let column =
        builder.push(Op::Slice(Slice { axes: vec![1], starts: vec![0], stops: vec![1], steps: vec![1] }), &[x]);
    let rows = builder.push(Op::Expand(Expand { shape: vec![2, 3] }), &[column.unwrap()]).unwrap();
    let rows = builder.push(Op::MeanVarianceNorm(MeanVarianceNorm { axes: vec![1], epsilon: 0.1 }), &[rows]).unwrap();
    let graph = builder.finish(&[y, rows, x]).unwrap();
    let inputs = graph_inputs(&graph, 1).unwrap();
    let constants = graph_constants(&graph).unwrap();
    let expected = evaluate_graph_with(&graph, &constants, &inputs).unwrap();
    let errors = rounding_errors(&graph, &constants, &inputs, &expected).unwrap();
    let is_rounding = |error: &f64| (2e-7..2e-5).contains(error);
    assert!(errors[..2].iter().all(is_rounding) && errors[2] == 0.0, "{errors:?}");
}

#[test]
fn the_tolerance_separates_rounding_from_mistakes() {
    let task = single(Op::Dense(Dense {}), &["f32[4,2000]", "f32[16,2000]"]);
    let inputs = random_inputs(&task, 3).unwrap();
    let expected = evaluate_task(&task, &inputs).unwrap();
    let (x, w) = (inputs[0].to_numbers(), inputs[1].to_numbers());
    let sum = |row: usize, column: usize, shift: usize| -> f64 {
        let products = (0..2000).map(|k| x[row * 2000 + (k + shift) % 2000] as f32 * w[column * 2000 + k] as f32);
        products.sum::<f32>().into()
    };
    let all = |shift| (0..64).map(|index| sum(index / 16, index % 16, shift)).collect::<Vec<f64>>();
    let compared = |shift| compare_tensors(&f32(&[4, 16], &all(shift)), &expected, default_tolerance(&task)).unwrap();
    assert!(compared(0).ok, "{:?}", compared(0));
    assert!(!compared(1).ok);
}

#[test]
fn rounded_operands_have_a_tolerance_of_their_own() {
    let task = single(Op::Dense(Dense {}), &["f32[4,2000]", "f32[16,2000]"]);
    let inputs = random_inputs(&task, 3).unwrap();
    let expected = evaluate_task(&task, &inputs).unwrap();
    let rounded = |number: f64| f64::from(f32::from_bits(((number as f32).to_bits() + 0x1000) & !0x1fff));
    let [x, w] = [0, 1].map(|place| inputs[place].to_numbers().into_iter().map(rounded).collect::<Vec<f64>>());
    let sum = |row: usize, column: usize, shift: usize| -> f64 {
        (0..2000).map(|k| x[row * 2000 + (k + shift) % 2000] * w[column * 2000 + k]).sum()
    };
    let all = |shift| f32(&[4, 16], &(0..64).map(|index| sum(index / 16, index % 16, shift)).collect::<Vec<f64>>());
    let compared =
        |shift, rounding| compare_tensors(&all(shift), &expected, tolerance_when_rounded(&task, rounding)).unwrap();
    assert!(compared(0, Rounding::Tf32).ok, "{:?}", compared(0, Rounding::Tf32));
    assert!(!compared(0, Rounding::None).ok);
    assert!(!compared(1, Rounding::Tf32).ok);
}

/// One spatial axis of a random convolution: extent, kernel, stride, head, tail, dilation.
type Axis = [i64; 6];

fn any_conv() -> impl Strategy<Value = (Op, Vec<i64>, Vec<i64>)> {
    let axis = (1i64..=6, 1i64..=3, 1i64..=3, 0i64..=2, 0i64..=2, 1i64..=2);
    let axis = axis.prop_map(|(extent, kernel, stride, head, tail, dilation)| -> Axis {
        [extent, kernel, stride, head, tail, dilation]
    });
    let channels = (1i64..=2, 1i64..=2, 1i64..=3, 1i64..=3);
    let any = (prop::collection::vec(axis, 1..=3), channels).prop_map(|(axes, (batch, groups, ci, co))| {
        let column = |index: usize| axes.iter().map(|axis| axis[index]).collect::<Vec<_>>();
        let pads = [column(3), column(4)].concat();
        let op = Op::Conv(Conv { strides: column(2), pads, dilations: column(5), groups });
        let x = [vec![batch, ci * groups], column(0)].concat();
        let w = [vec![co * groups, ci], column(1)].concat();
        (op, x, w)
    });
    any.prop_filter("the window must fit", |(op, x, w)| {
        infer_type(op, &[&TensorType::f32(x), &TensorType::f32(w)]).is_ok()
    })
}

fn any_conv_transpose() -> impl Strategy<Value = (Op, Vec<i64>, Vec<i64>)> {
    let transposed = any_conv().prop_map(|(op, x, w)| {
        let y = infer_type(&op, &[&TensorType::f32(&x), &TensorType::f32(&w)]).unwrap().extents().unwrap();
        let Op::Conv(Conv { strides, pads, dilations, groups }) = op else { unreachable!() };
        let output_pads = strides.iter().map(|stride| stride - 1).collect();
        (Op::ConvTranspose(ConvTranspose { strides, pads, output_pads, dilations, groups }), w, y)
    });
    transposed.prop_filter("something must remain", |(op, w, y)| {
        infer_type(op, &[&TensorType::f32(y), &TensorType::f32(w)]).is_ok()
    })
}

fn tuples(extents: &[i64]) -> Vec<Vec<i64>> {
    extents.iter().fold(vec![vec![]], |tuples, &extent| {
        tuples.iter().flat_map(|tuple| (0..extent).map(move |index| [tuple.as_slice(), &[index]].concat())).collect()
    })
}

fn at(tensor: &[f64], extents: &[i64], index: &[i64]) -> f64 {
    let inside = index.iter().zip(extents).all(|(index, extent)| (0..*extent).contains(index));
    if !inside {
        return 0.0;
    }
    tensor[index.iter().zip(extents).fold(0, |offset, (index, extent)| offset * extent + index) as usize]
}

proptest! {
    /// Each output is the product of one row of unrolled patches with one row of filters.
    #[test]
    fn convolution_is_a_matrix_product_of_patches((op, x_extents, w_extents) in any_conv(), seed in any::<u64>()) {
        let task = single(op.clone(), &[&TensorType::f32(&x_extents).to_string(), &TensorType::f32(&w_extents).to_string()]);
        let inputs = random_inputs(&task, seed).unwrap();
        let (x, w) = (inputs[0].to_numbers(), inputs[1].to_numbers());
        let Op::Conv(Conv { strides, pads, dilations, groups }) = op else { unreachable!() };
        let y_extents = task.steps[0].output.extents().unwrap();
        let filter: i64 = w_extents[1..].iter().product();
        let expected: Vec<f64> = tuples(&y_extents).into_iter().map(|y| {
            let group = y[1] / (w_extents[0] / groups);
            let patch = tuples(&w_extents[1..]).into_iter().map(|tap| {
                let mut index = vec![y[0], group * w_extents[1] + tap[0]];
                index.extend((0..strides.len()).map(|axis| y[axis + 2] * strides[axis] + tap[axis + 1] * dilations[axis] - pads[axis]));
                at(&x, &x_extents, &index)
            });
            let filter = &w[(y[1] * filter) as usize..][..filter as usize];
            patch.zip(filter).map(|(x, w)| x * w).sum()
        }).collect();
        let expected = Tensor::from_numbers(task.steps[0].output.clone(), &expected).unwrap();
        let compared = compare_tensors(&evaluate_task(&task, &inputs).unwrap(), &expected, Tolerance { absolute: 1e-6, relative: 1e-6 }).unwrap();
        prop_assert!(compared.ok, "{:?}", compared);
    }

    /// Computes each output as the sum over the inputs that kernel positions of a transposed convolution carry to it.
    #[test]
    fn transposed_convolution_gathers_what_it_spreads((op, w_extents, x_extents) in any_conv_transpose(), seed in any::<u64>()) {
        let task = single(op.clone(), &[&TensorType::f32(&x_extents).to_string(), &TensorType::f32(&w_extents).to_string()]);
        let inputs = random_inputs(&task, seed).unwrap();
        let (x, w) = (inputs[0].to_numbers(), inputs[1].to_numbers());
        let Op::ConvTranspose(ConvTranspose { strides, pads, dilations, groups, .. }) = op else { unreachable!() };
        let expected: Vec<f64> = tuples(&task.steps[0].output.extents().unwrap()).into_iter().map(|y| {
            let (group, out) = (y[1] / w_extents[1], y[1] % w_extents[1]);
            let per_group = w_extents[0] / groups;
            let mut sum = 0.0;
            for channel in group * per_group..(group + 1) * per_group {
                for tap in tuples(&w_extents[2..]) {
                    let reach: Vec<i64> = (0..tap.len()).map(|axis| y[axis + 2] + pads[axis] - tap[axis] * dilations[axis]).collect();
                    if reach.iter().zip(&strides).all(|(reach, stride)| reach % stride == 0) {
                        let place = reach.iter().zip(&strides).map(|(reach, stride)| reach / stride);
                        let x_index: Vec<i64> = [y[0], channel].into_iter().chain(place).collect();
                        sum += at(&x, &x_extents, &x_index) * at(&w, &w_extents, &[&[channel, out][..], &tap].concat());
                    }
                }
            }
            sum
        }).collect();
        let expected = Tensor::from_numbers(task.steps[0].output.clone(), &expected).unwrap();
        let compared = compare_tensors(&evaluate_task(&task, &inputs).unwrap(), &expected, Tolerance { absolute: 1e-6, relative: 1e-6 }).unwrap();
        prop_assert!(compared.ok, "{:?}", compared);
    }

    /// Broadcasting the batch or transposing a stored operand only changes where numbers are read, not the products.
    #[test]
    fn products_read_the_right_elements(
        (m, n, k) in (1i64..5, 1i64..5, 1i64..5), left: bool,
        transpose_a: bool, transpose_b: bool, seed in any::<u64>(),
    ) {
        let side = |wide: bool, rows: i64, columns: i64, transposed: bool| {
            let mut extents = vec![if wide { 2 } else { 1 }, 3];
            extents.extend(if transposed { [columns, rows] } else { [rows, columns] });
            extents
        };
        let (a_extents, b_extents) = (side(left, m, k, transpose_a), side(false, k, n, transpose_b)[1..].to_vec());
        let op = Op::MatMul(MatMul { transpose_a, transpose_b });
        let task = single(op, &[&TensorType::f32(&a_extents).to_string(), &TensorType::f32(&b_extents).to_string()]);
        let inputs = random_inputs(&task, seed).unwrap();
        let (a, b) = (inputs[0].to_numbers(), inputs[1].to_numbers());
        let swap = |pair: [i64; 2], transposed: bool| if transposed { [pair[1], pair[0]] } else { pair };
        let output = task.steps[0].output.clone();
        let expected: Vec<f64> = tuples(&output.extents().unwrap()).into_iter().map(|y| {
            let term = |sum| {
                let a_index = [&[y[0], y[1]][..], &swap([y[2], sum], transpose_a)].concat();
                let b_index = [&[y[1]][..], &swap([sum, y[3]], transpose_b)].concat();
                at(&a, &a_extents, &a_index) * at(&b, &b_extents, &b_index)
            };
            (0..k).map(term).sum()
        }).collect();
        let expected = Tensor::from_numbers(output, &expected).unwrap();
        let compared = compare_tensors(&evaluate_task(&task, &inputs).unwrap(), &expected, Tolerance { absolute: 1e-6, relative: 1e-6 }).unwrap();
        prop_assert!(compared.ok, "{:?}", compared);
    }
}
