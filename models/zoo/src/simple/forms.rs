//! The table of short forms.
//!
//! Keys: `n` batch, `ci` input channels, `co` output channels, `c` unchanged channels, `hw` the extent of every spatial
//! axis or `size` each of them, `h` and `w` the two extents of an image, `k` kernel (of products: the summed extent), `s` strides, `p` pads, `d` dilations, `g`
//! groups, `shape` all extents.

use super::{Arguments, Form, TextParts};
use models::operators::{
    AdaptivePool, ArgReduce, ArgTop, Attention, BatchNorm, BiasAdd, Binary, BinaryOp, Border, BorderPad, Cast, Clip,
    Compare, CompareOp, Concat, Conv, ConvTranspose, CumSum, Dense, Dequantize, Einsum, Expand, Gather, GatherElements,
    GatherNd, GlobalPool, GroupNorm, LayerNorm, LpNorm, Lrn, MatMul, MeanVarianceNorm, OneHot, Op, PRelu, Pad, Pool,
    PoolMode, QConv, QDense, QMatMul, Quantize, Reduce, ReduceOp, Requantize, Resize, ResizeMode, RmsNorm, Rope,
    ScaleShift, ScatterElements, ScatterNd, ScatterOp, Slice, Softmax, Tile, Transpose, Trilu, Unary, UnaryOp, Where,
};
use models::types::{DType, TensorType};

type Made = Result<TextParts, String>;

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
    form("einsum", "einsum:equation=bhqd;bhkd->bhqk,shape=1x12x128x64,other=1x12x128x64", einsum),
    form("attention", "attention:b=1,h=12,s=128,d=64", attention),
    form("rope", "rope:shape=1x12x128x64", rope),
    form("q_conv2d", "q_conv2d:ci=64,hw=56,co=64,k=3,p=1,xz=5", q_conv),
    form("q_dense", "q_dense:m=1,n=1000,k=512,xz=5", |a| {
        let (x_zero, w_zero) = (a.integer_or("xz", 0)?, a.integer_or("wz", 0)?);
        q_product(a, Op::QDense(QDense { x_zero, w_zero }), [a.integer("n")?, a.integer("k")?])
    }),
    form("q_matmul", "q_matmul:m=128,n=768,k=768,xz=5", |a| {
        let (a_zero, b_zero) = (a.integer_or("xz", 0)?, a.integer_or("wz", 0)?);
        q_product(a, Op::QMatMul(QMatMul { a_zero, b_zero }), [a.integer("k")?, a.integer("n")?])
    }),
    form("softmax", "softmax:shape=1x1000,axis=1", |a| softmax(a, false)),
    form("log_softmax", "log_softmax:shape=1x1000", |a| softmax(a, true)),
    form("layer_norm", "layer_norm:shape=1x128x768,axis=-1", layer_norm),
    form("rms_norm", "rms_norm:shape=1x128x768,axis=-1", rms_norm),
    form("group_norm", "group_norm:shape=1x64x56x56,g=32", |a| group_norm(a, a.integer("g")?)),
    form("instance_norm", "instance_norm:shape=1x64x56x56", |a| {
        let x = a.integers("shape")?;
        group_norm(a, x[index_of(1, &x)?])
    }),
    form("mean_variance_norm", "mean_variance_norm:shape=1x64x56x56,axes=0x2x3", |a| {
        plain(
            a,
            Op::MeanVarianceNorm(MeanVarianceNorm {
                axes: a.integers("axes")?,
                epsilon: a.number_or("epsilon", 1e-9)?,
            }),
        )
    }),
    form("lp_norm", "lp_norm:shape=1x512,axis=-1,order=2", |a| {
        plain(a, Op::LpNorm(LpNorm { axis: a.integer_or("axis", -1)?, order: a.integer_or("order", 2)? }))
    }),
    form("lrn", "lrn:shape=1x96x55x55,k=5,alpha=0.0001,beta=0.75,bias=1", |a| {
        let (alpha, beta, bias) = (a.number_or("alpha", 1e-4)?, a.number_or("beta", 0.75)?, a.number_or("bias", 1.0)?);
        plain(a, Op::Lrn(Lrn { size: a.integer("k")?, alpha, beta, bias }))
    }),
    form("batch_norm", "batch_norm:shape=1x64x56x56", batch_norm),
    form("scale_shift", "scale_shift:shape=1x64x56x56", |a| {
        per_channel(a, 2, |axis| Op::ScaleShift(ScaleShift { axis }))
    }),
    form("bias_add", "bias_add:shape=1x64x56x56", |a| per_channel(a, 1, |axis| Op::BiasAdd(BiasAdd { axis }))),
    form("max_pool1d", "max_pool1d:c=64,size=100,k=2,s=2", |a| pool(a, PoolMode::Max, 1)),
    form("max_pool2d", "max_pool2d:c=64,hw=112,k=3,s=2,p=1", |a| pool(a, PoolMode::Max, 2)),
    form("max_pool3d", "max_pool3d:c=64,hw=28,k=2,s=2", |a| pool(a, PoolMode::Max, 3)),
    form("avg_pool1d", "avg_pool1d:c=64,size=100,k=2,s=2", |a| pool(a, PoolMode::Average, 1)),
    form("avg_pool2d", "avg_pool2d:c=64,hw=56,k=2,s=2", |a| pool(a, PoolMode::Average, 2)),
    form("avg_pool3d", "avg_pool3d:c=64,hw=28,k=2,s=2", |a| pool(a, PoolMode::Average, 3)),
    form("global_max_pool", "global_max_pool:shape=1x512x7x7", |a| global_pool(a, PoolMode::Max)),
    form("global_avg_pool", "global_avg_pool:shape=1x512x7x7", |a| global_pool(a, PoolMode::Average)),
    form("lp_pool2d", "lp_pool2d:c=64,hw=56,k=2,s=2,order=2", |a| pool(a, lp(a)?, 2)),
    form("global_lp_pool", "global_lp_pool:shape=1x512x7x7,order=2", |a| global_pool(a, lp(a)?)),
    form("adaptive_avg_pool", "adaptive_avg_pool:shape=1x512x10x10,to=7x7", |a| adaptive(a, PoolMode::Average)),
    form("adaptive_max_pool", "adaptive_max_pool:shape=1x512x10x10,to=7x7", |a| adaptive(a, PoolMode::Max)),
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
    form("sin", "sin:shape=1x1000", |a| unary(a, UnaryOp::Sin)),
    form("cos", "cos:shape=1x1000", |a| unary(a, UnaryOp::Cos)),
    form("tan", "tan:shape=1x1000", |a| unary(a, UnaryOp::Tan)),
    form("asin", "asin:shape=1x1000", |a| unary(a, UnaryOp::Asin)),
    form("acos", "acos:shape=1x1000", |a| unary(a, UnaryOp::Acos)),
    form("atan", "atan:shape=1x1000", |a| unary(a, UnaryOp::Atan)),
    form("sinh", "sinh:shape=1x1000", |a| unary(a, UnaryOp::Sinh)),
    form("cosh", "cosh:shape=1x1000", |a| unary(a, UnaryOp::Cosh)),
    form("asinh", "asinh:shape=1x1000", |a| unary(a, UnaryOp::Asinh)),
    form("acosh", "acosh:shape=1x1000", |a| unary(a, UnaryOp::Acosh)),
    form("atanh", "atanh:shape=1x1000", |a| unary(a, UnaryOp::Atanh)),
    form("erf", "erf:shape=1x1000", |a| unary(a, UnaryOp::Erf)),
    form("exp2", "exp2:shape=1x1000", |a| unary(a, UnaryOp::Exp2)),
    form("expm1", "expm1:shape=1x1000", |a| unary(a, UnaryOp::Expm1)),
    form("log2", "log2:shape=1x1000", |a| unary(a, UnaryOp::Log2)),
    form("log10", "log10:shape=1x1000", |a| unary(a, UnaryOp::Log10)),
    form("log1p", "log1p:shape=1x1000", |a| unary(a, UnaryOp::Log1p)),
    form("rsqrt", "rsqrt:shape=1x1000", |a| unary(a, UnaryOp::Rsqrt)),
    form("reciprocal", "reciprocal:shape=1x1000", |a| unary(a, UnaryOp::Reciprocal)),
    form("square", "square:shape=1x1000", |a| unary(a, UnaryOp::Square)),
    form("floor", "floor:shape=1x1000", |a| unary(a, UnaryOp::Floor)),
    form("ceil", "ceil:shape=1x1000", |a| unary(a, UnaryOp::Ceil)),
    form("round", "round:shape=1x1000", |a| unary(a, UnaryOp::Round)),
    form("trunc", "trunc:shape=1x1000", |a| unary(a, UnaryOp::Trunc)),
    form("sign", "sign:shape=1x1000", |a| unary(a, UnaryOp::Sign)),
    form("selu", "selu:shape=1x1000", |a| unary(a, UnaryOp::Selu)),
    form("softplus", "softplus:shape=1x1000", |a| unary(a, UnaryOp::Softplus)),
    form("softsign", "softsign:shape=1x1000", |a| unary(a, UnaryOp::Softsign)),
    form("mish", "mish:shape=1x1000", |a| unary(a, UnaryOp::Mish)),
    form("gelu_tanh", "gelu_tanh:shape=1x1000", |a| unary(a, UnaryOp::GeluTanh)),
    form("is_nan", "is_nan:shape=1x1000", |a| unary(a, UnaryOp::IsNan)),
    form("elu", "elu:shape=1x1000,alpha=1", |a| unary(a, UnaryOp::Elu { alpha: a.number_or("alpha", 1.0)? })),
    form("celu", "celu:shape=1x1000,alpha=1", |a| unary(a, UnaryOp::Celu { alpha: a.number_or("alpha", 1.0)? })),
    form("swish", "swish:shape=1x1000,beta=1.702", |a| unary(a, UnaryOp::Swish { beta: a.number_or("beta", 1.0)? })),
    form("hard_sigmoid_of", "hard_sigmoid_of:shape=1x1000,slope=0.2,offset=0.5", |a| {
        let (slope, offset) = (a.number_or("slope", 0.2)?, a.number_or("offset", 0.5)?);
        unary(a, UnaryOp::HardSigmoidOf { slope, offset })
    }),
    form("thresholded_relu", "thresholded_relu:shape=1x1000,alpha=1", |a| {
        unary(a, UnaryOp::ThresholdedRelu { alpha: a.number_or("alpha", 1.0)? })
    }),
    form("shrink", "shrink:shape=1x1000,lambda=0.5,bias=0", |a| {
        unary(a, UnaryOp::Shrink { lambda: a.number_or("lambda", 0.5)?, bias: a.number_or("bias", 0.0)? })
    }),
    form("is_inf", "is_inf:shape=1x1000", |a| unary(a, UnaryOp::IsInf { negative: true, positive: true })),
    form("not", "not:shape=1x1000,dtype=bool", |a| unary(a, UnaryOp::Not)),
    form("bit_not", "bit_not:shape=1x1000,dtype=i32", |a| unary(a, UnaryOp::BitNot)),
    form("clip", "clip:shape=1x32x112x112,low=0,high=6", clip),
    form("add", "add:shape=1x64x56x56,other=64x1x1", |a| binary(a, BinaryOp::Add)),
    form("sub", "sub:shape=1x64x56x56", |a| binary(a, BinaryOp::Sub)),
    form("mul", "mul:shape=1x64x56x56,other=1x64x1x1", |a| binary(a, BinaryOp::Mul)),
    form("div", "div:shape=1x64x56x56", |a| binary(a, BinaryOp::Div)),
    form("max", "max:shape=1x64x56x56", |a| binary(a, BinaryOp::Max)),
    form("min", "min:shape=1x64x56x56", |a| binary(a, BinaryOp::Min)),
    form("pow", "pow:shape=1x64x56x56", |a| binary(a, BinaryOp::Pow)),
    form("mod", "mod:shape=1x64x56x56", |a| binary(a, BinaryOp::Mod)),
    form("fmod", "fmod:shape=1x64x56x56", |a| binary(a, BinaryOp::Fmod)),
    form("floor_div", "floor_div:shape=1x64x56x56,dtype=i32", |a| binary(a, BinaryOp::FloorDiv)),
    form("bit_and", "bit_and:shape=1x64x56x56,dtype=i32", |a| binary(a, BinaryOp::BitAnd)),
    form("bit_or", "bit_or:shape=1x64x56x56,dtype=i32", |a| binary(a, BinaryOp::BitOr)),
    form("bit_xor", "bit_xor:shape=1x64x56x56,dtype=i32", |a| binary(a, BinaryOp::BitXor)),
    form("shift_left", "shift_left:shape=1x64x56x56,dtype=i32", |a| binary(a, BinaryOp::ShiftLeft)),
    form("shift_right", "shift_right:shape=1x64x56x56,dtype=i32", |a| binary(a, BinaryOp::ShiftRight)),
    form("and", "and:shape=1x64x56x56,dtype=bool", |a| binary(a, BinaryOp::And)),
    form("or", "or:shape=1x64x56x56,dtype=bool", |a| binary(a, BinaryOp::Or)),
    form("xor", "xor:shape=1x64x56x56,dtype=bool", |a| binary(a, BinaryOp::Xor)),
    form("equal", "equal:shape=1x64x56x56", |a| two(a, Op::Compare(Compare { function: CompareOp::Equal }))),
    form("not_equal", "not_equal:shape=1x64x56x56", |a| two(a, Op::Compare(Compare { function: CompareOp::NotEqual }))),
    form("less", "less:shape=1x64x56x56", |a| two(a, Op::Compare(Compare { function: CompareOp::Less }))),
    form("less_or_equal", "less_or_equal:shape=1x64x56x56", |a| {
        two(a, Op::Compare(Compare { function: CompareOp::LessOrEqual }))
    }),
    form("greater", "greater:shape=1x64x56x56", |a| two(a, Op::Compare(Compare { function: CompareOp::Greater }))),
    form("greater_or_equal", "greater_or_equal:shape=1x64x56x56", |a| {
        two(a, Op::Compare(Compare { function: CompareOp::GreaterOrEqual }))
    }),
    form("where", "where:shape=1x12x128x128,other=128x128", choose),
    form("p_relu", "p_relu:shape=1x64x56x56", p_relu),
    form("reduce_sum", "reduce_sum:shape=1x64x56x56,axes=2x3,keep=1", |a| reduce(a, ReduceOp::Sum)),
    form("reduce_mean", "reduce_mean:shape=1x64x56x56,axes=2x3,keep=1", |a| reduce(a, ReduceOp::Mean)),
    form("reduce_max", "reduce_max:shape=1x64x56x56,axes=2x3,keep=1", |a| reduce(a, ReduceOp::Max)),
    form("reduce_min", "reduce_min:shape=1x64x56x56,axes=2x3,keep=1", |a| reduce(a, ReduceOp::Min)),
    form("reduce_prod", "reduce_prod:shape=1x64x56x56,axes=2x3,keep=1", |a| reduce(a, ReduceOp::Prod)),
    form("reduce_l1", "reduce_l1:shape=1x64x56x56,axes=2x3,keep=1", |a| reduce(a, ReduceOp::L1)),
    form("reduce_l2", "reduce_l2:shape=1x64x56x56,axes=2x3,keep=1", |a| reduce(a, ReduceOp::L2)),
    form("reduce_log_sum", "reduce_log_sum:shape=1x64x56x56,axes=2x3,keep=1", |a| reduce(a, ReduceOp::LogSum)),
    form("reduce_log_sum_exp", "reduce_log_sum_exp:shape=1x64x56x56,axes=2x3,keep=1", |a| {
        reduce(a, ReduceOp::LogSumExp)
    }),
    form("reduce_sum_square", "reduce_sum_square:shape=1x64x56x56,axes=2x3,keep=1", |a| reduce(a, ReduceOp::SumSquare)),
    form("arg_max", "arg_max:shape=1x1000,axis=1", |a| arg_reduce(a, true)),
    form("arg_min", "arg_min:shape=1x1000,axis=1", |a| arg_reduce(a, false)),
    form("arg_top", "arg_top:shape=1x1000,axis=1,count=5", |a| {
        let (count, axis) = (a.integer("count")?, a.integer_or("axis", -1)?);
        plain(a, Op::ArgTop(ArgTop { count, axis, largest: !a.is_set("smallest")? }))
    }),
    form("cum_sum", "cum_sum:shape=8x256,axis=1", |a| {
        let (exclusive, reverse) = (a.is_set("exclusive")?, a.is_set("reverse")?);
        plain(a, Op::CumSum(CumSum { axis: a.integer_or("axis", -1)?, exclusive, reverse }))
    }),
    form("cast", "cast:shape=1x1000,dtype=f32,to=f16", |a| plain(a, Op::Cast(Cast { to: a.dtype("to")? }))),
    form("transpose", "transpose:shape=1x128x12x64,order=0x2x1x3", |a| {
        plain(a, Op::Transpose(Transpose { permutation: a.integers("order")? }))
    }),
    form("concat", "concat:shape=1x64x28x28,other=1x32x28x28,axis=1", concat),
    form("slice", "slice:shape=1x116x28x28,axes=1,from=0,to=58", slice),
    form("resize_nearest", "resize_nearest:shape=1x128x13x13,to=26x26", |a| resize(a, ResizeMode::Nearest)),
    form("resize_linear", "resize_linear:shape=1x64x56x56,to=112x112", |a| resize(a, ResizeMode::Linear)),
    form("resize_linear_aligned", "resize_linear_aligned:shape=1x64x56x56,to=112x112", |a| {
        resize(a, ResizeMode::LinearAligned)
    }),
    form("pad", "pad:shape=1x3x224x224,p=0x0x3x3,value=0", pad),
    form("reflect_pad", "reflect_pad:shape=1x3x224x224,p=0x0x3x3", |a| border_pad(a, Border::Reflect)),
    form("edge_pad", "edge_pad:shape=1x3x224x224,p=0x0x3x3", |a| border_pad(a, Border::Edge)),
    form("wrap_pad", "wrap_pad:shape=1x3x224x224,p=0x0x3x3", |a| border_pad(a, Border::Wrap)),
    form("expand", "expand:shape=1x64x1x1,to=1x64x56x56", |a| {
        plain(a, Op::Expand(Expand { shape: a.integers("to")? }))
    }),
    form("tile", "tile:shape=1x64x28,times=1x1x2", |a| plain(a, Op::Tile(Tile { repeats: a.integers("times")? }))),
    form("gather", "gather:shape=30522x768,at=1x128,axis=0", |a| {
        indexed(a, Op::Gather(Gather { axis: a.integer_or("axis", 0)? }), None)
    }),
    form("gather_elements", "gather_elements:shape=8x100,at=8x10,axis=1", |a| {
        indexed(a, Op::GatherElements(GatherElements { axis: a.integer_or("axis", 0)? }), None)
    }),
    form("gather_nd", "gather_nd:shape=64x64x32,at=100x2", |a| {
        indexed(a, Op::GatherNd(GatherNd { batch: a.integer_or("batch", 0)? }), None)
    }),
    form("scatter_elements", "scatter_elements:shape=8x100,at=8x10,axis=1", |a| {
        let op = Op::ScatterElements(ScatterElements { axis: a.integer_or("axis", 0)?, combine: combine(a)? });
        indexed(a, op, Some(a.integers("at")?))
    }),
    form("scatter_nd", "scatter_nd:shape=64x64x32,at=10x2,combine=add", scatter_nd),
    form("one_hot", "one_hot:shape=1x128,depth=1000", one_hot),
    form("trilu", "trilu:shape=128x128,upper=1", |a| {
        plain(a, Op::Trilu(Trilu { upper: a.is_set("upper")?, diagonal: a.integer_or("diagonal", 0)? }))
    }),
    form("quantize", "quantize:shape=1x64x56x56,to=u8", quantize),
    form("dequantize", "dequantize:shape=1x64x56x56,from=u8", dequantize),
    form("requantize", "requantize:shape=1x64x56x56,to=u8,zero=3", requantize),
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
    let op = Op::Conv(Conv {
        strides: a.per_axis("s", rank, Some(1))?,
        pads: a.pads("p", rank)?,
        dilations: a.per_axis("d", rank, Some(1))?,
        groups,
    });
    let x = [vec![a.integer_or("n", 1)?, channels_in], spatial(a, rank)?].concat();
    let w = [vec![channels_out, per_group], a.per_axis("k", rank, None)?].concat();
    let dtype = a.dtype("dtype")?;
    with_epilogue(a, op, vec![TensorType::new(dtype, &x), TensorType::new(dtype, &w)], 1)
}

fn conv_transpose(a: &Arguments, rank: usize) -> Made {
    let (channels_in, channels_out, groups) = (a.integer("ci")?, a.integer("co")?, a.integer_or("g", 1)?);
    let op = Op::ConvTranspose(ConvTranspose {
        strides: a.per_axis("s", rank, Some(1))?,
        pads: a.pads("p", rank)?,
        output_pads: a.per_axis("op", rank, Some(0))?,
        dilations: a.per_axis("d", rank, Some(1))?,
        groups,
    });
    let per_group = channels_out.checked_div(groups).ok_or("`g` must not be 0")?;
    let x = [vec![a.integer_or("n", 1)?, channels_in], spatial(a, rank)?].concat();
    let w = [vec![channels_in, per_group], a.per_axis("k", rank, None)?].concat();
    let dtype = a.dtype("dtype")?;
    with_epilogue(a, op, vec![TensorType::new(dtype, &x), TensorType::new(dtype, &w)], 1)
}

fn dense(a: &Arguments) -> Made {
    let (m, n, k, dtype) = (a.integer_or("m", 1)?, a.integer("n")?, a.integer("k")?, a.dtype("dtype")?);
    with_epilogue(a, Op::Dense(Dense {}), vec![TensorType::new(dtype, &[m, k]), TensorType::new(dtype, &[n, k])], -1)
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
    with_epilogue(a, Op::MatMul(MatMul { transpose_a, transpose_b }), inputs, -1)
}

fn with_epilogue(a: &Arguments, op: Op, inputs: Vec<TensorType>, axis: i64) -> Made {
    let unary = |function| Op::Unary(Unary { function });
    let activation = a.one_of(
        "act",
        &[
            ("relu", unary(UnaryOp::Relu)),
            ("relu6", Op::Clip(Clip { low: 0.0, high: 6.0 })),
            ("sigmoid", unary(UnaryOp::Sigmoid)),
            ("hard_sigmoid", unary(UnaryOp::HardSigmoid)),
            ("tanh", unary(UnaryOp::Tanh)),
            ("silu", unary(UnaryOp::Silu)),
            ("hard_swish", unary(UnaryOp::HardSwish)),
            ("gelu", unary(UnaryOp::Gelu)),
        ],
    )?;
    Ok(TextParts { op, inputs, bias_axis: a.is_set("bias")?.then_some(axis), activation })
}

/// The equation uses `;` for commas, because commas separate pairs here.
fn einsum(a: &Arguments) -> Made {
    let equation = a.text("equation").ok_or("`equation` is missing")?.replace(';', ",");
    let (x, dtype) = (a.integers("shape")?, a.dtype("dtype")?);
    let mut inputs = vec![TensorType::new(dtype, &x)];
    if a.has("other") {
        inputs.push(TensorType::new(dtype, &a.integers("other")?));
    }
    only(Op::Einsum(Einsum { equation }), inputs)
}

/// `h` query heads, `g` key heads, `s` queries, `t` keys, widths `d` and `e`.
fn attention(a: &Arguments) -> Made {
    let (batch, heads, rows, width) = (a.integer_or("b", 1)?, a.integer("h")?, a.integer("s")?, a.integer("d")?);
    let (kept, places) = (a.integer_or("g", heads)?, a.integer_or("t", rows)?);
    let op = Op::Attention(Attention {
        causal: a.is_set("causal")?,
        scale: a.number_or("scale", 1.0 / (width.max(1) as f64).sqrt())?,
        window: if a.has("window") { Some(a.integer("window")?) } else { None },
        softcap: if a.has("softcap") { Some(a.number_or("softcap", 0.0)?) } else { None },
    });
    let dtype = a.dtype("dtype")?;
    let ty = |heads, places, width| TensorType::new(dtype, &[batch, heads, places, width]);
    let mut inputs = vec![ty(heads, rows, width), ty(kept, places, width), ty(kept, places, a.integer_or("e", width)?)];
    if a.has("mask") {
        inputs.push(TensorType::new(dtype, &a.integers("mask")?));
    }
    only(op, inputs)
}

fn rope(a: &Arguments) -> Made {
    let (x, dtype) = (a.integers("shape")?, a.dtype("dtype")?);
    let width = x[index_of(-1, &x)?];
    let rotary = a.integer_or("rotary", width)?;
    let mut angles = x[x.len().saturating_sub(2)..].to_vec();
    *angles.last_mut().ok_or("`shape` needs at least one number")? = rotary / 2;
    let angles = TensorType::new(dtype, &angles);
    only(
        Op::Rope(Rope { rotary, interleaved: a.is_set("interleaved")? }),
        vec![TensorType::new(dtype, &x), angles.clone(), angles],
    )
}

fn q_conv(a: &Arguments) -> Made {
    let TextParts { op, inputs, .. } = conv(a, 2)?;
    let Op::Conv(Conv { strides, pads, dilations, groups }) = op else { unreachable!("a convolution was asked for") };
    let op = Op::QConv(QConv {
        strides,
        pads,
        dilations,
        groups,
        x_zero: a.integer_or("xz", 0)?,
        w_zero: a.integer_or("wz", 0)?,
    });
    let types = [narrow(a, "x", DType::U8)?, narrow(a, "w", DType::I8)?];
    let inputs = inputs.into_iter().zip(types).map(|(ty, dtype)| TensorType { dtype, shape: ty.shape });
    only(op, inputs.collect())
}

fn q_product(a: &Arguments, op: Op, weight: [i64; 2]) -> Made {
    let x = TensorType::new(narrow(a, "x", DType::U8)?, &[a.integer_or("m", 1)?, a.integer("k")?]);
    only(op, vec![x, TensorType::new(narrow(a, "w", DType::I8)?, &weight)])
}

/// Returns the element type of a key whose default is not `f32`.
fn narrow(a: &Arguments, key: &'static str, default: DType) -> Result<DType, String> {
    if a.has(key) { a.dtype(key) } else { Ok(default) }
}

fn quantize(a: &Arguments) -> Made {
    let (x, to) = (a.integers("shape")?, narrow(a, "to", DType::U8)?);
    let (axis, scale) = scales(a, &x)?;
    let dtype = a.dtype("dtype")?;
    let inputs = vec![TensorType::new(dtype, &x), TensorType::new(dtype, &scale), TensorType::new(to, &scale)];
    only(Op::Quantize(Quantize { to, axis }), inputs)
}

fn dequantize(a: &Arguments) -> Made {
    let (x, from) = (a.integers("shape")?, narrow(a, "from", DType::U8)?);
    let (axis, scale) = scales(a, &x)?;
    let scales = [TensorType::new(a.dtype("dtype")?, &scale), TensorType::new(from, &scale)];
    only(Op::Dequantize(Dequantize { axis }), [vec![TensorType::new(from, &x)], scales.to_vec()].concat())
}

fn requantize(a: &Arguments) -> Made {
    let (x, to) = (a.integers("shape")?, narrow(a, "to", DType::U8)?);
    let (axis, scale) = scales(a, &x)?;
    let (low, high) = to.integer_range().ok_or_else(|| format!("`to={to}` is no integer of up to 32 bits"))?;
    let (low, high) = (a.integer_or("low", low)?, a.integer_or("high", high)?);
    let op = Op::Requantize(Requantize { to, axis, zero: a.integer_or("zero", 0)?, low, high });
    only(op, vec![TensorType::new(DType::I32, &x), TensorType::new(a.dtype("dtype")?, &scale)])
}

/// Returns one scale for all elements, or one per element of `axis`.
fn scales(a: &Arguments, x: &[i64]) -> Result<(i64, Vec<i64>), String> {
    if !a.has("axis") {
        return Ok((0, vec![]));
    }
    let axis = a.integer("axis")?;
    Ok((axis, vec![x[index_of(axis, x)?]]))
}

fn choose(a: &Arguments) -> Made {
    let TextParts { op, mut inputs, .. } = two(a, Op::Where(Where {}))?;
    inputs.insert(0, TensorType { dtype: DType::Bool, shape: inputs[0].shape.clone() });
    only(op, inputs)
}

/// Defaults to one slope per channel.
fn p_relu(a: &Arguments) -> Made {
    let (x, dtype) = (a.integers("shape")?, a.dtype("dtype")?);
    let slope = if a.has("slope") {
        a.integers("slope")?
    } else {
        let channels = index_of(1, &x)?;
        [vec![x[channels]], vec![1; x.len() - 2]].concat()
    };
    only(Op::PRelu(PRelu {}), vec![TensorType::new(dtype, &x), TensorType::new(dtype, &slope)])
}

fn reduce(a: &Arguments, function: ReduceOp) -> Made {
    plain(a, Op::Reduce(Reduce { function, axes: a.integers("axes")?, keep: a.is_set("keep")? }))
}

fn arg_reduce(a: &Arguments, largest: bool) -> Made {
    let (axis, keep, last) = (a.integer_or("axis", -1)?, a.is_set("keep")?, a.is_set("last")?);
    plain(a, Op::ArgReduce(ArgReduce { largest, axis, keep, last }))
}

/// Builds an operator on a tensor, on indices of the shape `at`, and on optional updates.
fn indexed(a: &Arguments, op: Op, updates: Option<Vec<i64>>) -> Made {
    let (x, dtype) = (a.integers("shape")?, a.dtype("dtype")?);
    let at = TensorType::new(narrow(a, "index", DType::I64)?, &a.integers("at")?);
    let updates = updates.map(|extents| TensorType::new(dtype, &extents));
    only(op, [TensorType::new(dtype, &x), at].into_iter().chain(updates).collect())
}

fn scatter_nd(a: &Arguments) -> Made {
    let (x, at) = (a.integers("shape")?, a.integers("at")?);
    let (looked_up, tuples) = at.split_last().ok_or("`at` needs at least one number")?;
    let looked_up = usize::try_from(*looked_up).unwrap_or(usize::MAX);
    let inner = x.get(looked_up..).ok_or_else(|| format!("`at` looks up {looked_up} of {} dimensions", x.len()))?;
    indexed(a, Op::ScatterNd(ScatterNd { combine: combine(a)? }), Some([tuples, inner].concat()))
}

fn combine(a: &Arguments) -> Result<ScatterOp, String> {
    let known = [
        ("replace", ScatterOp::Replace),
        ("add", ScatterOp::Add),
        ("mul", ScatterOp::Mul),
        ("max", ScatterOp::Max),
        ("min", ScatterOp::Min),
    ];
    Ok(a.one_of("combine", &known)?.unwrap_or(ScatterOp::Replace))
}

fn one_hot(a: &Arguments) -> Made {
    let (on, off) = (a.number_or("on", 1.0)?, a.number_or("off", 0.0)?);
    let op =
        Op::OneHot(OneHot { axis: a.integer_or("axis", -1)?, depth: a.integer("depth")?, on, off, to: a.dtype("to")? });
    only(op, vec![TensorType::new(narrow(a, "index", DType::I64)?, &a.integers("shape")?)])
}

fn border_pad(a: &Arguments, border: Border) -> Made {
    let rank = a.integers("shape")?.len();
    plain(a, Op::BorderPad(BorderPad { border, pads: a.pads("p", rank)? }))
}

fn rms_norm(a: &Arguments) -> Made {
    let (x, dtype) = (a.integers("shape")?, a.dtype("dtype")?);
    let axis = a.integer_or("axis", -1)?;
    let scale = TensorType::new(dtype, &x[index_of(axis, &x)?..]);
    only(Op::RmsNorm(RmsNorm { axis, epsilon: a.number_or("epsilon", 1e-6)? }), vec![TensorType::new(dtype, &x), scale])
}

fn group_norm(a: &Arguments, groups: i64) -> Made {
    vectors(a, Op::GroupNorm(GroupNorm { groups, epsilon: a.number_or("epsilon", 1e-5)? }), 1, 2)
}

fn lp(a: &Arguments) -> Result<PoolMode, String> {
    Ok(PoolMode::Lp { order: a.integer_or("order", 2)? })
}

fn adaptive(a: &Arguments, mode: PoolMode) -> Made {
    plain(a, Op::AdaptivePool(AdaptivePool { mode, extents: a.integers("to")? }))
}

fn softmax(a: &Arguments, log: bool) -> Made {
    plain(a, Op::Softmax(Softmax { axis: a.integer_or("axis", -1)?, log }))
}

fn layer_norm(a: &Arguments) -> Made {
    let (x, dtype) = (a.integers("shape")?, a.dtype("dtype")?);
    let axis = a.integer_or("axis", -1)?;
    let vector = TensorType::new(dtype, &x[index_of(axis, &x)?..]);
    let op = Op::LayerNorm(LayerNorm { axis, epsilon: a.number_or("epsilon", 1e-5)? });
    only(op, vec![TensorType::new(dtype, &x), vector.clone(), vector])
}

fn slice(a: &Arguments) -> Made {
    let axes = a.integers("axes")?;
    let steps = if a.has("step") { a.integers("step")? } else { vec![1; axes.len()] };
    plain(a, Op::Slice(Slice { axes, starts: a.integers("from")?, stops: a.integers("to")?, steps }))
}

fn resize(a: &Arguments, mode: ResizeMode) -> Made {
    plain(a, Op::Resize(Resize { mode, extents: a.integers("to")? }))
}

fn batch_norm(a: &Arguments) -> Made {
    let epsilon = a.number_or("epsilon", 1e-5)?;
    vectors(a, Op::BatchNorm(BatchNorm { epsilon }), 1, 4)
}

fn per_channel(a: &Arguments, count: usize, op: fn(i64) -> Op) -> Made {
    let axis = a.integer_or("axis", 1)?;
    vectors(a, op(axis), axis, count)
}

/// Builds an operator on a tensor and `count` vectors along an axis.
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
    let op = Op::Pool(Pool {
        mode,
        strides: if a.has("s") { a.per_axis("s", rank, None)? } else { kernel.clone() },
        kernel,
        pads: a.pads("p", rank)?,
        dilations: a.per_axis("d", rank, Some(1))?,
        ceil: a.is_set("ceil")?,
        count_pad: mode == PoolMode::Average && a.is_set("count_pad")?,
    });
    let x = [vec![a.integer_or("n", 1)?, a.integer("c")?], spatial(a, rank)?].concat();
    only(op, vec![TensorType::new(a.dtype("dtype")?, &x)])
}

fn global_pool(a: &Arguments, mode: PoolMode) -> Made {
    plain(a, Op::GlobalPool(GlobalPool { mode }))
}

fn unary(a: &Arguments, function: UnaryOp) -> Made {
    plain(a, Op::Unary(Unary { function }))
}

fn clip(a: &Arguments) -> Made {
    plain(a, Op::Clip(Clip { low: a.number_or("low", 0.0)?, high: a.number_or("high", 6.0)? }))
}

fn binary(a: &Arguments, function: BinaryOp) -> Made {
    two(a, Op::Binary(Binary { function }))
}

fn concat(a: &Arguments) -> Made {
    two(a, Op::Concat(Concat { axis: a.integer_or("axis", 1)? }))
}

fn pad(a: &Arguments) -> Made {
    let rank = a.integers("shape")?.len();
    plain(a, Op::Pad(Pad { pads: a.pads("p", rank)?, value: a.number_or("value", 0.0)? }))
}

/// Builds an operator on two tensors of `shape` and `other`, which defaults to `shape`.
fn two(a: &Arguments, op: Op) -> Made {
    let (x, dtype) = (a.integers("shape")?, a.dtype("dtype")?);
    let other = if a.has("other") { a.integers("other")? } else { x.clone() };
    only(op, vec![TensorType::new(dtype, &x), TensorType::new(dtype, &other)])
}

/// Builds an operator on one tensor of `shape`.
fn plain(a: &Arguments, op: Op) -> Made {
    let dtype: DType = a.dtype("dtype")?;
    only(op, vec![TensorType::new(dtype, &a.integers("shape")?)])
}

fn only(op: Op, inputs: Vec<TensorType>) -> Made {
    Ok(TextParts { op, inputs, bias_axis: None, activation: None })
}

fn spatial(a: &Arguments, rank: usize) -> Result<Vec<i64>, String> {
    if rank == 2 && (a.has("h") || a.has("w")) {
        return match (a.has("h"), a.has("w"), a.has("hw") || a.has("size")) {
            (true, true, false) => Ok(vec![a.integer("h")?, a.integer("w")?]),
            (_, _, true) => Err("`h` and `w` cannot be combined with `hw` or `size`; give one of them".to_owned()),
            _ => Err("`h` and `w` must both be given; `hw=56` sets both".to_owned()),
        };
    }
    match (a.has("hw"), a.has("size")) {
        (true, true) => Err("`hw` and `size` set the same extents; give one of them".to_owned()),
        (true, false) => Ok(vec![a.integer("hw")?; rank]),
        (false, true) => a.per_axis("size", rank, None),
        (false, false) => {
            let each = vec!["56"; rank].join("x");
            Err(format!(
                "`hw` is missing, one extent for every spatial axis, or `size` with each of them, such as `size={each}`"
            ))
        }
    }
}
