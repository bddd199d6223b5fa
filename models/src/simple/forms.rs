//! The table of short forms.
//!
//! Keys: `n` batch, `ci` and `co` channels, `c` channels that stay, `hw` the extent of every spatial axis or `size` each of
//! them, `k` kernel (of products: the summed extent), `s` strides, `p` pads, `d` dilations, `g` groups, `shape` all extents.

use super::{Arguments, Form, Parts};
use crate::operator::{BinaryOp, Op, PoolMode, ResizeMode, UnaryOp};
use crate::types::{DType, TensorType};

type Made = Result<Parts, String>;

pub(super) const FORMS: &[Form] = &[
    form("conv1d", "conv1d:ci=16,size=100,co=32,k=3,p=1", |a| conv(a, 1)),
    form("conv2d", "conv2d:n=1,ci=64,hw=56,co=64,k=3,s=1,p=1,bias=1,act=relu", |a| conv(a, 2)),
    form("conv3d", "conv3d:ci=3,size=16x112x112,co=64,k=3x7x7,s=1x2x2,p=1x3x3", |a| conv(a, 3)),
    form("depthwise_conv2d", "depthwise_conv2d:c=32,hw=112,k=3,p=1", depthwise),
    form("conv_transpose1d", "conv_transpose1d:ci=64,size=50,co=32,k=4,s=2,p=1", |a| conv_transpose(a, 1)),
    form("conv_transpose2d", "conv_transpose2d:ci=512,hw=8,co=256,k=4,s=2,p=1", |a| conv_transpose(a, 2)),
    form("conv_transpose3d", "conv_transpose3d:ci=64,hw=8,co=32,k=2,s=2", |a| conv_transpose(a, 3)),
    form("dense", "dense:m=1,n=1000,k=512,bias=1", dense),
    form("matmul", "matmul:m=512,n=512,k=512", mat_mul),
    form("softmax", "softmax:shape=1x1000,axis=1", |a| softmax(a, false)),
    form("log_softmax", "log_softmax:shape=1x1000", |a| softmax(a, true)),
    form("layer_norm", "layer_norm:shape=1x128x768,axis=-1", layer_norm),
    form("batch_norm", "batch_norm:shape=1x64x56x56", batch_norm),
    form("scale_shift", "scale_shift:shape=1x64x56x56", |a| per_channel(a, 2, |axis| Op::ScaleShift { axis })),
    form("bias_add", "bias_add:shape=1x64x56x56", |a| per_channel(a, 1, |axis| Op::BiasAdd { axis })),
    form("max_pool1d", "max_pool1d:c=64,size=100,k=2,s=2", |a| pool(a, PoolMode::Max, 1)),
    form("max_pool2d", "max_pool2d:c=64,hw=112,k=3,s=2,p=1", |a| pool(a, PoolMode::Max, 2)),
    form("max_pool3d", "max_pool3d:c=64,hw=28,k=2,s=2", |a| pool(a, PoolMode::Max, 3)),
    form("avg_pool1d", "avg_pool1d:c=64,size=100,k=2,s=2", |a| pool(a, PoolMode::Average, 1)),
    form("avg_pool2d", "avg_pool2d:c=64,hw=56,k=2,s=2", |a| pool(a, PoolMode::Average, 2)),
    form("avg_pool3d", "avg_pool3d:c=64,hw=28,k=2,s=2", |a| pool(a, PoolMode::Average, 3)),
    form("global_max_pool", "global_max_pool:shape=1x512x7x7", |a| global_pool(a, PoolMode::Max)),
    form("global_avg_pool", "global_avg_pool:shape=1x512x7x7", |a| global_pool(a, PoolMode::Average)),
    form("relu", "relu:shape=1x64x56x56", |a| unary(a, UnaryOp::Relu)),
    form("leaky_relu", "leaky_relu:shape=1x64x56x56,alpha=0.1", |a| {
        unary(a, UnaryOp::LeakyRelu { alpha: a.number_or("alpha", 0.01)? })
    }),
    form("sigmoid", "sigmoid:shape=1x64x56x56", |a| unary(a, UnaryOp::Sigmoid)),
    form("hard_sigmoid", "hard_sigmoid:shape=1x64x56x56", |a| unary(a, UnaryOp::HardSigmoid)),
    form("tanh", "tanh:shape=1x64x56x56", |a| unary(a, UnaryOp::Tanh)),
    form("silu", "silu:shape=1x64x56x56", |a| unary(a, UnaryOp::Silu)),
    form("hard_swish", "hard_swish:shape=1x64x56x56", |a| unary(a, UnaryOp::HardSwish)),
    form("gelu", "gelu:shape=1x128x3072", |a| unary(a, UnaryOp::Gelu)),
    form("exp", "exp:shape=1x1000", |a| unary(a, UnaryOp::Exp)),
    form("log", "log:shape=1x1000", |a| unary(a, UnaryOp::Log)),
    form("sqrt", "sqrt:shape=1x1000", |a| unary(a, UnaryOp::Sqrt)),
    form("neg", "neg:shape=1x1000", |a| unary(a, UnaryOp::Neg)),
    form("abs", "abs:shape=1x1000", |a| unary(a, UnaryOp::Abs)),
    form("clip", "clip:shape=1x32x112x112,low=0,high=6", clip),
    form("add", "add:shape=1x64x56x56,other=64x1x1", |a| binary(a, BinaryOp::Add)),
    form("sub", "sub:shape=1x64x56x56", |a| binary(a, BinaryOp::Sub)),
    form("mul", "mul:shape=1x64x56x56,other=1x64x1x1", |a| binary(a, BinaryOp::Mul)),
    form("div", "div:shape=1x64x56x56", |a| binary(a, BinaryOp::Div)),
    form("max", "max:shape=1x64x56x56", |a| binary(a, BinaryOp::Max)),
    form("min", "min:shape=1x64x56x56", |a| binary(a, BinaryOp::Min)),
    form("cast", "cast:shape=1x1000,dtype=f32,to=f16", |a| plain(a, Op::Cast { to: a.dtype("to")? })),
    form("transpose", "transpose:shape=1x128x12x64,order=0x2x1x3", |a| {
        plain(a, Op::Transpose { permutation: a.integers("order")? })
    }),
    form("concat", "concat:shape=1x64x28x28,other=1x32x28x28,axis=1", concat),
    form("slice", "slice:shape=1x116x28x28,axes=1,from=0,to=58", slice),
    form("resize_nearest", "resize_nearest:shape=1x128x13x13,to=26x26", |a| resize(a, ResizeMode::Nearest)),
    form("resize_linear", "resize_linear:shape=1x64x56x56,to=112x112", |a| resize(a, ResizeMode::Linear)),
    form("resize_linear_aligned", "resize_linear_aligned:shape=1x64x56x56,to=112x112", |a| {
        resize(a, ResizeMode::LinearAligned)
    }),
    form("pad", "pad:shape=1x3x224x224,p=0x0x3x3,value=0", pad),
];

const fn form(name: &'static str, example: &'static str, make: fn(&Arguments) -> Made) -> Form {
    Form { name, example, make }
}

fn conv(a: &Arguments, rank: usize) -> Made {
    let (channels_in, groups) = (a.integer("ci")?, a.integer_or("g", 1)?);
    let per_group = channels_in.checked_div(groups).ok_or("`g` must not be 0")?;
    conv_of(a, rank, channels_in, a.integer("co")?, per_group, groups)
}

fn depthwise(a: &Arguments) -> Made {
    let channels = a.integer("c")?;
    conv_of(a, 2, channels, channels, 1, channels)
}

fn conv_of(a: &Arguments, rank: usize, channels_in: i64, channels_out: i64, per_group: i64, groups: i64) -> Made {
    let op = Op::Conv {
        strides: a.per_axis("s", rank, Some(1))?,
        pads: a.pads("p", rank)?,
        dilations: a.per_axis("d", rank, Some(1))?,
        groups,
    };
    let x = [vec![a.integer_or("n", 1)?, channels_in], spatial(a, rank)?].concat();
    let w = [vec![channels_out, per_group], a.per_axis("k", rank, None)?].concat();
    let dtype = a.dtype("dtype")?;
    with_epilogue(a, op, vec![TensorType::new(dtype, &x), TensorType::new(dtype, &w)], 1)
}

fn conv_transpose(a: &Arguments, rank: usize) -> Made {
    let (channels_in, channels_out, groups) = (a.integer("ci")?, a.integer("co")?, a.integer_or("g", 1)?);
    let op = Op::ConvTranspose {
        strides: a.per_axis("s", rank, Some(1))?,
        pads: a.pads("p", rank)?,
        output_pads: a.per_axis("op", rank, Some(0))?,
        dilations: a.per_axis("d", rank, Some(1))?,
        groups,
    };
    let per_group = channels_out.checked_div(groups).ok_or("`g` must not be 0")?;
    let x = [vec![a.integer_or("n", 1)?, channels_in], spatial(a, rank)?].concat();
    let w = [vec![channels_in, per_group], a.per_axis("k", rank, None)?].concat();
    let dtype = a.dtype("dtype")?;
    with_epilogue(a, op, vec![TensorType::new(dtype, &x), TensorType::new(dtype, &w)], 1)
}

fn dense(a: &Arguments) -> Made {
    let (m, n, k, dtype) = (a.integer_or("m", 1)?, a.integer("n")?, a.integer("k")?, a.dtype("dtype")?);
    with_epilogue(a, Op::Dense, vec![TensorType::new(dtype, &[m, k]), TensorType::new(dtype, &[n, k])], -1)
}

fn mat_mul(a: &Arguments) -> Made {
    let (m, n, k, dtype) = (a.integer("m")?, a.integer("n")?, a.integer("k")?, a.dtype("dtype")?);
    let (transpose_a, transpose_b) = (a.is_set("ta")?, a.is_set("tb")?);
    let batch = if a.has("b") { a.integers("b")? } else { vec![] };
    let matrix = |rows, columns, is_transposed| {
        let extents = if is_transposed { vec![columns, rows] } else { vec![rows, columns] };
        TensorType::new(dtype, &[batch.clone(), extents].concat())
    };
    let inputs = vec![matrix(m, k, transpose_a), matrix(k, n, transpose_b)];
    with_epilogue(a, Op::MatMul { transpose_a, transpose_b }, inputs, -1)
}

fn with_epilogue(a: &Arguments, op: Op, inputs: Vec<TensorType>, axis: i64) -> Made {
    let activation = a.text("act").map(activation).transpose()?;
    Ok(Parts { op, inputs, bias_axis: a.is_set("bias")?.then_some(axis), activation })
}

fn activation(name: &str) -> Result<Op, String> {
    let function = match name {
        "relu" => UnaryOp::Relu,
        "relu6" => return Ok(Op::Clip { low: 0.0, high: 6.0 }),
        "sigmoid" => UnaryOp::Sigmoid,
        "hard_sigmoid" => UnaryOp::HardSigmoid,
        "tanh" => UnaryOp::Tanh,
        "silu" => UnaryOp::Silu,
        "hard_swish" => UnaryOp::HardSwish,
        "gelu" => UnaryOp::Gelu,
        other => {
            return Err(format!(
                "`act={other}` is none of relu, relu6, sigmoid, hard_sigmoid, tanh, silu, hard_swish, gelu"
            ));
        }
    };
    Ok(Op::Unary { function })
}

fn softmax(a: &Arguments, log: bool) -> Made {
    plain(a, Op::Softmax { axis: a.integer_or("axis", -1)?, log })
}

fn layer_norm(a: &Arguments) -> Made {
    let (x, dtype) = (a.integers("shape")?, a.dtype("dtype")?);
    let axis = a.integer_or("axis", -1)?;
    let vector = TensorType::new(dtype, &x[index_of(axis, &x)?..]);
    let op = Op::LayerNorm { axis, epsilon: a.number_or("epsilon", 1e-5)? };
    only(op, vec![TensorType::new(dtype, &x), vector.clone(), vector])
}

fn slice(a: &Arguments) -> Made {
    let axes = a.integers("axes")?;
    let steps = if a.has("step") { a.integers("step")? } else { vec![1; axes.len()] };
    plain(a, Op::Slice { axes, starts: a.integers("from")?, stops: a.integers("to")?, steps })
}

fn resize(a: &Arguments, mode: ResizeMode) -> Made {
    plain(a, Op::Resize { mode, extents: a.integers("to")? })
}

fn batch_norm(a: &Arguments) -> Made {
    let epsilon = a.number_or("epsilon", 1e-5)?;
    vectors(a, Op::BatchNorm { epsilon }, 1, 4)
}

fn per_channel(a: &Arguments, count: usize, op: fn(i64) -> Op) -> Made {
    let axis = a.integer_or("axis", 1)?;
    vectors(a, op(axis), axis, count)
}

/// An operator on a tensor and this many vectors along an axis.
fn vectors(a: &Arguments, op: Op, axis: i64, count: usize) -> Made {
    let (x, dtype) = (a.integers("shape")?, a.dtype("dtype")?);
    let channels = x[index_of(axis, &x)?];
    let mut inputs = vec![TensorType::new(dtype, &x)];
    inputs.resize(1 + count, TensorType::new(dtype, &[channels]));
    only(op, inputs)
}

fn index_of(axis: i64, extents: &[i64]) -> Result<usize, String> {
    let index = if axis < 0 { axis.checked_add_unsigned(extents.len() as u64) } else { Some(axis) };
    let index = index.and_then(|index| usize::try_from(index).ok()).filter(|&index| index < extents.len());
    index.ok_or_else(|| format!("`shape` has no dimension {axis}"))
}

fn pool(a: &Arguments, mode: PoolMode, rank: usize) -> Made {
    let kernel = a.per_axis("k", rank, None)?;
    let op = Op::Pool {
        mode,
        strides: if a.has("s") { a.per_axis("s", rank, None)? } else { kernel.clone() },
        kernel,
        pads: a.pads("p", rank)?,
        dilations: a.per_axis("d", rank, Some(1))?,
        ceil: a.is_set("ceil")?,
        count_pad: mode == PoolMode::Average && a.is_set("count_pad")?,
    };
    let x = [vec![a.integer_or("n", 1)?, a.integer("c")?], spatial(a, rank)?].concat();
    only(op, vec![TensorType::new(a.dtype("dtype")?, &x)])
}

fn global_pool(a: &Arguments, mode: PoolMode) -> Made {
    plain(a, Op::GlobalPool { mode })
}

fn unary(a: &Arguments, function: UnaryOp) -> Made {
    plain(a, Op::Unary { function })
}

fn clip(a: &Arguments) -> Made {
    plain(a, Op::Clip { low: a.number_or("low", 0.0)?, high: a.number_or("high", 6.0)? })
}

fn binary(a: &Arguments, function: BinaryOp) -> Made {
    two(a, Op::Binary { function })
}

fn concat(a: &Arguments) -> Made {
    two(a, Op::Concat { axis: a.integer_or("axis", 1)? })
}

fn pad(a: &Arguments) -> Made {
    let rank = a.integers("shape")?.len();
    plain(a, Op::Pad { pads: a.pads("p", rank)?, value: a.number_or("value", 0.0)? })
}

/// An operator on two tensors of `shape` and `other`, which is like `shape` unless it is given.
fn two(a: &Arguments, op: Op) -> Made {
    let (x, dtype) = (a.integers("shape")?, a.dtype("dtype")?);
    let other = if a.has("other") { a.integers("other")? } else { x.clone() };
    only(op, vec![TensorType::new(dtype, &x), TensorType::new(dtype, &other)])
}

/// An operator on one tensor of `shape`.
fn plain(a: &Arguments, op: Op) -> Made {
    let dtype: DType = a.dtype("dtype")?;
    only(op, vec![TensorType::new(dtype, &a.integers("shape")?)])
}

fn only(op: Op, inputs: Vec<TensorType>) -> Made {
    Ok(Parts { op, inputs, bias_axis: None, activation: None })
}

fn spatial(a: &Arguments, rank: usize) -> Result<Vec<i64>, String> {
    match (a.has("hw"), a.has("size")) {
        (true, true) => Err("`hw` and `size` say the same thing; give one of them".to_owned()),
        (true, false) => Ok(vec![a.integer("hw")?; rank]),
        _ => a.per_axis("size", rank, None),
    }
}
