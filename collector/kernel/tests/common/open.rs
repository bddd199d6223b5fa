//! Tasks with the symbolic sizes `n` and `m`, and values of these sizes to test.

use models::Task;
use std::collections::BTreeMap;

pub const PRODUCTS: &[&str] = &[
    "dense(f32[n,48], const f32[40,48]) | bias_add(_, const f32[40]) axis=1 | unary(_) function=\"gelu\"",
    "dense(f32[n,m,48], const f32[21,48])",
    "mat_mul(f32[n,4,m,16], f32[n,4,m,16]) transpose_a=false transpose_b=true",
    "mat_mul(f32[4,m,n], f32[4,n,16]) transpose_a=false transpose_b=false",
    "conv(f32[n,3,9,9], const f32[8,3,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1",
    "q_conv(i8[n,3,9,9], const i8[8,3,3,3]) strides=[2,2] pads=[1,1,1,1] dilations=[1,1] groups=1 x_zero=3 w_zero=0",
    "q_conv(i8[n,4,4,4], const i8[8,4,1,1]) strides=[1,1] pads=[0,0,0,0] dilations=[1,1] groups=1 x_zero=3 w_zero=0",
    "q_dense(u8[n,24], const i8[40,24]) x_zero=7 w_zero=0 | requantize(_, const f32[]) axis=0 high=255 low=0 to=\"u8\" zero=3",
];

pub const ON_TENSOR_CORES: &[&str] = &[
    "mat_mul(f16[n,32,64], f16[n,64,32]) transpose_a=false transpose_b=false",
    "conv(f16[n,32,9,9], const f16[32,32,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1",
    "dense(f16[n,64], const f16[32,64])",
];

pub const ATTENTION: &[&str] = &[
    "attention(f32[n,4,m,16], f32[n,2,m,16], f32[n,2,m,16]) causal=true scale=0.25 window=null softcap=null",
    "attention(f32[2,4,1,16], f32[2,4,m,16], f32[2,4,m,16], f32[2,1,1,m]) causal=false scale=0.25 window=null softcap=null",
    "rope(f32[n,4,m,16], f32[m,8], f32[m,8]) rotary=16 interleaved=false",
];

pub const ROWS: &[&str] = &[
    "softmax(f32[4,n,m]) axis=2 log=false",
    "softmax(f32[n,4,m]) axis=1 log=true",
    "layer_norm(f32[n,m,40], const f32[40], const f32[40]) axis=2 epsilon=1e-5",
    "rms_norm(f32[n,m,40], const f32[40]) axis=2 epsilon=1e-5",
    "binary(f32[n,m,40], f32[m,1]) function=\"add\" | unary(_) function=\"relu\"",
    "transpose(f32[n,m,4,16]) permutation=[0,2,1,3]",
    "gather(const f32[50,32], i64[n,m]) axis=0",
    "reduce(f32[n,m,40]) function=\"sum\" axes=[1] keep=true",
    "arg_reduce(f32[n,m]) largest=true axis=1 keep=false last=false",
    "slice(f32[n,m,40]) axes=[2] starts=[8] steps=[1] stops=[40]",
    "concat(f32[n,1,40], f32[n,7,40]) axis=1",
    "pool(f32[n,4,8,8]) ceil=false count_pad=false dilations=[1,1] kernel=[2,2] mode=\"max\" pads=[0,0,0,0] strides=[2,2]",
];

pub fn at_sizes(task: &Task) -> Vec<Task> {
    let bound = [[1, 1], [3, 5], [32, 33], [7, 64]].map(|[n, m]| {
        let sizes = BTreeMap::from([("n", n), ("m", m)]);
        task.with_sizes(|name| sizes[name])
    });
    let mut bound = Vec::from(bound);
    bound.dedup();
    bound
}
