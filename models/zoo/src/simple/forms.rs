//! The table of short forms for single operators.
//! Keys: `n` batch, `ci` input channels, `co` output channels, `c` channels if input and output have equally many,
//! `hw` the extent of every spatial axis or `size` the extents one by one, `h` and `w` the two extents of an image,
//! `k` kernel (of matrix products: the summed extent), `s` strides, `p` pads, `d` dilations, `g` groups, `shape` all
//! extents.

use super::{Arguments, Form, TextParts};
use models::operators::{
    AdaptivePool, ArgReduce, ArgTop, Attention, BatchNorm, BiasAdd, Binary, BinaryOp, Border, BorderPad, Cast, Clip,
    Compare, CompareOp, Concat, Conv, ConvTranspose, CumSum, Dense, Dequantize, Einsum, Expand, Gather, GatherElements,
    GatherNd, GlobalPool, GroupNorm, LayerNorm, LpNorm, Lrn, MatMul, MeanVarianceNorm, OneHot, Op, PRelu, Pad, Pool,
    PoolMode, QConv, QDense, QMatMul, Quantize, Reduce, ReduceOp, Requantize, Resize, ResizeMode, RmsNorm, Rope,
    ScaleShift, ScatterElements, ScatterNd, ScatterOp, Slice, Softmax, Tile, Transpose, Trilu, Unary, UnaryOp, Where,
};
use models::types::{DType, TensorType};

type FormResult = Result<TextParts, String>;

pub(super) const FORMS: &[Form] = &[
    new_form("conv1d", "conv1d:ci=16,size=100,co=32,k=3,p=1", |a| make_conv(a, 1)),
    new_form("conv2d", "conv2d:n=1,ci=64,hw=56,co=64,k=3,s=1,p=1,bias=1,act=relu", |a| make_conv(a, 2)),
    new_form("conv3d", "conv3d:ci=3,size=16x112x112,co=64,k=3x7x7,s=1x2x2,p=1x3x3", |a| make_conv(a, 3)),
    new_form("depthwise_conv2d", "depthwise_conv2d:c=32,hw=112,k=3,p=1", make_depthwise),
    new_form("conv_transpose1d", "conv_transpose1d:ci=64,size=50,co=32,k=4,s=2,p=1", |a| conv_transpose(a, 1)),
    new_form("conv_transpose2d", "conv_transpose2d:ci=512,hw=8,co=256,k=4,s=2,p=1", |a| conv_transpose(a, 2)),
    new_form("conv_transpose3d", "conv_transpose3d:ci=64,hw=8,co=32,k=2,s=2", |a| conv_transpose(a, 3)),
    new_form("dense", "dense:m=1,n=1000,k=512,bias=1", make_dense),
    new_form("matmul", "matmul:m=512,n=512,k=512", mat_mul),
    new_form("einsum", "einsum:equation=bhqd;bhkd->bhqk,shape=1x12x128x64,other=1x12x128x64", make_einsum),
    new_form("attention", "attention:b=1,h=12,s=128,d=64", make_attention),
    new_form("rope", "rope:shape=1x12x128x64", make_rope),
    new_form("q_conv2d", "q_conv2d:ci=64,hw=56,co=64,k=3,p=1,xz=5", q_conv),
    new_form("q_dense", "q_dense:m=1,n=1000,k=512,xz=5", |a| {
        let (x_zero, w_zero) = (a.integer_or("xz", 0)?, a.integer_or("wz", 0)?);
        q_product(a, Op::QDense(QDense { x_zero, w_zero }), [a.integer("n")?, a.integer("k")?])
    }),
    new_form("q_matmul", "q_matmul:m=128,n=768,k=768,xz=5", |a| {
        let (a_zero, b_zero) = (a.integer_or("xz", 0)?, a.integer_or("wz", 0)?);
        q_product(a, Op::QMatMul(QMatMul { a_zero, b_zero }), [a.integer("k")?, a.integer("n")?])
    }),
    new_form("softmax", "softmax:shape=1x1000,axis=1", |a| make_softmax(a, false)),
    new_form("log_softmax", "log_softmax:shape=1x1000", |a| make_softmax(a, true)),
    new_form("layer_norm", "layer_norm:shape=1x128x768,axis=-1", layer_norm),
    new_form("rms_norm", "rms_norm:shape=1x128x768,axis=-1", rms_norm),
    new_form("group_norm", "group_norm:shape=1x64x56x56,g=32", |a| group_norm(a, a.integer("g")?)),
    new_form("instance_norm", "instance_norm:shape=1x64x56x56", |a| {
        let x = a.integers("shape")?;
        group_norm(a, x[index_of(1, &x)?])
    }),
    new_form("mean_variance_norm", "mean_variance_norm:shape=1x64x56x56,axes=0x2x3", |a| {
        make_one_tensor(
            a,
            Op::MeanVarianceNorm(MeanVarianceNorm {
                axes: a.integers("axes")?,
                epsilon: a.number_or("epsilon", 1e-9)?,
            }),
        )
    }),
    new_form("lp_norm", "lp_norm:shape=1x512,axis=-1,order=2", |a| {
        make_one_tensor(a, Op::LpNorm(LpNorm { axis: a.integer_or("axis", -1)?, order: a.integer_or("order", 2)? }))
    }),
    new_form("lrn", "lrn:shape=1x96x55x55,k=5,alpha=0.0001,beta=0.75,bias=1", |a| {
        let (alpha, beta, bias) = (a.number_or("alpha", 1e-4)?, a.number_or("beta", 0.75)?, a.number_or("bias", 1.0)?);
        make_one_tensor(a, Op::Lrn(Lrn { size: a.integer("k")?, alpha, beta, bias }))
    }),
    new_form("batch_norm", "batch_norm:shape=1x64x56x56", batch_norm),
    new_form("scale_shift", "scale_shift:shape=1x64x56x56", |a| {
        per_channel(a, 2, |axis| Op::ScaleShift(ScaleShift { axis }))
    }),
    new_form("bias_add", "bias_add:shape=1x64x56x56", |a| per_channel(a, 1, |axis| Op::BiasAdd(BiasAdd { axis }))),
    new_form("max_pool1d", "max_pool1d:c=64,size=100,k=2,s=2", |a| make_pool(a, PoolMode::Max, 1)),
    new_form("max_pool2d", "max_pool2d:c=64,hw=112,k=3,s=2,p=1", |a| make_pool(a, PoolMode::Max, 2)),
    new_form("max_pool3d", "max_pool3d:c=64,hw=28,k=2,s=2", |a| make_pool(a, PoolMode::Max, 3)),
    new_form("avg_pool1d", "avg_pool1d:c=64,size=100,k=2,s=2", |a| make_pool(a, PoolMode::Average, 1)),
    new_form("avg_pool2d", "avg_pool2d:c=64,hw=56,k=2,s=2", |a| make_pool(a, PoolMode::Average, 2)),
    new_form("avg_pool3d", "avg_pool3d:c=64,hw=28,k=2,s=2", |a| make_pool(a, PoolMode::Average, 3)),
    new_form("global_max_pool", "global_max_pool:shape=1x512x7x7", |a| global_pool(a, PoolMode::Max)),
    new_form("global_avg_pool", "global_avg_pool:shape=1x512x7x7", |a| global_pool(a, PoolMode::Average)),
    new_form("lp_pool2d", "lp_pool2d:c=64,hw=56,k=2,s=2,order=2", |a| make_pool(a, lp_mode(a)?, 2)),
    new_form("global_lp_pool", "global_lp_pool:shape=1x512x7x7,order=2", |a| global_pool(a, lp_mode(a)?)),
    new_form("adaptive_avg_pool", "adaptive_avg_pool:shape=1x512x10x10,to=7x7", |a| {
        make_adaptive(a, PoolMode::Average)
    }),
    new_form("adaptive_max_pool", "adaptive_max_pool:shape=1x512x10x10,to=7x7", |a| make_adaptive(a, PoolMode::Max)),
    new_form("relu", "relu:shape=1x64x56x56", |a| make_unary(a, UnaryOp::Relu)),
    new_form("leaky_relu", "leaky_relu:shape=1x64x56x56,alpha=0.1", |a| {
        make_unary(a, UnaryOp::LeakyRelu { alpha: a.number_or("alpha", 0.01)? })
    }),
    new_form("sigmoid", "sigmoid:shape=1x64x56x56", |a| make_unary(a, UnaryOp::Sigmoid)),
    new_form("hard_sigmoid", "hard_sigmoid:shape=1x64x56x56", |a| make_unary(a, UnaryOp::HardSigmoid)),
    new_form("tanh", "tanh:shape=1x64x56x56", |a| make_unary(a, UnaryOp::Tanh)),
    new_form("silu", "silu:shape=1x64x56x56", |a| make_unary(a, UnaryOp::Silu)),
    new_form("hard_swish", "hard_swish:shape=1x64x56x56", |a| make_unary(a, UnaryOp::HardSwish)),
    new_form("gelu", "gelu:shape=1x128x3072", |a| make_unary(a, UnaryOp::Gelu)),
    new_form("exp", "exp:shape=1x1000", |a| make_unary(a, UnaryOp::Exp)),
    new_form("log", "log:shape=1x1000", |a| make_unary(a, UnaryOp::Log)),
    new_form("sqrt", "sqrt:shape=1x1000", |a| make_unary(a, UnaryOp::Sqrt)),
    new_form("neg", "neg:shape=1x1000", |a| make_unary(a, UnaryOp::Neg)),
    new_form("abs", "abs:shape=1x1000", |a| make_unary(a, UnaryOp::Abs)),
    new_form("sin", "sin:shape=1x1000", |a| make_unary(a, UnaryOp::Sin)),
    new_form("cos", "cos:shape=1x1000", |a| make_unary(a, UnaryOp::Cos)),
    new_form("tan", "tan:shape=1x1000", |a| make_unary(a, UnaryOp::Tan)),
    new_form("asin", "asin:shape=1x1000", |a| make_unary(a, UnaryOp::Asin)),
    new_form("acos", "acos:shape=1x1000", |a| make_unary(a, UnaryOp::Acos)),
    new_form("atan", "atan:shape=1x1000", |a| make_unary(a, UnaryOp::Atan)),
    new_form("sinh", "sinh:shape=1x1000", |a| make_unary(a, UnaryOp::Sinh)),
    new_form("cosh", "cosh:shape=1x1000", |a| make_unary(a, UnaryOp::Cosh)),
    new_form("asinh", "asinh:shape=1x1000", |a| make_unary(a, UnaryOp::Asinh)),
    new_form("acosh", "acosh:shape=1x1000", |a| make_unary(a, UnaryOp::Acosh)),
    new_form("atanh", "atanh:shape=1x1000", |a| make_unary(a, UnaryOp::Atanh)),
    new_form("erf", "erf:shape=1x1000", |a| make_unary(a, UnaryOp::Erf)),
    new_form("exp2", "exp2:shape=1x1000", |a| make_unary(a, UnaryOp::Exp2)),
    new_form("expm1", "expm1:shape=1x1000", |a| make_unary(a, UnaryOp::Expm1)),
    new_form("log2", "log2:shape=1x1000", |a| make_unary(a, UnaryOp::Log2)),
    new_form("log10", "log10:shape=1x1000", |a| make_unary(a, UnaryOp::Log10)),
    new_form("log1p", "log1p:shape=1x1000", |a| make_unary(a, UnaryOp::Log1p)),
    new_form("rsqrt", "rsqrt:shape=1x1000", |a| make_unary(a, UnaryOp::Rsqrt)),
    new_form("reciprocal", "reciprocal:shape=1x1000", |a| make_unary(a, UnaryOp::Reciprocal)),
    new_form("square", "square:shape=1x1000", |a| make_unary(a, UnaryOp::Square)),
    new_form("floor", "floor:shape=1x1000", |a| make_unary(a, UnaryOp::Floor)),
    new_form("ceil", "ceil:shape=1x1000", |a| make_unary(a, UnaryOp::Ceil)),
    new_form("round", "round:shape=1x1000", |a| make_unary(a, UnaryOp::Round)),
    new_form("trunc", "trunc:shape=1x1000", |a| make_unary(a, UnaryOp::Trunc)),
    new_form("sign", "sign:shape=1x1000", |a| make_unary(a, UnaryOp::Sign)),
    new_form("selu", "selu:shape=1x1000", |a| make_unary(a, UnaryOp::Selu)),
    new_form("softplus", "softplus:shape=1x1000", |a| make_unary(a, UnaryOp::Softplus)),
    new_form("softsign", "softsign:shape=1x1000", |a| make_unary(a, UnaryOp::Softsign)),
    new_form("mish", "mish:shape=1x1000", |a| make_unary(a, UnaryOp::Mish)),
    new_form("gelu_tanh", "gelu_tanh:shape=1x1000", |a| make_unary(a, UnaryOp::GeluTanh)),
    new_form("is_nan", "is_nan:shape=1x1000", |a| make_unary(a, UnaryOp::IsNan)),
    new_form("elu", "elu:shape=1x1000,alpha=1", |a| make_unary(a, UnaryOp::Elu { alpha: a.number_or("alpha", 1.0)? })),
    new_form("celu", "celu:shape=1x1000,alpha=1", |a| {
        make_unary(a, UnaryOp::Celu { alpha: a.number_or("alpha", 1.0)? })
    }),
    new_form("swish", "swish:shape=1x1000,beta=1.702", |a| {
        make_unary(a, UnaryOp::Swish { beta: a.number_or("beta", 1.0)? })
    }),
    new_form("hard_sigmoid_of", "hard_sigmoid_of:shape=1x1000,slope=0.2,offset=0.5", |a| {
        let (slope, offset) = (a.number_or("slope", 0.2)?, a.number_or("offset", 0.5)?);
        make_unary(a, UnaryOp::HardSigmoidOf { slope, offset })
    }),
    new_form("thresholded_relu", "thresholded_relu:shape=1x1000,alpha=1", |a| {
        make_unary(a, UnaryOp::ThresholdedRelu { alpha: a.number_or("alpha", 1.0)? })
    }),
    new_form("shrink", "shrink:shape=1x1000,lambda=0.5,bias=0", |a| {
        make_unary(a, UnaryOp::Shrink { lambda: a.number_or("lambda", 0.5)?, bias: a.number_or("bias", 0.0)? })
    }),
    new_form("is_inf", "is_inf:shape=1x1000", |a| make_unary(a, UnaryOp::IsInf { negative: true, positive: true })),
    new_form("not", "not:shape=1x1000,dtype=bool", |a| make_unary(a, UnaryOp::Not)),
    new_form("bit_not", "bit_not:shape=1x1000,dtype=i32", |a| make_unary(a, UnaryOp::BitNot)),
    new_form("clip", "clip:shape=1x32x112x112,low=0,high=6", make_clip),
    new_form("add", "add:shape=1x64x56x56,other=64x1x1", |a| make_binary(a, BinaryOp::Add)),
    new_form("sub", "sub:shape=1x64x56x56", |a| make_binary(a, BinaryOp::Sub)),
    new_form("mul", "mul:shape=1x64x56x56,other=1x64x1x1", |a| make_binary(a, BinaryOp::Mul)),
    new_form("div", "div:shape=1x64x56x56", |a| make_binary(a, BinaryOp::Div)),
    new_form("max", "max:shape=1x64x56x56", |a| make_binary(a, BinaryOp::Max)),
    new_form("min", "min:shape=1x64x56x56", |a| make_binary(a, BinaryOp::Min)),
    new_form("pow", "pow:shape=1x64x56x56", |a| make_binary(a, BinaryOp::Pow)),
    new_form("mod", "mod:shape=1x64x56x56", |a| make_binary(a, BinaryOp::Mod)),
    new_form("fmod", "fmod:shape=1x64x56x56", |a| make_binary(a, BinaryOp::Fmod)),
    new_form("floor_div", "floor_div:shape=1x64x56x56,dtype=i32", |a| make_binary(a, BinaryOp::FloorDiv)),
    new_form("bit_and", "bit_and:shape=1x64x56x56,dtype=i32", |a| make_binary(a, BinaryOp::BitAnd)),
    new_form("bit_or", "bit_or:shape=1x64x56x56,dtype=i32", |a| make_binary(a, BinaryOp::BitOr)),
    new_form("bit_xor", "bit_xor:shape=1x64x56x56,dtype=i32", |a| make_binary(a, BinaryOp::BitXor)),
    new_form("shift_left", "shift_left:shape=1x64x56x56,dtype=i32", |a| make_binary(a, BinaryOp::ShiftLeft)),
    new_form("shift_right", "shift_right:shape=1x64x56x56,dtype=i32", |a| make_binary(a, BinaryOp::ShiftRight)),
    new_form("and", "and:shape=1x64x56x56,dtype=bool", |a| make_binary(a, BinaryOp::And)),
    new_form("or", "or:shape=1x64x56x56,dtype=bool", |a| make_binary(a, BinaryOp::Or)),
    new_form("xor", "xor:shape=1x64x56x56,dtype=bool", |a| make_binary(a, BinaryOp::Xor)),
    new_form("equal", "equal:shape=1x64x56x56", |a| {
        make_two_tensor(a, Op::Compare(Compare { function: CompareOp::Equal }))
    }),
    new_form("not_equal", "not_equal:shape=1x64x56x56", |a| {
        make_two_tensor(a, Op::Compare(Compare { function: CompareOp::NotEqual }))
    }),
    new_form("less", "less:shape=1x64x56x56", |a| {
        make_two_tensor(a, Op::Compare(Compare { function: CompareOp::Less }))
    }),
    new_form("less_or_equal", "less_or_equal:shape=1x64x56x56", |a| {
        make_two_tensor(a, Op::Compare(Compare { function: CompareOp::LessOrEqual }))
    }),
    new_form("greater", "greater:shape=1x64x56x56", |a| {
        make_two_tensor(a, Op::Compare(Compare { function: CompareOp::Greater }))
    }),
    new_form("greater_or_equal", "greater_or_equal:shape=1x64x56x56", |a| {
        make_two_tensor(a, Op::Compare(Compare { function: CompareOp::GreaterOrEqual }))
    }),
    new_form("where", "where:shape=1x12x128x128,other=128x128", make_where),
    new_form("p_relu", "p_relu:shape=1x64x56x56", p_relu),
    new_form("reduce_sum", "reduce_sum:shape=1x64x56x56,axes=2x3,keep=1", |a| make_reduce(a, ReduceOp::Sum)),
    new_form("reduce_mean", "reduce_mean:shape=1x64x56x56,axes=2x3,keep=1", |a| make_reduce(a, ReduceOp::Mean)),
    new_form("reduce_max", "reduce_max:shape=1x64x56x56,axes=2x3,keep=1", |a| make_reduce(a, ReduceOp::Max)),
    new_form("reduce_min", "reduce_min:shape=1x64x56x56,axes=2x3,keep=1", |a| make_reduce(a, ReduceOp::Min)),
    new_form("reduce_prod", "reduce_prod:shape=1x64x56x56,axes=2x3,keep=1", |a| make_reduce(a, ReduceOp::Prod)),
    new_form("reduce_l1", "reduce_l1:shape=1x64x56x56,axes=2x3,keep=1", |a| make_reduce(a, ReduceOp::L1)),
    new_form("reduce_l2", "reduce_l2:shape=1x64x56x56,axes=2x3,keep=1", |a| make_reduce(a, ReduceOp::L2)),
    new_form("reduce_log_sum", "reduce_log_sum:shape=1x64x56x56,axes=2x3,keep=1", |a| make_reduce(a, ReduceOp::LogSum)),
    new_form("reduce_log_sum_exp", "reduce_log_sum_exp:shape=1x64x56x56,axes=2x3,keep=1", |a| {
        make_reduce(a, ReduceOp::LogSumExp)
    }),
    new_form("reduce_sum_square", "reduce_sum_square:shape=1x64x56x56,axes=2x3,keep=1", |a| {
        make_reduce(a, ReduceOp::SumSquare)
    }),
    new_form("arg_max", "arg_max:shape=1x1000,axis=1", |a| arg_reduce(a, true)),
    new_form("arg_min", "arg_min:shape=1x1000,axis=1", |a| arg_reduce(a, false)),
    new_form("arg_top", "arg_top:shape=1x1000,axis=1,count=5", |a| {
        let (count, axis) = (a.integer("count")?, a.integer_or("axis", -1)?);
        make_one_tensor(a, Op::ArgTop(ArgTop { count, axis, largest: !a.is_set("smallest")? }))
    }),
    new_form("cum_sum", "cum_sum:shape=8x256,axis=1", |a| {
        let (exclusive, reverse) = (a.is_set("exclusive")?, a.is_set("reverse")?);
        make_one_tensor(a, Op::CumSum(CumSum { axis: a.integer_or("axis", -1)?, exclusive, reverse }))
    }),
    new_form("cast", "cast:shape=1x1000,dtype=f32,to=f16", |a| {
        make_one_tensor(a, Op::Cast(Cast { to: a.dtype("to")? }))
    }),
    new_form("transpose", "transpose:shape=1x128x12x64,order=0x2x1x3", |a| {
        make_one_tensor(a, Op::Transpose(Transpose { permutation: a.integers("order")? }))
    }),
    new_form("concat", "concat:shape=1x64x28x28,other=1x32x28x28,axis=1", make_concat),
    new_form("slice", "slice:shape=1x116x28x28,axes=1,from=0,to=58", make_slice),
    new_form("resize_nearest", "resize_nearest:shape=1x128x13x13,to=26x26", |a| make_resize(a, ResizeMode::Nearest)),
    new_form("resize_linear", "resize_linear:shape=1x64x56x56,to=112x112", |a| make_resize(a, ResizeMode::Linear)),
    new_form("resize_linear_aligned", "resize_linear_aligned:shape=1x64x56x56,to=112x112", |a| {
        make_resize(a, ResizeMode::LinearAligned)
    }),
    new_form("pad", "pad:shape=1x3x224x224,p=0x0x3x3,value=0", make_pad),
    new_form("reflect_pad", "reflect_pad:shape=1x3x224x224,p=0x0x3x3", |a| border_pad(a, Border::Reflect)),
    new_form("edge_pad", "edge_pad:shape=1x3x224x224,p=0x0x3x3", |a| border_pad(a, Border::Edge)),
    new_form("wrap_pad", "wrap_pad:shape=1x3x224x224,p=0x0x3x3", |a| border_pad(a, Border::Wrap)),
    new_form("expand", "expand:shape=1x64x1x1,to=1x64x56x56", |a| {
        make_one_tensor(a, Op::Expand(Expand { shape: a.integers("to")? }))
    }),
    new_form("tile", "tile:shape=1x64x28,times=1x1x2", |a| {
        make_one_tensor(a, Op::Tile(Tile { repeats: a.integers("times")? }))
    }),
    new_form("gather", "gather:shape=30522x768,at=1x128,axis=0", |a| {
        make_indexed(a, Op::Gather(Gather { axis: a.integer_or("axis", 0)? }), None)
    }),
    new_form("gather_elements", "gather_elements:shape=8x100,at=8x10,axis=1", |a| {
        make_indexed(a, Op::GatherElements(GatherElements { axis: a.integer_or("axis", 0)? }), None)
    }),
    new_form("gather_nd", "gather_nd:shape=64x64x32,at=100x2", |a| {
        make_indexed(a, Op::GatherNd(GatherNd { batch: a.integer_or("batch", 0)? }), None)
    }),
    new_form("scatter_elements", "scatter_elements:shape=8x100,at=8x10,axis=1", |a| {
        let op = Op::ScatterElements(ScatterElements { axis: a.integer_or("axis", 0)?, combine: parse_combine(a)? });
        make_indexed(a, op, Some(a.integers("at")?))
    }),
    new_form("scatter_nd", "scatter_nd:shape=64x64x32,at=10x2,combine=add", scatter_nd),
    new_form("one_hot", "one_hot:shape=1x128,depth=1000", one_hot),
    new_form("trilu", "trilu:shape=128x128,upper=1", |a| {
        make_one_tensor(a, Op::Trilu(Trilu { upper: a.is_set("upper")?, diagonal: a.integer_or("diagonal", 0)? }))
    }),
    new_form("quantize", "quantize:shape=1x64x56x56,to=u8", make_quantize),
    new_form("dequantize", "dequantize:shape=1x64x56x56,from=u8", make_dequantize),
    new_form("requantize", "requantize:shape=1x64x56x56,to=u8,zero=3", make_requantize),
];

const fn new_form(name: &'static str, example: &'static str, make: fn(&Arguments) -> FormResult) -> Form {
    Form { name, example, make }
}

fn make_conv(a: &Arguments, rank: usize) -> FormResult {
    let (channels_in, groups) = (a.integer("ci")?, a.integer_or("g", 1)?);
    let per_group = channels_in.checked_div(groups).ok_or("`g` must not be 0")?;
    conv_of(a, rank, channels_in, a.integer("co")?, per_group, groups)
}

fn make_depthwise(a: &Arguments) -> FormResult {
    let channels = a.integer("c")?;
    conv_of(a, 2, channels, channels, 1, channels)
}

fn conv_of(a: &Arguments, rank: usize, channels_in: i64, channels_out: i64, per_group: i64, groups: i64) -> FormResult {
    let op = Op::Conv(Conv {
        strides: a.per_axis("s", rank, Some(1))?,
        pads: a.pads("p", rank)?,
        dilations: a.per_axis("d", rank, Some(1))?,
        groups,
    });
    let x = [vec![a.integer_or("n", 1)?, channels_in], spatial_extents(a, rank)?].concat();
    let w = [vec![channels_out, per_group], a.per_axis("k", rank, None)?].concat();
    let dtype = a.dtype("dtype")?;
    with_epilogue(a, op, vec![TensorType::new(dtype, &x), TensorType::new(dtype, &w)], 1)
}

fn conv_transpose(a: &Arguments, rank: usize) -> FormResult {
    let (channels_in, channels_out, groups) = (a.integer("ci")?, a.integer("co")?, a.integer_or("g", 1)?);
    let op = Op::ConvTranspose(ConvTranspose {
        strides: a.per_axis("s", rank, Some(1))?,
        pads: a.pads("p", rank)?,
        output_pads: a.per_axis("op", rank, Some(0))?,
        dilations: a.per_axis("d", rank, Some(1))?,
        groups,
    });
    let per_group = channels_out.checked_div(groups).ok_or("`g` must not be 0")?;
    let x = [vec![a.integer_or("n", 1)?, channels_in], spatial_extents(a, rank)?].concat();
    let w = [vec![channels_in, per_group], a.per_axis("k", rank, None)?].concat();
    let dtype = a.dtype("dtype")?;
    with_epilogue(a, op, vec![TensorType::new(dtype, &x), TensorType::new(dtype, &w)], 1)
}

fn make_dense(a: &Arguments) -> FormResult {
    let (m, n, k, dtype) = (a.integer_or("m", 1)?, a.integer("n")?, a.integer("k")?, a.dtype("dtype")?);
    with_epilogue(a, Op::Dense(Dense {}), vec![TensorType::new(dtype, &[m, k]), TensorType::new(dtype, &[n, k])], -1)
}

fn mat_mul(a: &Arguments) -> FormResult {
    let (m, n, k, dtype) = (a.integer("m")?, a.integer("n")?, a.integer("k")?, a.dtype("dtype")?);
    let (transpose_a, transpose_b) = (a.is_set("ta")?, a.is_set("tb")?);
    let batch = if a.has_key("b") { a.integers("b")? } else { vec![] };
    let matrix = |rows, columns, is_transposed| {
        let extents = if is_transposed { vec![columns, rows] } else { vec![rows, columns] };
        TensorType::new(dtype, &[batch.clone(), extents].concat())
    };
    let inputs = vec![matrix(m, k, transpose_a), matrix(k, n, transpose_b)];
    with_epilogue(a, Op::MatMul(MatMul { transpose_a, transpose_b }), inputs, -1)
}

fn with_epilogue(a: &Arguments, op: Op, inputs: Vec<TensorType>, axis: i64) -> FormResult {
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

/// Builds an einsum. The equation separates operands by `;`, because commas separate pairs here.
fn make_einsum(a: &Arguments) -> FormResult {
    let equation = a.find_text("equation").ok_or("`equation` is missing")?.replace(';', ",");
    let (x, dtype) = (a.integers("shape")?, a.dtype("dtype")?);
    let mut inputs = vec![TensorType::new(dtype, &x)];
    if a.has_key("other") {
        inputs.push(TensorType::new(dtype, &a.integers("other")?));
    }
    plain_parts(Op::Einsum(Einsum { equation }), inputs)
}

/// Attention: `h` query heads, `g` key heads, `s` queries, `t` keys, widths `d` (queries, keys) and `e` (values).
fn make_attention(a: &Arguments) -> FormResult {
    let (batch, heads, rows, width) = (a.integer_or("b", 1)?, a.integer("h")?, a.integer("s")?, a.integer("d")?);
    let (kept, places) = (a.integer_or("g", heads)?, a.integer_or("t", rows)?);
    let op = Op::Attention(Attention {
        causal: a.is_set("causal")?,
        scale: a.number_or("scale", 1.0 / (width.max(1) as f64).sqrt())?,
        window: if a.has_key("window") { Some(a.integer("window")?) } else { None },
        softcap: if a.has_key("softcap") { Some(a.number_or("softcap", 0.0)?) } else { None },
    });
    let dtype = a.dtype("dtype")?;
    let ty = |heads, places, width| TensorType::new(dtype, &[batch, heads, places, width]);
    let mut inputs = vec![ty(heads, rows, width), ty(kept, places, width), ty(kept, places, a.integer_or("e", width)?)];
    if a.has_key("mask") {
        inputs.push(TensorType::new(dtype, &a.integers("mask")?));
    }
    plain_parts(op, inputs)
}

fn make_rope(a: &Arguments) -> FormResult {
    let (x, dtype) = (a.integers("shape")?, a.dtype("dtype")?);
    let width = x[index_of(-1, &x)?];
    let rotary = a.integer_or("rotary", width)?;
    let mut angles = x[x.len().saturating_sub(2)..].to_vec();
    *angles.last_mut().ok_or("`shape` needs at least one number")? = rotary / 2;
    let angles = TensorType::new(dtype, &angles);
    plain_parts(
        Op::Rope(Rope { rotary, interleaved: a.is_set("interleaved")? }),
        vec![TensorType::new(dtype, &x), angles.clone(), angles],
    )
}

fn q_conv(a: &Arguments) -> FormResult {
    let TextParts { op, inputs, .. } = make_conv(a, 2)?;
    let Op::Conv(Conv { strides, pads, dilations, groups }) = op else { unreachable!("the operator is a convolution") };
    let op = Op::QConv(QConv {
        strides,
        pads,
        dilations,
        groups,
        x_zero: a.integer_or("xz", 0)?,
        w_zero: a.integer_or("wz", 0)?,
    });
    let types = [dtype_or(a, "x", DType::U8)?, dtype_or(a, "w", DType::I8)?];
    let inputs = inputs.into_iter().zip(types).map(|(ty, dtype)| TensorType { dtype, shape: ty.shape });
    plain_parts(op, inputs.collect())
}

fn q_product(a: &Arguments, op: Op, weight: [i64; 2]) -> FormResult {
    let x = TensorType::new(dtype_or(a, "x", DType::U8)?, &[a.integer_or("m", 1)?, a.integer("k")?]);
    plain_parts(op, vec![x, TensorType::new(dtype_or(a, "w", DType::I8)?, &weight)])
}

fn dtype_or(a: &Arguments, key: &'static str, default: DType) -> Result<DType, String> {
    if a.has_key(key) { a.dtype(key) } else { Ok(default) }
}

fn make_quantize(a: &Arguments) -> FormResult {
    let (x, to) = (a.integers("shape")?, dtype_or(a, "to", DType::U8)?);
    let (axis, scale) = scale_shape(a, &x)?;
    let dtype = a.dtype("dtype")?;
    let inputs = vec![TensorType::new(dtype, &x), TensorType::new(dtype, &scale), TensorType::new(to, &scale)];
    plain_parts(Op::Quantize(Quantize { to, axis }), inputs)
}

fn make_dequantize(a: &Arguments) -> FormResult {
    let (x, from) = (a.integers("shape")?, dtype_or(a, "from", DType::U8)?);
    let (axis, scale) = scale_shape(a, &x)?;
    let scales = [TensorType::new(a.dtype("dtype")?, &scale), TensorType::new(from, &scale)];
    plain_parts(Op::Dequantize(Dequantize { axis }), [vec![TensorType::new(from, &x)], scales.to_vec()].concat())
}

fn make_requantize(a: &Arguments) -> FormResult {
    let (x, to) = (a.integers("shape")?, dtype_or(a, "to", DType::U8)?);
    let (axis, scale) = scale_shape(a, &x)?;
    let (low, high) = to.integer_range().ok_or_else(|| format!("`to={to}` is not an integer type of up to 32 bits"))?;
    let (low, high) = (a.integer_or("low", low)?, a.integer_or("high", high)?);
    let op = Op::Requantize(Requantize { to, axis, zero: a.integer_or("zero", 0)?, low, high });
    plain_parts(op, vec![TensorType::new(DType::I32, &x), TensorType::new(a.dtype("dtype")?, &scale)])
}

/// Returns axis and shape of the scale: one number for all elements, or one per index of `axis` if this key is set.
fn scale_shape(a: &Arguments, x: &[i64]) -> Result<(i64, Vec<i64>), String> {
    if !a.has_key("axis") {
        return Ok((0, vec![]));
    }
    let axis = a.integer("axis")?;
    Ok((axis, vec![x[index_of(axis, x)?]]))
}

fn make_where(a: &Arguments) -> FormResult {
    let TextParts { op, mut inputs, .. } = make_two_tensor(a, Op::Where(Where {}))?;
    inputs.insert(0, TensorType { dtype: DType::Bool, shape: inputs[0].shape.clone() });
    plain_parts(op, inputs)
}

/// Builds a PReLU, by default with one slope per channel.
fn p_relu(a: &Arguments) -> FormResult {
    let (x, dtype) = (a.integers("shape")?, a.dtype("dtype")?);
    let slope = if a.has_key("slope") {
        a.integers("slope")?
    } else {
        let channels = index_of(1, &x)?;
        [vec![x[channels]], vec![1; x.len() - 2]].concat()
    };
    plain_parts(Op::PRelu(PRelu {}), vec![TensorType::new(dtype, &x), TensorType::new(dtype, &slope)])
}

fn make_reduce(a: &Arguments, function: ReduceOp) -> FormResult {
    make_one_tensor(a, Op::Reduce(Reduce { function, axes: a.integers("axes")?, keep: a.is_set("keep")? }))
}

fn arg_reduce(a: &Arguments, largest: bool) -> FormResult {
    let (axis, keep, last) = (a.integer_or("axis", -1)?, a.is_set("keep")?, a.is_set("last")?);
    make_one_tensor(a, Op::ArgReduce(ArgReduce { largest, axis, keep, last }))
}

fn make_indexed(a: &Arguments, op: Op, updates: Option<Vec<i64>>) -> FormResult {
    let (x, dtype) = (a.integers("shape")?, a.dtype("dtype")?);
    let at = TensorType::new(dtype_or(a, "index", DType::I64)?, &a.integers("at")?);
    let updates = updates.map(|extents| TensorType::new(dtype, &extents));
    plain_parts(op, [TensorType::new(dtype, &x), at].into_iter().chain(updates).collect())
}

fn scatter_nd(a: &Arguments) -> FormResult {
    let (x, at) = (a.integers("shape")?, a.integers("at")?);
    let (looked_up, tuples) = at.split_last().ok_or("`at` needs at least one number")?;
    let looked_up = usize::try_from(*looked_up).unwrap_or(usize::MAX);
    let inner = x.get(looked_up..).ok_or_else(|| format!("`at` indexes {looked_up} of only {} dimensions", x.len()))?;
    make_indexed(a, Op::ScatterNd(ScatterNd { combine: parse_combine(a)? }), Some([tuples, inner].concat()))
}

fn parse_combine(a: &Arguments) -> Result<ScatterOp, String> {
    let known = [
        ("replace", ScatterOp::Replace),
        ("add", ScatterOp::Add),
        ("mul", ScatterOp::Mul),
        ("max", ScatterOp::Max),
        ("min", ScatterOp::Min),
    ];
    Ok(a.one_of("combine", &known)?.unwrap_or(ScatterOp::Replace))
}

fn one_hot(a: &Arguments) -> FormResult {
    let (on, off) = (a.number_or("on", 1.0)?, a.number_or("off", 0.0)?);
    let op =
        Op::OneHot(OneHot { axis: a.integer_or("axis", -1)?, depth: a.integer("depth")?, on, off, to: a.dtype("to")? });
    plain_parts(op, vec![TensorType::new(dtype_or(a, "index", DType::I64)?, &a.integers("shape")?)])
}

fn border_pad(a: &Arguments, border: Border) -> FormResult {
    let rank = a.integers("shape")?.len();
    make_one_tensor(a, Op::BorderPad(BorderPad { border, pads: a.pads("p", rank)? }))
}

fn rms_norm(a: &Arguments) -> FormResult {
    let (x, dtype) = (a.integers("shape")?, a.dtype("dtype")?);
    let axis = a.integer_or("axis", -1)?;
    let scale = TensorType::new(dtype, &x[index_of(axis, &x)?..]);
    plain_parts(
        Op::RmsNorm(RmsNorm { axis, epsilon: a.number_or("epsilon", 1e-6)? }),
        vec![TensorType::new(dtype, &x), scale],
    )
}

fn group_norm(a: &Arguments, groups: i64) -> FormResult {
    make_with_vectors(a, Op::GroupNorm(GroupNorm { groups, epsilon: a.number_or("epsilon", 1e-5)? }), 1, 2)
}

fn lp_mode(a: &Arguments) -> Result<PoolMode, String> {
    Ok(PoolMode::Lp { order: a.integer_or("order", 2)? })
}

fn make_adaptive(a: &Arguments, mode: PoolMode) -> FormResult {
    make_one_tensor(a, Op::AdaptivePool(AdaptivePool { mode, extents: a.integers("to")? }))
}

fn make_softmax(a: &Arguments, log: bool) -> FormResult {
    make_one_tensor(a, Op::Softmax(Softmax { axis: a.integer_or("axis", -1)?, log }))
}

fn layer_norm(a: &Arguments) -> FormResult {
    let (x, dtype) = (a.integers("shape")?, a.dtype("dtype")?);
    let axis = a.integer_or("axis", -1)?;
    let vector = TensorType::new(dtype, &x[index_of(axis, &x)?..]);
    let op = Op::LayerNorm(LayerNorm { axis, epsilon: a.number_or("epsilon", 1e-5)? });
    plain_parts(op, vec![TensorType::new(dtype, &x), vector.clone(), vector])
}

fn make_slice(a: &Arguments) -> FormResult {
    let axes = a.integers("axes")?;
    let steps = if a.has_key("step") { a.integers("step")? } else { vec![1; axes.len()] };
    make_one_tensor(a, Op::Slice(Slice { axes, starts: a.integers("from")?, stops: a.integers("to")?, steps }))
}

fn make_resize(a: &Arguments, mode: ResizeMode) -> FormResult {
    make_one_tensor(a, Op::Resize(Resize { mode, extents: a.integers("to")? }))
}

fn batch_norm(a: &Arguments) -> FormResult {
    let epsilon = a.number_or("epsilon", 1e-5)?;
    make_with_vectors(a, Op::BatchNorm(BatchNorm { epsilon }), 1, 4)
}

fn per_channel(a: &Arguments, count: usize, op: fn(i64) -> Op) -> FormResult {
    let axis = a.integer_or("axis", 1)?;
    make_with_vectors(a, op(axis), axis, count)
}

fn make_with_vectors(a: &Arguments, op: Op, axis: i64, count: usize) -> FormResult {
    let (x, dtype) = (a.integers("shape")?, a.dtype("dtype")?);
    let channels = x[index_of(axis, &x)?];
    let mut inputs = vec![TensorType::new(dtype, &x)];
    inputs.resize(1 + count, TensorType::new(dtype, &[channels]));
    plain_parts(op, inputs)
}

fn index_of(axis: i64, extents: &[i64]) -> Result<usize, String> {
    let index = if axis < 0 { axis.checked_add_unsigned(extents.len() as u64) } else { Some(axis) };
    let index = index.and_then(|index| usize::try_from(index).ok()).filter(|&index| index < extents.len());
    index.ok_or_else(|| format!("`shape` has no dimension {axis}"))
}

fn make_pool(a: &Arguments, mode: PoolMode, rank: usize) -> FormResult {
    let kernel = a.per_axis("k", rank, None)?;
    let op = Op::Pool(Pool {
        mode,
        strides: if a.has_key("s") { a.per_axis("s", rank, None)? } else { kernel.clone() },
        kernel,
        pads: a.pads("p", rank)?,
        dilations: a.per_axis("d", rank, Some(1))?,
        ceil: a.is_set("ceil")?,
        count_pad: mode == PoolMode::Average && a.is_set("count_pad")?,
    });
    let x = [vec![a.integer_or("n", 1)?, a.integer("c")?], spatial_extents(a, rank)?].concat();
    plain_parts(op, vec![TensorType::new(a.dtype("dtype")?, &x)])
}

fn global_pool(a: &Arguments, mode: PoolMode) -> FormResult {
    make_one_tensor(a, Op::GlobalPool(GlobalPool { mode }))
}

fn make_unary(a: &Arguments, function: UnaryOp) -> FormResult {
    make_one_tensor(a, Op::Unary(Unary { function }))
}

fn make_clip(a: &Arguments) -> FormResult {
    make_one_tensor(a, Op::Clip(Clip { low: a.number_or("low", 0.0)?, high: a.number_or("high", 6.0)? }))
}

fn make_binary(a: &Arguments, function: BinaryOp) -> FormResult {
    make_two_tensor(a, Op::Binary(Binary { function }))
}

fn make_concat(a: &Arguments) -> FormResult {
    make_two_tensor(a, Op::Concat(Concat { axis: a.integer_or("axis", 1)? }))
}

fn make_pad(a: &Arguments) -> FormResult {
    let rank = a.integers("shape")?.len();
    make_one_tensor(a, Op::Pad(Pad { pads: a.pads("p", rank)?, value: a.number_or("value", 0.0)? }))
}

/// Builds an operator on tensors of the shapes `shape` and `other`, which defaults to `shape`.
fn make_two_tensor(a: &Arguments, op: Op) -> FormResult {
    let (x, dtype) = (a.integers("shape")?, a.dtype("dtype")?);
    let other = if a.has_key("other") { a.integers("other")? } else { x.clone() };
    plain_parts(op, vec![TensorType::new(dtype, &x), TensorType::new(dtype, &other)])
}

fn make_one_tensor(a: &Arguments, op: Op) -> FormResult {
    let dtype: DType = a.dtype("dtype")?;
    plain_parts(op, vec![TensorType::new(dtype, &a.integers("shape")?)])
}

fn plain_parts(op: Op, inputs: Vec<TensorType>) -> FormResult {
    Ok(TextParts { op, inputs, bias_axis: None, activation: None })
}

fn spatial_extents(a: &Arguments, rank: usize) -> Result<Vec<i64>, String> {
    if rank == 2 && (a.has_key("h") || a.has_key("w")) {
        return match (a.has_key("h"), a.has_key("w"), a.has_key("hw") || a.has_key("size")) {
            (true, true, false) => Ok(vec![a.integer("h")?, a.integer("w")?]),
            (_, _, true) => Err("`h` and `w` cannot be combined with `hw` or `size`; give one of them".to_owned()),
            _ => Err("`h` and `w` must both be given; `hw=56` sets both".to_owned()),
        };
    }
    match (a.has_key("hw"), a.has_key("size")) {
        (true, true) => Err("`hw` and `size` set the same extents; give one of them".to_owned()),
        (true, false) => Ok(vec![a.integer("hw")?; rank]),
        (false, true) => a.per_axis("size", rank, None),
        (false, false) => {
            let each = vec!["56"; rank].join("x");
            Err(format!(
                "`hw` is missing: one extent for all spatial axes (or `size` with one extent per axis, such as `size={each}`)"
            ))
        }
    }
}
