//! Every operator, each declared in a file of its own. The table below is the only list of operators, with examples;
//! `Op` dispatches to their declarations. Biases and activations are separate operators; a pass fuses them into an
//! anchor.

#![allow(missing_docs, reason = "fields are attributes, which the operator they belong to describes")]

mod adaptive_pool;
mod arg_reduce;
mod arg_top;
mod attention;
mod batch_norm;
mod bias_add;
mod binary;
mod border_pad;
mod cast;
mod clip;
mod compare;
mod concat;
mod conv;
mod conv_transpose;
mod counts;
mod cum_sum;
mod declaration;
mod dense;
mod dequantize;
mod einsum;
mod expand;
mod flatten;
mod functions;
mod gather;
mod gather_elements;
mod gather_nd;
mod global_pool;
mod group_norm;
mod identity;
mod layer_norm;
pub(crate) mod line;
mod lookup;
mod lp_norm;
mod lrn;
mod mat_mul;
mod mean_variance_norm;
mod one_hot;
mod p_relu;
mod pad;
mod pool;
mod prelude;
mod q_conv;
mod q_dense;
mod q_mat_mul;
mod quantised;
mod quantize;
mod reduce;
mod requantize;
mod reshape;
mod resize;
mod rms_norm;
mod rope;
mod scale_shift;
mod scatter_elements;
mod scatter_nd;
mod select;
mod slice;
mod softmax;
mod tile;
mod transpose;
mod trilu;
mod unary;
mod window;

pub use crate::pairs::AttentionMask;
pub use binary::BinaryOp;
pub use border_pad::Border;
pub use compare::CompareOp;
pub use counts::{Work, bytes_of, elements};
pub use declaration::{Class, Facts, Operator};
pub use lookup::ScatterOp;
pub use pool::PoolMode;
pub use reduce::ReduceOp;
pub use resize::ResizeMode;
pub use unary::UnaryOp;
pub use window::ConvWindow;

use serde::{Deserialize, Serialize};
use std::ops::{Deref, DerefMut};

macro_rules! operators {
    ($($file:ident::$name:ident: $($example:literal),+;)*) => {
        $(pub use $file::$name;)*

        /// One operator with its attributes. Spatial attributes have one entry per spatial dimension (1 to 3).
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "snake_case")]
        pub enum Op {
            $($name($name),)*
        }

        impl Deref for Op {
            type Target = dyn Operator;

            fn deref(&self) -> &(dyn Operator + 'static) {
                match self {
                    $(Op::$name(operator) => operator,)*
                }
            }
        }

        impl DerefMut for Op {
            fn deref_mut(&mut self) -> &mut (dyn Operator + 'static) {
                match self {
                    $(Op::$name(operator) => operator,)*
                }
            }
        }

        /// Example tasks of each operator, for tests.
        pub const EXAMPLES: &[(&str, &[&str])] = &[$((stringify!($name), &[$($example),+]),)*];
    };
}

operators! {
    conv::Conv: "conv(f32[1,4,8,8], const f32[6,2,3,3]) dilations=[1,1] groups=2 pads=[1,1,1,1] strides=[2,2]";
    conv_transpose::ConvTranspose:
        "conv_transpose(f32[1,4,5,5], const f32[4,3,3,3]) dilations=[1,1] groups=1 output_pads=[1,1] pads=[1,1,1,1] strides=[2,2]";
    mat_mul::MatMul: "mat_mul(f32[2,3,5], f32[2,5,4]) transpose_a=false transpose_b=false";
    dense::Dense: "dense(f32[3,5], const f32[4,5])";
    einsum::Einsum: "einsum(f32[2,3,5], f32[2,4,5]) equation=\"bqd,bkd->bqk\"";
    attention::Attention:
        "attention(f32[1,4,3,8], f32[1,2,5,8], f32[1,2,5,6]) causal=true scale=0.5 softcap=null window=null";
    q_conv::QConv:
        "q_conv(u8[1,4,8,8], const i8[6,4,3,3]) dilations=[1,1] groups=1 pads=[1,1,1,1] strides=[1,1] w_zero=1 x_zero=5";
    q_dense::QDense: "q_dense(u8[3,8], const i8[4,8]) w_zero=0 x_zero=5";
    q_mat_mul::QMatMul: "q_mat_mul(u8[3,5], i8[5,4]) a_zero=3 b_zero=0";
    batch_norm::BatchNorm:
        "batch_norm(f32[2,4,3,3], const f32[4], const f32[4], const f32[4], const f32[4]) epsilon=0.00001";
    scale_shift::ScaleShift: "scale_shift(f32[2,4,3,3], const f32[4], const f32[4]) axis=1";
    layer_norm::LayerNorm: "layer_norm(f32[2,3,8], const f32[8], const f32[8]) axis=2 epsilon=0.00001";
    softmax::Softmax: "softmax(f32[2,8]) axis=1 log=false", "softmax(f32[2,8]) axis=1 log=true";
    rms_norm::RmsNorm: "rms_norm(f32[2,3,8], const f32[8]) axis=2 epsilon=0.00001";
    group_norm::GroupNorm: "group_norm(f32[2,4,3,3], const f32[4], const f32[4]) epsilon=0.00001 groups=2";
    mean_variance_norm::MeanVarianceNorm: "mean_variance_norm(f32[2,4,3,3]) axes=[0,2,3] epsilon=1e-9";
    lp_norm::LpNorm: "lp_norm(f32[2,8]) axis=1 order=2";
    lrn::Lrn: "lrn(f32[1,6,3,3]) alpha=0.0001 beta=0.75 bias=1.0 size=5";
    pool::Pool:
        "pool(f32[1,4,7,7]) ceil=true count_pad=false dilations=[1,1] kernel=[3,3] mode=\"max\" pads=[1,1,1,1] strides=[2,2]",
        "pool(f32[1,4,7,7]) ceil=false count_pad=true dilations=[1,1] kernel=[3,3] mode=\"average\" pads=[1,1,1,1] strides=[2,2]";
    global_pool::GlobalPool: "global_pool(f32[1,4,5,5]) mode=\"average\"";
    adaptive_pool::AdaptivePool: "adaptive_pool(f32[1,4,10,10]) extents=[5,5] mode=\"average\"";
    reduce::Reduce:
        "reduce(f32[2,3,8]) axes=[1,2] function=\"sum\" keep=false",
        "reduce(f32[2,3,8]) axes=[2] function=\"log_sum_exp\" keep=true";
    arg_reduce::ArgReduce: "arg_reduce(f32[2,8]) axis=1 keep=false largest=true last=false";
    arg_top::ArgTop: "arg_top(f32[2,8]) axis=1 count=3 largest=true";
    cum_sum::CumSum: "cum_sum(f32[2,8]) axis=1 exclusive=false reverse=true";
    bias_add::BiasAdd: "bias_add(f32[2,4,3,3], const f32[4]) axis=1";
    unary::Unary: "unary(f32[2,8]) function=\"relu\"", "unary(f32[2,8]) function={\"leaky_relu\":{\"alpha\":0.1}}";
    clip::Clip: "clip(f32[2,8]) high=6.0 low=0.0";
    binary::Binary: "binary(f32[2,8], f32[8]) function=\"add\"";
    cast::Cast: "cast(f32[2,8]) to=\"f16\"";
    compare::Compare: "compare(f32[2,8], f32[8]) function=\"less\"";
    select::Where: "where(bool[2,8], f32[2,8], f32[8])";
    p_relu::PRelu: "p_relu(f32[1,4,3,3], const f32[4,1,1])";
    quantize::Quantize: "quantize(f32[2,8], const f32[], const u8[]) axis=0 to=\"u8\"";
    dequantize::Dequantize: "dequantize(i8[2,8], const f32[8], const i8[8]) axis=1";
    requantize::Requantize: "requantize(i32[2,8], const f32[8]) axis=1 high=255 low=0 to=\"u8\" zero=3";
    reshape::Reshape: "reshape(f32[2,3,4]) shape=[0,-1]";
    flatten::Flatten: "flatten(f32[2,3,4]) axis=1";
    transpose::Transpose: "transpose(f32[2,3,4]) permutation=[2,0,1]";
    concat::Concat: "concat(f32[2,3], f32[2,5]) axis=1";
    pad::Pad: "pad(f32[2,3]) pads=[0,1,0,2] value=0.5";
    border_pad::BorderPad: "border_pad(f32[2,4]) border=\"reflect\" pads=[0,1,0,2]";
    slice::Slice: "slice(f32[4,6]) axes=[1] starts=[1] steps=[2] stops=[6]";
    expand::Expand: "expand(f32[2,1]) shape=[3,2,4]";
    tile::Tile: "tile(f32[2,3]) repeats=[2,1]";
    gather::Gather: "gather(const f32[10,4], i64[3]) axis=0";
    gather_elements::GatherElements: "gather_elements(f32[3,4], i64[2,4]) axis=0";
    gather_nd::GatherNd: "gather_nd(f32[3,4,5], i64[2,2]) batch=0";
    scatter_elements::ScatterElements: "scatter_elements(f32[3,4], i64[2,4], f32[2,4]) axis=0 combine=\"add\"";
    scatter_nd::ScatterNd: "scatter_nd(f32[4,3], i64[2,1], f32[2,3]) combine=\"replace\"";
    one_hot::OneHot: "one_hot(i64[3]) axis=1 depth=5 off=0.0 on=1.0 to=\"f32\"";
    trilu::Trilu: "trilu(f32[2,4,4]) diagonal=1 upper=true";
    rope::Rope: "rope(f32[1,2,3,8], const f32[3,4], const f32[3,4]) interleaved=false rotary=8";
    resize::Resize:
        "resize(f32[1,2,4,4]) extents=[8,6] mode=\"linear\"",
        "resize(f32[1,2,4,4]) extents=[8,8] mode=\"nearest\"";
    identity::Identity: "identity(f32[2,8])";
}

impl Op {
    pub fn with_front_axis(mut self, rank: usize) -> Op {
        self.count_axes_from_front(rank);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Task;

    #[test]
    fn examples_are_of_their_operator() {
        for (name, texts) in EXAMPLES {
            let kind = name.chars().fold(String::new(), |mut kind, letter| {
                if letter.is_uppercase() && !kind.is_empty() {
                    kind.push('_');
                }
                kind.extend(letter.to_lowercase());
                kind
            });
            assert!(!texts.is_empty(), "{name}");
            for text in *texts {
                let task = Task::from_text(text).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(text.starts_with(&format!("{kind}(")), "{name}: {text}");
                assert_eq!(&task.to_text(), text);
                assert!(
                    task.work().is_ok() && task.steps[0].op.arity().contains(&task.steps[0].inputs.len()),
                    "{text}"
                );
            }
        }
    }
}
