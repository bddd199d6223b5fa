//! Tests of the output shapes and types that the shape rules infer.

use super::*;
use crate::operators::{
    AdaptivePool, ArgReduce, ArgTop, Attention, BatchNorm, BiasAdd, Binary, BinaryOp, Border, BorderPad, Cast, Clip,
    Compare, CompareOp, Concat, Conv, ConvTranspose, Dense, Dequantize, Expand, Flatten, Gather, GatherElements,
    GatherNd, GlobalPool, GroupNorm, Identity, LayerNorm, LpNorm, MatMul, OneHot, PRelu, Pad, Pool, PoolMode, QConv,
    Quantize, Reduce, ReduceOp, Requantize, Reshape, Resize, ResizeMode, Rope, ScatterNd, ScatterOp, Slice, Softmax,
    Tile, Transpose, Unary, UnaryOp, Where,
};
use crate::types::DType;
use expect_test::{Expect, expect};
use proptest::prelude::*;

/// Parses a list of types such as `f32[1,3,8,8] f32[4,3,3,3]`.
fn types(text: &str) -> Vec<TensorType> {
    text.split(' ').map(|ty| ty.parse().expect("a type")).collect()
}

#[track_caller]
fn check(op: Op, inputs: &str, expected: Expect) {
    let inputs = types(inputs);
    let inputs: Vec<&TensorType> = inputs.iter().collect();
    let text = match infer_type(&op, &inputs) {
        Ok(ty) => ty.to_string(),
        Err(Error::Infer { reason, .. }) => reason,
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&text);
}

fn conv(stride: i64, pad: i64, dilation: i64, groups: i64) -> Op {
    Op::Conv(Conv { strides: vec![stride; 2], pads: vec![pad; 4], dilations: vec![dilation; 2], groups })
}

fn max_pool(kernel: i64, stride: i64, pad: i64, ceil: bool) -> Op {
    Op::Pool(Pool {
        mode: PoolMode::Max,
        kernel: vec![kernel; 2],
        strides: vec![stride; 2],
        pads: vec![pad; 4],
        dilations: vec![1; 2],
        ceil,
        count_pad: false,
    })
}

#[test]
fn convolution() {
    check(conv(2, 3, 1, 1), "f32[1,3,224,224] f32[64,3,7,7]", expect!["f32[1,64,112,112]"]);
    check(conv(1, 2, 2, 4), "f32[batch,8,9,9] f32[12,2,3,3]", expect!["f32[batch,12,9,9]"]);
    check(conv(1, 0, 1, 1), "i8[1,3,4,4] i8[5,3,1,1]", expect!["i32[1,5,4,4]"]);
    check(
        conv(1, 0, 1, 1),
        "f32[1,3,4,4] f32[5,4,1,1]",
        expect!["`x` has 3 channels in 1 groups, so `w` must have 3 input channels, has 4"],
    );
    check(
        conv(1, 0, 1, 2),
        "f32[1,3,4,4] f32[5,4,1,1]",
        expect!["2 groups do not divide 3 input and 5 output channels"],
    );
    check(
        conv(1, 0, 1, 1),
        "f32[1,3,4,4] f32[5,3,7,7]",
        expect!["a window of 7 does not fit into 4 + 0 + 0 elements of spatial dimension 0"],
    );
    check(conv(0, 0, 1, 1), "f32[1,3,4,4] f32[5,3,1,1]", expect!["stride 0 must be at least 1 and at most 2147483648"]);
    check(conv(1, 0, 1, 1), "f32[1,3,4] f32[5,3,1,1]", expect!["`x` must have 4 dimensions for 2 strides, has 3"]);
    check(
        conv(1, 0, 1, 1),
        "f32[1,3,height,4] f32[5,3,1,1]",
        expect!["a spatial extent of `x` is the symbol `height`; bind it to a number first"],
    );
    check(conv(1, 0, 1, 1), "f32[1,3,4,4]", expect!["takes 2 inputs, got 1"]);
}

#[test]
fn transposed_convolution() {
    let op = |pads: i64, output_pad, groups| {
        Op::ConvTranspose(ConvTranspose {
            strides: vec![2, 2],
            pads: vec![pads; 4],
            output_pads: vec![output_pad; 2],
            dilations: vec![1, 1],
            groups,
        })
    };
    check(op(1, 0, 1), "f32[n,8,4,4] f32[8,5,4,4]", expect!["f32[n,5,8,8]"]);
    check(op(1, 1, 2), "f32[1,8,4,4] f32[8,5,3,3]", expect!["f32[1,10,8,8]"]);
    check(
        op(1, 2, 1),
        "f32[1,8,4,4] f32[8,5,3,3]",
        expect!["output pad 2 must not be negative and below stride 2 or dilation 1"],
    );
    check(op(1, 0, 1), "f32[1,8,4,4] f32[7,5,3,3]", expect!["`x` has 8 channels, `w` expects 7"]);
    check(
        op(i64::MAX, 0, 1),
        "f32[1,8,4,4] f32[8,5,3,3]",
        expect!["pad 9223372036854775807 must be at least 0 and at most 2147483648"],
    );
}

#[test]
fn absurd_attributes_are_refused_without_overflow() {
    let huge = i64::MAX;
    check(
        conv(1, huge, 1, 1),
        "f32[1,3,4,4] f32[5,3,1,1]",
        expect!["pad 9223372036854775807 must be at least 0 and at most 2147483648"],
    );
    check(
        conv(1, 0, huge, 1),
        "f32[1,3,4,4] f32[5,3,3,3]",
        expect!["dilation 9223372036854775807 must be at least 1 and at most 2147483648"],
    );
    check(Op::Pad(Pad { pads: vec![huge, huge], value: 0.0 }), "f32[4]", expect!["the padded extent exceeds 64 bits"]);
    check(Op::Reshape(Reshape { shape: vec![huge, huge] }), "f32[4]", expect!["the element count exceeds 64 bits"]);
    check(
        Op::Reshape(Reshape { shape: vec![i64::MIN] }),
        "f32[4]",
        expect!["extent -9223372036854775808 is neither positive, 0 nor -1"],
    );
    check(
        Op::Softmax(Softmax { axis: i64::MIN, log: false }),
        "f32[4]",
        expect!["axis -9223372036854775808 is out of range for the rank 1"],
    );
    check(
        Op::Concat(Concat { axis: 0 }),
        "i8[9223372036854775807] i8[9223372036854775807]",
        expect!["the joined extent exceeds 64 bits"],
    );
    check(
        Op::Identity(Identity {}),
        "f32[9223372036854775807]",
        expect!["f32[9223372036854775807] has a byte count that exceeds 64 bits"],
    );
}

#[test]
fn pooling() {
    check(max_pool(3, 2, 1, false), "f32[1,64,112,112]", expect!["f32[1,64,56,56]"]);
    check(max_pool(3, 2, 0, false), "f32[1,64,111,112]", expect!["f32[1,64,55,55]"]);
    check(max_pool(3, 2, 0, true), "f32[1,64,111,112]", expect!["f32[1,64,55,56]"]);
    // The partial window would start in the trailing pad.
    check(max_pool(2, 3, 1, true), "f32[1,1,4,5]", expect!["f32[1,1,2,2]"]);
    check(max_pool(2, 2, 2, false), "f32[1,64,8,8]", expect!["pad 2 must be smaller than the kernel extent 2"]);
    check(Op::GlobalPool(GlobalPool { mode: PoolMode::Average }), "f32[2,8,7,7]", expect!["f32[2,8,1,1]"]);
    check(
        Op::GlobalPool(GlobalPool { mode: PoolMode::Average }),
        "i32[2,8,7,7]",
        expect!["an average needs a floating-point type, not i32"],
    );
}

#[test]
fn products() {
    let plain = || Op::MatMul(MatMul { transpose_a: false, transpose_b: false });
    check(plain(), "f32[8,1,3,4] f32[5,4,6]", expect!["f32[8,5,3,6]"]);
    check(plain(), "f32[batch,4] f32[4,6]", expect!["f32[batch,6]"]);
    check(Op::MatMul(MatMul { transpose_a: true, transpose_b: true }), "f32[4,3] f32[6,4]", expect!["f32[3,6]"]);
    check(plain(), "f32[3,4] f32[5,6]", expect!["the summed extent is 4 in `a`, but 5 in `b`"]);
    check(plain(), "f32[4] f32[4,6]", expect!["`a` must have at least 2 dimensions, has 1; reshape it first"]);
    check(Op::Dense(Dense {}), "f32[2,3,4] f32[6,4]", expect!["f32[2,3,6]"]);
    check(Op::Dense(Dense {}), "f32[2,3,4] f64[6,4]", expect!["element types f32 and f64 differ; cast one of them"]);
}

#[test]
fn pointwise() {
    check(Op::Binary(Binary { function: BinaryOp::Add }), "f32[2,1,4] f32[batch,1]", expect!["f32[2,batch,4]"]);
    check(
        Op::Binary(Binary { function: BinaryOp::Add }),
        "f32[2,3] f32[4,3]",
        expect!["extents 2 and 4 of dimension 0 do not broadcast"],
    );
    check(Op::BiasAdd(BiasAdd { axis: 1 }), "f32[1,8,4] f32[8]", expect!["f32[1,8,4]"]);
    check(
        Op::BiasAdd(BiasAdd { axis: 1 }),
        "f32[1,8,4] f32[4]",
        expect!["f32[4] must be a vector of 8, one element per channel"],
    );
    check(Op::BatchNorm(BatchNorm { epsilon: 1e-5 }), "f32[1,8,4] f32[8] f32[8] f32[8] f32[8]", expect!["f32[1,8,4]"]);
    check(Op::Unary(Unary { function: UnaryOp::Gelu }), "i32[4]", expect!["needs a floating-point type, not i32"]);
    check(
        Op::Clip(Clip { low: 6.0, high: 0.0 }),
        "f32[4]",
        expect![
            "bounds 6 and 0 must be finite and in order; for an open side give the largest number of the element type"
        ],
    );
    check(Op::Cast(Cast { to: DType::Bool }), "f32[4]", expect!["bool[4]"]);
}

#[test]
fn movement() {
    check(Op::Reshape(Reshape { shape: vec![0, -1] }), "f32[batch,8,4,4]", expect!["f32[batch,128]"]);
    check(Op::Reshape(Reshape { shape: vec![-1, 128] }), "f32[batch,8,4,4]", expect!["f32[batch,128]"]);
    check(
        Op::Reshape(Reshape { shape: vec![4, 32] }),
        "f32[batch,8,4,4]",
        expect!["shape [4, 32] does not determine dimension batch; bind it to a number"],
    );
    check(
        Op::Reshape(Reshape { shape: vec![-1, 3] }),
        "f32[8]",
        expect!["f32[8] cannot be reshaped to [-1, 3]: the element counts differ"],
    );
    check(Op::Reshape(Reshape { shape: vec![-1, -1] }), "f32[8]", expect!["more than one extent is -1"]);
    check(Op::Reshape(Reshape { shape: vec![] }), "f32[1,1]", expect!["f32[]"]);
    check(Op::Flatten(Flatten { axis: 1 }), "f32[batch,8,4,4]", expect!["f32[batch,128]"]);
    check(Op::Transpose(Transpose { permutation: vec![2, 0, 1] }), "f32[2,3,4]", expect!["f32[4,2,3]"]);
    check(
        Op::Transpose(Transpose { permutation: vec![0, 0, 1] }),
        "f32[2,3,4]",
        expect!["permutation [0, 0, 1] must name each of 3 dimensions once"],
    );
    check(Op::Concat(Concat { axis: 1 }), "f32[2,3] f32[2,5]", expect!["f32[2,8]"]);
    check(Op::Concat(Concat { axis: 1 }), "f32[2,3] f32[4,5]", expect!["f32[4,5] and f32[2,3] differ outside axis 1"]);
    check(Op::Pad(Pad { pads: vec![0, 1, 0, 2], value: 0.0 }), "f32[batch,3]", expect!["f32[batch,6]"]);
    let slice = |axes: &[i64], start, stop, step| {
        Op::Slice(Slice {
            axes: axes.to_vec(),
            starts: vec![start; axes.len()],
            stops: vec![stop; axes.len()],
            steps: vec![step; axes.len()],
        })
    };
    check(slice(&[1], 1, 6, 2), "f32[batch,8]", expect!["f32[batch,3]"]);
    check(slice(&[0, 1], 2, 2, 1), "f32[4,8]", expect!["f32[0,0]"]);
    check(slice(&[1, 0], 0, 1, 1), "f32[4,8]", expect!["axes [1, 0] must be in ascending order"]);
    check(slice(&[0], 1, 9, 1), "f32[8]", expect!["1..9 in steps of 1 must stay inside the 8 elements of dimension 0"]);
    check(slice(&[0], 1, 2, 0), "f32[8]", expect!["1..2 in steps of 0 must stay inside the 8 elements of dimension 0"]);
    let resize = |mode| Op::Resize(Resize { mode, extents: vec![5, 7] });
    check(resize(ResizeMode::Linear), "f32[batch,8,2,3]", expect!["f32[batch,8,5,7]"]);
    check(resize(ResizeMode::Linear), "i8[1,8,2,3]", expect!["needs a floating-point type, not i8"]);
    check(
        resize(ResizeMode::Nearest),
        "i8[1,8,2]",
        expect!["2 new extents do not fit i8[1,8,2], whose first two dimensions are kept"],
    );
    let norm = Op::LayerNorm(LayerNorm { axis: 1, epsilon: 1e-5 });
    check(norm.clone(), "f32[batch,8,4] f32[8,4] f32[8,4]", expect!["f32[batch,8,4]"]);
    check(norm, "f32[batch,8,4] f32[4] f32[8,4]", expect!["f32[4] must have the shape of `x` from dimension 1 on"]);
}

#[test]
fn element_types_of_functions() {
    let unary = |function| Op::Unary(Unary { function });
    check(unary(UnaryOp::IsNan), "f16[batch,3]", expect!["bool[batch,3]"]);
    check(unary(UnaryOp::Not), "i8[3]", expect!["needs bool, not i8"]);
    check(unary(UnaryOp::BitNot), "f32[3]", expect!["needs integers, not f32"]);
    check(unary(UnaryOp::Celu { alpha: 0.0 }), "f32[3]", expect!["alpha 0 must be finite and positive"]);
    let binary = |function| Op::Binary(Binary { function });
    check(binary(BinaryOp::And), "bool[3] bool[2,1]", expect!["bool[2,3]"]);
    check(binary(BinaryOp::ShiftLeft), "f32[3] f32[3]", expect!["needs integers, not f32"]);
    check(binary(BinaryOp::Pow), "i32[3] i32[3]", expect!["needs a floating-point type, not i32"]);
    check(Op::Compare(Compare { function: CompareOp::Equal }), "bool[3] bool[3]", expect!["bool[3]"]);
    check(Op::Compare(Compare { function: CompareOp::Less }), "bool[3] bool[3]", expect!["needs numbers, not bool"]);
    check(Op::Where(Where {}), "bool[3,1] i64[4] i64[]", expect!["i64[3,4]"]);
    check(Op::Where(Where {}), "f32[3] f32[3] f32[3]", expect!["the condition must be bool, not f32"]);
    check(Op::PRelu(PRelu {}), "f32[3] f32[2,3]", expect!["the slope f32[2,3] does not broadcast to f32[3]"]);
}

#[test]
fn reductions() {
    let reduce =
        |function, axes: &[i64], keep| Op::Reduce(Reduce { function, axes: axes.to_vec(), keep }).with_front_axis(3);
    check(reduce(ReduceOp::Sum, &[-1, 0], false), "f32[2,batch,4]", expect!["f32[batch]"]);
    check(reduce(ReduceOp::Max, &[1], true), "i8[2,3,4]", expect!["i8[2,1,4]"]);
    check(reduce(ReduceOp::Mean, &[1], true), "i8[2,3,4]", expect!["needs a floating-point type, not i8"]);
    check(
        reduce(ReduceOp::Sum, &[], true),
        "f32[2,3,4]",
        expect!["axes [] must be a non-empty list in ascending order"],
    );
    check(
        reduce(ReduceOp::Sum, &[1], true),
        "f32[2,0,4]",
        expect!["dimension 1 of f32[2,0,4] has no elements to reduce"],
    );
    let arg = |axis, keep| Op::ArgReduce(ArgReduce { largest: true, axis, keep, last: false });
    check(arg(1, false), "f16[2,3,4]", expect!["i64[2,4]"]);
    check(arg(3, false), "f16[2,3,4]", expect!["axis 3 is out of range for the rank 3"]);
    let top = |count| Op::ArgTop(ArgTop { count, axis: 1, largest: true });
    check(top(3), "f16[n,5,4]", expect!["i64[n,3,4]"]);
    check(top(6), "f16[n,5,4]", expect!["cannot select 6 of 5 elements"]);
    check(
        Op::GroupNorm(GroupNorm { groups: 4, epsilon: 1e-5 }),
        "f32[n,6,4] f32[6] f32[6]",
        expect!["4 groups do not divide 6 channels"],
    );
    check(Op::LpNorm(LpNorm { axis: 0, order: 3 }), "f32[2]", expect!["the order 3 is neither 1 nor 2"]);
    let adaptive = |mode| Op::AdaptivePool(AdaptivePool { mode, extents: vec![7, 7] });
    check(adaptive(PoolMode::Average), "f32[n,64,10,5]", expect!["f32[n,64,7,7]"]);
    check(adaptive(PoolMode::Lp { order: 0 }), "f32[1,64,10,5]", expect!["the order 0 must be 1 to 16"]);
}

#[test]
fn look_ups() {
    check(Op::Gather(Gather { axis: 1 }), "f32[n,50,8] i64[2,3]", expect!["f32[n,2,3,8]"]);
    check(Op::Gather(Gather { axis: 0 }), "f32[50,8] f32[2]", expect!["indices must be i32 or i64, not f32"]);
    check(
        Op::Gather(Gather { axis: 0 }),
        "f32[0,8] i64[2]",
        expect!["dimension 0 of f32[0,8] has no elements to look up"],
    );
    check(Op::GatherElements(GatherElements { axis: 1 }), "f32[3,4] i64[2,9]", expect!["f32[2,9]"]);
    check(
        Op::GatherElements(GatherElements { axis: 1 }),
        "f32[3,4] i64[4,9]",
        expect!["the indices of type i64[4,9] are larger than f32[3,4] in dimension 0"],
    );
    check(Op::GatherNd(GatherNd { batch: 0 }), "f32[4,5,6] i64[3,2]", expect!["f32[3,6]"]);
    check(Op::GatherNd(GatherNd { batch: 1 }), "f32[4,5,6] i64[4,3,1]", expect!["f32[4,3,6]"]);
    check(
        Op::GatherNd(GatherNd { batch: 2 }),
        "f32[4,5,6] i64[4,2]",
        expect!["index tuples of length 2 must index 1 to 1 dimensions of f32[4,5,6]"],
    );
    check(
        Op::GatherNd(GatherNd { batch: i64::MAX }),
        "f32[4] i64[1]",
        expect!["index tuples of length 1 must index 1 to 0 dimensions of f32[4]"],
    );
    let scatter = Op::ScatterNd(ScatterNd { combine: ScatterOp::Add });
    check(scatter.clone(), "f32[4,5] i64[3,1] f32[3,5]", expect!["f32[4,5]"]);
    check(scatter, "f32[4,5] i64[3,1] f32[3]", expect!["the updates have shape f32[3], the indices need f32[3,5]"]);
    let one_hot = Op::OneHot(OneHot { axis: -1, depth: 7, on: 1.0, off: 0.0, to: DType::F16 });
    check(one_hot.with_front_axis(2), "i64[2,3]", expect!["f16[2,3,7]"]);
    check(Op::Expand(Expand { shape: vec![5, 1, 4] }), "f32[3,1]", expect!["f32[5,3,4]"]);
    check(Op::Tile(Tile { repeats: vec![1, 2] }), "f32[n,3]", expect!["f32[n,6]"]);
    check(Op::Tile(Tile { repeats: vec![i64::MAX] }), "f32[3]", expect!["the repeated extent exceeds 64 bits"]);
    let reflect = Op::BorderPad(BorderPad { border: Border::Reflect, pads: vec![3, 0] });
    check(reflect, "f32[3]", expect!["the 3 elements of dimension 0 are too few for a pad of 3"]);
    let rope = |rotary| Op::Rope(Rope { rotary, interleaved: false });
    check(rope(6), "f32[n,12,s,8] f32[s,3] f32[s,3]", expect!["f32[n,12,s,8]"]);
    check(
        rope(8),
        "f32[1,12,5,8] f32[5,3] f32[5,4]",
        expect!["f32[5,3] must have the last extent 4 and broadcast to f32[1,12,5,4]"],
    );
    let back = |start, stop, step| {
        Op::Slice(Slice { axes: vec![0], starts: vec![start], stops: vec![stop], steps: vec![step] })
    };
    check(back(7, -1, -2), "f32[8]", expect!["f32[4]"]);
    check(back(8, -1, -2), "f32[8]", expect!["8..-1 in steps of -2 must stay inside the 8 elements of dimension 0"]);
    check(
        back(0, i64::MIN, i64::MIN),
        "f32[8]",
        expect![
            "0..-9223372036854775808 in steps of -9223372036854775808 must stay inside the 8 elements of dimension 0"
        ],
    );
}

#[test]
fn attention() {
    let op = |window| Op::Attention(Attention { causal: true, scale: 0.125, window, softcap: None });
    check(op(None), "f32[n,8,s,64] f32[n,2,t,64] f32[n,2,t,32] f32[s,t]", expect!["f32[n,8,s,32]"]);
    check(op(Some(0)), "f32[1,8,5,64] f32[1,2,5,64] f32[1,2,5,64]", expect!["the window is 0, but must be at least 1"]);
    check(
        op(None),
        "f32[1,8,5,64] f32[1,3,5,64] f32[1,3,5,64]",
        expect!["3 heads of `k` do not divide 8 heads of `q`"],
    );
    check(
        op(None),
        "f32[1,8,5,64] f32[1,8,5,32] f32[1,8,5,64]",
        expect![
            "`q` and `k` must have the same batch and head size; `k` and `v` the same batch, heads and sequence length"
        ],
    );
}

#[test]
fn quantised() {
    let conv = |x_zero| {
        Op::QConv(QConv { strides: vec![1, 1], pads: vec![1; 4], dilations: vec![1, 1], groups: 1, x_zero, w_zero: 0 })
    };
    check(conv(128), "u8[1,3,8,8] i8[4,3,3,3]", expect!["i32[1,4,8,8]"]);
    check(conv(-1), "u8[1,3,8,8] i8[4,3,3,3]", expect!["the zero point -1 does not fit u8"]);
    check(conv(0), "i16[1,3,8,8] i8[4,3,3,3]", expect!["needs integers of 8 bits, not i16"]);
    let quantize = |axis| Op::Quantize(Quantize { to: DType::I8, axis });
    check(quantize(1), "f32[n,8,4] f32[8] i8[8]", expect!["i8[n,8,4]"]);
    check(quantize(0), "f32[n,8,4] f32[]", expect!["i8[n,8,4]"]);
    check(quantize(1), "f32[n,8,4] f32[]", expect!["the axis of a scalar scale must be 0, not 1"]);
    check(
        quantize(0),
        "f32[n,8,4] f32[] u8[]",
        expect!["the zero point u8[] must be i8 and shaped like the scale f32[]"],
    );
    check(Op::Dequantize(Dequantize { axis: 0 }), "u8[4] f16[]", expect!["f16[4]"]);
    let requantize = |high| Op::Requantize(Requantize { to: DType::U8, axis: 0, zero: 3, low: 0, high });
    check(requantize(255), "i32[4,2] f32[4]", expect!["u8[4,2]"]);
    check(
        requantize(256),
        "i32[4,2] f32[4]",
        expect!["zero point 3, lower bound 0 and upper bound 256 must fit u8 and be in order"],
    );
}

proptest! {
    #[test]
    fn window_places_are_those_one_can_walk(
        extent in 1i64..20, kernel in 1i64..5, stride in 1i64..5, head in 0i64..4, tail in 0i64..4, dilation in 1i64..4,
    ) {
        let op = Op::Conv(Conv { strides: vec![stride], pads: vec![head, tail], dilations: vec![dilation], groups: 1 });
        let x = TensorType::f32(&[1, 1, extent]);
        let w = TensorType::f32(&[1, 1, kernel]);
        let reach = dilation * (kernel - 1);
        let walked = (-head..).step_by(stride as usize).take_while(|start| start + reach < extent + tail).count() as i64;
        match infer_type(&op, &[&x, &w]) {
            Ok(ty) => prop_assert_eq!(ty, TensorType::f32(&[1, 1, walked])),
            Err(_) => prop_assert_eq!(walked, 0),
        }
    }
}
