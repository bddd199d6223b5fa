//! Checks that PyTorch's library and the reference computation agree on every operator that both support. A row is the
//! text of a task, with odd extents to cover incomplete vectors. `scripts/test-torch` runs it, with the feature
//! `torch`.

#[path = "../../kernel/tests/common/mod.rs"]
mod common;

use bench::Bench;
use bench::Workers;
use common::PATIENCE;
use job::{LibraryJob, RunReply};
use measure::affinity;

fn reply(workers: &mut Workers, text: &str, cpus: &[usize]) -> RunReply {
    let mut job = common::run_job(&common::task(text), Vec::new(), cpus);
    job.packings = Vec::new();
    let reply = workers.run_library(&LibraryJob::Task(job), PATIENCE);
    reply.unwrap_or_else(|fault| panic!("`{text}`: {fault}"))
}

#[track_caller]
fn check(texts: &[&str]) {
    let mut workers = common::workers();
    let cpus = affinity::allowed_cpus().expect("the system tells the CPUs");
    let wrong = |text: &&str| match reply(&mut workers, text, &cpus[..cpus.len().min(2)]) {
        RunReply::Measured(measured) if measured.check.is_some() => None,
        other => Some(format!("{text}\n  {other:?}")),
    };
    let failures: Vec<String> = texts.iter().filter_map(wrong).collect();
    assert!(failures.is_empty(), "{} of {} failed:\n{}", failures.len(), texts.len(), failures.join("\n"));
}

#[test]
fn contractions() {
    check(&[
        "conv1d:ci=5,size=13,co=10,k=3,p=1",
        "conv2d:ci=3,hw=17,co=8,k=3,p=1",
        "conv2d:ci=16,hw=7,co=32,k=3,p=1,s=2,bias=1,act=relu",
        "conv2d:ci=8,hw=10,co=12,k=3,g=4,p=1,d=2",
        "conv2d:ci=3,size=7x9,co=4,k=3,p=1x0x2x0,bias=1,act=hard_swish",
        "conv3d:ci=3,size=3x7x7,co=4,k=3,p=1",
        "depthwise_conv2d:c=16,hw=10,k=3,p=1",
        "depthwise_conv2d:c=7,hw=10,k=5,s=2,p=2",
        r#"conv(f32[1,8,9,9], const f32[8,8,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1 | bias_add(_, const f32[8]) axis=1 | binary(_, f32[1,8,9,9]) function="add" | unary(_) function="relu""#,
        r#"conv(f32[1,8,9,9], const f32[8,8,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1 | binary(f32[1,8,9,9], _) function="sub""#,
        r#"conv(f32[1,8,9,9], const f32[8,8,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1 | binary(_, f32[8,1,1]) function="mul""#,
        "conv(f64[1,4,9], const f64[6,4,3]) strides=[2] pads=[1,1] dilations=[1] groups=1",
        "conv_transpose1d:ci=4,size=7,co=3,k=4,s=2,p=1",
        "conv_transpose2d:n=2,ci=3,size=5x1,co=7,k=3x1,s=3x2,op=1x1",
        "conv_transpose2d:ci=4,hw=5,co=6,k=3,d=2,p=2",
        "conv_transpose2d:ci=16,hw=4,co=16,k=4,s=2,p=1x0x0x2,bias=1,act=tanh",
        "conv_transpose2d:ci=16,hw=4,co=16,k=4,s=2,p=1,bias=1,act=relu",
        "conv_transpose3d:ci=3,size=3x4x5,co=2,k=2,s=2",
        "conv_transpose(f32[1,4,5,6], const f32[4,3,3,3]) strides=[2,2] pads=[1,0,1,1] output_pads=[1,0] dilations=[1,1] groups=2",
        "matmul:m=17,n=31,k=7",
        "matmul:m=7,n=32,k=10,ta=1,tb=1",
        "matmul:b=2x3,m=7,n=10,k=17,tb=1",
        "matmul:m=7,n=16,k=10,dtype=i8",
        "matmul:m=7,n=16,k=10,dtype=bf16",
        "mat_mul(f32[3,1,7,10], f32[4,10,17]) transpose_a=false transpose_b=false",
        "dense:m=10,n=128,k=17,bias=1,act=gelu",
        "dense:m=4,n=7,k=10,act=sigmoid",
        "dense:m=7,n=16,k=10,dtype=u8",
        "dense(f32[2,3,10], const f32[17,10])",
        r#"einsum(f32[2,5,3,8], f32[2,5,7,8]) equation="bhqd,bhkd->bhqk""#,
        r#"einsum(f32[4,8], f32[8,6]) equation="ij,jk""#,
        r#"einsum(f32[5,1,4,8], f32[3,8,6]) equation="...ij,...jk->...ik""#,
        r#"einsum(f32[6,6]) equation="ii""#,
        r#"einsum(f32[4,6]) equation="ij->ji""#,
        r#"einsum(f32[4,5], f32[5,6], f32[6,7]) equation="ab,bc,cd->ad""#,
        r#"einsum(i8[4,8], i8[6,8]) equation="ik,jk->ij""#,
    ]);
}

#[test]
fn attention() {
    check(&[
        "attention(f32[2,4,5,8], f32[2,4,7,8], f32[2,4,7,6]) causal=false scale=0.35 window=null softcap=null",
        "attention(f32[1,6,5,8], f32[1,2,5,8], f32[1,2,5,8]) causal=true scale=0.35 window=null softcap=null",
        "attention(f32[1,6,1,8], f32[1,3,9,8], f32[1,3,9,8]) causal=true scale=0.35 window=4 softcap=null",
        "attention(f32[1,6,1,8], f32[1,3,9,8], f32[1,3,9,8]) causal=true scale=0.35 window=null softcap=null",
        "attention(f32[1,2,7,8], f32[1,2,5,8], f32[1,2,5,8]) causal=true scale=0.35 window=null softcap=null",
        "attention(f32[1,4,5,8], f32[1,4,7,8], f32[1,4,7,8], f32[5,7]) causal=false scale=0.35 window=null softcap=5.0",
        "attention(f32[1,4,5,8], f32[1,2,7,8], f32[1,2,7,8], f32[5,7]) causal=true scale=0.35 window=null softcap=5.0",
        "attention(f16[1,4,5,8], f16[1,2,7,8], f16[1,2,7,8], f16[1,1,1,7]) causal=false scale=0.35 window=null softcap=null",
    ]);
}

#[test]
fn normalisations() {
    check(&[
        "batch_norm:shape=2x7x10x10",
        "scale_shift:shape=1x7x10x10",
        "scale_shift:shape=7x3x5,axis=0",
        "layer_norm:shape=3x7x10,axis=1",
        "softmax:shape=2x10x7,axis=1",
        "log_softmax:shape=4x7x10,axis=1",
        "rms_norm(f32[3,5,21], const f32[5,21]) axis=1 epsilon=1e-5",
        "group_norm(f32[2,6,5,7], const f32[6], const f32[6]) groups=3 epsilon=1e-5",
        "mean_variance_norm(f32[2,3,5,7]) axes=[0,2,3] epsilon=1e-9",
        "lp_norm(f32[3,5,21]) axis=1 order=1",
        "lp_norm(f32[3,5,21]) axis=2 order=2",
        "lrn(f32[1,7,5,6]) size=5 alpha=0.5 beta=0.75 bias=2.0",
        "lrn(f32[2,7,5]) size=4 alpha=0.5 beta=0.75 bias=1.0",
    ]);
}

#[test]
fn pools_and_resampling() {
    check(&[
        "max_pool1d:c=7,size=17,k=2",
        "max_pool2d:c=10,hw=17,k=3,s=2,p=1",
        "max_pool2d:c=3,hw=7,k=3,s=2,ceil=1,p=1",
        "max_pool2d:c=4,hw=11,k=3,d=2,p=1",
        "max_pool2d:c=5,size=7x10,k=3x2,s=1x2,p=1x0x0x1",
        "max_pool3d:c=3,size=5x7x6,k=2,s=2,ceil=1",
        "avg_pool1d:c=7,size=16,k=4,s=3,p=1",
        "avg_pool2d:c=3,hw=10,k=3,s=2,p=1",
        "avg_pool2d:c=3,hw=10,k=3,s=2,ceil=1",
        "avg_pool2d:c=3,hw=10,k=3,s=2,p=1,ceil=1,count_pad=1",
        "avg_pool2d:c=3,size=7x9,k=3x2,s=2x1,p=1x0x0x1,count_pad=1",
        "avg_pool3d:c=2,size=5x7x6,k=2x3x2,s=1x2x2,p=0x1x1",
        "global_avg_pool:shape=2x7x7x7",
        "global_max_pool:shape=1x17x5x3",
        r#"pool(f32[1,3,9,11]) mode={"lp":{"order":2}} kernel=[3,3] strides=[2,2] pads=[1,1,1,1] dilations=[1,1] ceil=false count_pad=false"#,
        r#"pool(f32[1,3,21]) mode={"lp":{"order":3}} kernel=[4] strides=[2] pads=[0,1] dilations=[1] ceil=true count_pad=false"#,
        r#"global_pool(f32[2,3,5,7]) mode={"lp":{"order":1}}"#,
        r#"adaptive_pool(f32[1,3,10,7]) mode="average" extents=[3,5]"#,
        r#"adaptive_pool(f32[1,3,10,7]) mode="max" extents=[4,9]"#,
        r#"adaptive_pool(f32[1,3,4,5,6]) mode="average" extents=[2,2,4]"#,
        r#"resize(f32[1,3,5,7]) mode="nearest" extents=[10,14]"#,
        r#"resize(f32[1,3,5,7]) mode="linear" extents=[11,9]"#,
        r#"resize(f32[1,3,5,7]) mode="linear_aligned" extents=[10,14]"#,
        r#"resize(f32[1,3,9]) mode="linear" extents=[21]"#,
    ]);
}

#[test]
fn functions_of_one_element() {
    let names = common::FIRST_FUNCTIONS.iter().chain(common::FURTHER_FUNCTIONS);
    let names: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
    let with_numbers = [
        r#"{"leaky_relu":{"alpha":0.01}}"#,
        r#"{"leaky_relu":{"alpha":0.3}}"#,
        r#"{"elu":{"alpha":1.0}}"#,
        r#"{"elu":{"alpha":0.5}}"#,
        r#"{"celu":{"alpha":0.5}}"#,
        r#"{"hard_sigmoid_of":{"slope":0.2,"offset":0.5}}"#,
        r#"{"swish":{"beta":1.702}}"#,
        r#"{"thresholded_relu":{"alpha":0.25}}"#,
        r#"{"shrink":{"lambda":0.25,"bias":0.125}}"#,
        r#"{"is_inf":{"negative":true,"positive":false}}"#,
    ];
    let all = names.iter().map(String::as_str).chain(with_numbers);
    let mut tasks: Vec<String> = all.map(|function| format!("unary(f32[3,21]) function={function}")).collect();
    // These are computed in place after a product.
    for name in ["relu", "sigmoid", "hard_sigmoid", "tanh", "silu", "hard_swish", "gelu", "gelu_tanh", "exp"] {
        tasks.push(format!("dense(f32[4,8], const f32[6,8]) | unary(_) function=\"{name}\""));
    }
    tasks.extend(["i8", "u8", "i64"].map(|dtype| format!("unary({dtype}[3,21]) function=\"bit_not\"")));
    tasks.extend(["f64", "f16"].map(|dtype| format!("unary({dtype}[3,21]) function=\"tanh\"")));
    for text in [
        r#"unary(bool[3,21]) function="not""#,
        "clip:shape=1x7,low=-0.5,high=0.25",
        "clip(i32[3,21]) low=-3.0 high=2.5",
        "clip(i64[3,21]) low=-3.0 high=2.5",
        "dense(f32[4,8], const f32[6,8]) | clip(_) low=-0.5 high=0.25",
        "bias_add:shape=2x7x10",
        "identity(f32[3,17])",
    ] {
        tasks.push(text.to_owned());
    }
    check(&tasks.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn functions_of_more_elements() {
    let mut tasks = Vec::new();
    for (dtype, names) in [
        ("f32", &["add", "sub", "mul", "div", "max", "min", "pow", "mod", "fmod", "floor_div"][..]),
        ("i32", &["div", "mod", "fmod", "floor_div", "bit_and", "bit_or", "bit_xor", "shift_left", "shift_right"]),
        ("i64", &["mod", "bit_and", "shift_right"]),
        ("bool", &["and", "or", "xor"]),
    ] {
        tasks.extend(names.iter().map(|name| format!("binary({dtype}[3,21], {dtype}[3,1]) function=\"{name}\"")));
    }
    for name in ["equal", "not_equal", "less", "less_or_equal", "greater", "greater_or_equal"] {
        tasks.push(format!("compare(i8[3,21], i8[21]) function=\"{name}\""));
    }
    for text in [
        "where(bool[3,1], f32[21], f32[3,21])",
        "where(bool[3,21], i64[21], i64[])",
        "p_relu(f32[1,3,21], const f32[3,1])",
        "p_relu(f32[1,3,21], const f32[21])",
        "dense(f32[4,8], const f32[6,8]) | where(bool[4,6], _, f32[])",
        r#"dense(f32[4,8], const f32[6,8]) | compare(_, f32[6]) function="greater""#,
        "cast:shape=3x17,dtype=f32,to=f64",
        "cast:shape=3x17,dtype=f32,to=f16",
        "cast:shape=3x17,dtype=f32,to=i32",
        "cast:shape=3x17,dtype=bool,to=f32",
        r#"quantize(f32[3,21], const f32[]) to="u8" axis=0"#,
        r#"quantize(f32[3,21], const f32[21], const i8[21]) to="i8" axis=1"#,
        "dequantize(u8[3,21], const f32[], const u8[]) axis=0",
        "dequantize(i8[3,21], const f32[21]) axis=1",
        "dequantize(i8[3,21], const f16[]) axis=0",
        r#"requantize(i32[3,21], const f32[]) to="u8" axis=0 zero=7 low=7 high=255"#,
        r#"requantize(i32[3,21], const f32[21]) to="i32" axis=1 zero=0 low=-2147483648 high=2147483647"#,
    ] {
        tasks.push(text.to_owned());
    }
    check(&tasks.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn reductions() {
    let mut tasks = Vec::new();
    for name in ["sum", "mean", "max", "min", "prod", "l1", "l2", "log_sum", "log_sum_exp", "sum_square"] {
        tasks.push(format!("reduce(f32[3,5,21]) function=\"{name}\" axes=[0,2] keep=false"));
        tasks.push(format!("reduce(f32[3,5,21]) function=\"{name}\" axes=[1] keep=true"));
    }
    for text in [
        r#"reduce(i32[3,5,21]) function="sum" axes=[2] keep=false"#,
        r#"reduce(i8[3,5,21]) function="max" axes=[1] keep=false"#,
        r#"reduce(f32[3,21]) function="mean" axes=[1] keep=false | unary(_) function="exp""#,
        "arg_reduce(f32[3,5,21]) largest=true axis=1 keep=false last=false",
        "arg_reduce(i8[3,50,21]) largest=true axis=1 keep=true last=true",
        "arg_reduce(i8[3,50,21]) largest=false axis=1 keep=false last=false",
        "arg_top(f32[3,21]) axis=1 count=5 largest=true",
        "arg_top(i8[3,50,7]) axis=1 count=50 largest=false",
        "cum_sum(f32[3,5,21]) axis=2 exclusive=false reverse=false",
        "cum_sum(f32[3,5,21]) axis=1 exclusive=true reverse=true",
        "cum_sum(i32[3,5,21]) axis=1 exclusive=true reverse=false",
    ] {
        tasks.push(text.to_owned());
    }
    check(&tasks.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn movement() {
    check(&[
        "reshape(f32[3,8]) shape=[4,6]",
        "flatten(f32[3,4,5]) axis=1",
        "transpose(f32[3,4,5]) permutation=[2,0,1]",
        "transpose(i8[3,4]) permutation=[0,1]",
        "concat(f32[3,4], f32[3,5], f32[3,1]) axis=1",
        "pad(f32[3,4]) pads=[1,0,2,3] value=0.5",
        "pad(i8[3,4]) pads=[1,0,2,3] value=3.0",
        "expand(f32[3,1,21]) shape=[2,1,5,1]",
        "tile(f32[3,7]) repeats=[2,3]",
        "gather(const f32[50,21], i64[2,3]) axis=0",
        "gather(f32[3,50,7], i32[9]) axis=1",
        r#"gather(const f32[50,21], i64[4]) axis=0 | binary(_, f32[4,21]) function="add""#,
        "gather_elements(i8[3,21], i32[2,21]) axis=0",
        "gather_nd(f32[4,5,21], i64[3,2]) batch=0",
        "gather_nd(f32[4,5,21], i64[4,3,1]) batch=1",
        r#"scatter_elements(f32[3,21], i64[2,9], f32[2,9]) axis=1 combine="replace""#,
        r#"scatter_elements(f32[5,21], i64[9,21], f32[9,21]) axis=0 combine="add""#,
        r#"scatter_elements(i32[5,21], i64[9,7], i32[9,7]) axis=0 combine="max""#,
        r#"scatter_nd(f32[4,5,21], i64[3,2], f32[3,21]) combine="replace""#,
        r#"scatter_nd(f32[4,5,21], i64[9,2], f32[9,21]) combine="add""#,
        r#"one_hot(i64[3,5]) axis=2 depth=21 on=1.0 off=0.0 to="f32""#,
        r#"one_hot(i32[3,5]) axis=0 depth=7 on=3.0 off=-1.0 to="i8""#,
        "trilu(f32[2,5,21]) upper=true diagonal=1",
        "trilu(i64[9,7]) upper=false diagonal=-2",
        r#"border_pad(f32[2,5,21]) border="reflect" pads=[0,2,3,0,1,20]"#,
        r#"border_pad(f32[2,5,21]) border="edge" pads=[1,2,30,0,1,3]"#,
        r#"border_pad(i8[2,5,21]) border="wrap" pads=[0,5,3,1,1,21]"#,
        "slice(f32[3,21]) axes=[0,1] starts=[2,18] stops=[-1,3] steps=[-1,-4]",
        "slice(f32[3,21]) axes=[0,1] starts=[0,1] stops=[3,20] steps=[2,3]",
        "slice(f32[3,21]) axes=[0] starts=[0] stops=[2] steps=[1]",
        "rope(f32[1,3,5,16], const f32[5,8], const f32[5,8]) rotary=16 interleaved=false",
        "rope(f32[2,3,5,16], f32[2,1,5,3], f32[2,1,5,3]) rotary=6 interleaved=false",
        "rope(f32[2,3,5,16], f32[2,1,5,7], f32[2,1,5,7]) rotary=14 interleaved=true",
    ]);
}

#[test]
fn what_has_no_form_says_so() {
    let mut workers = common::workers();
    let cpus = affinity::allowed_cpus().expect("the system tells the CPUs");
    for (text, reason) in [
        ("q_dense(u8[3,16], const i8[21,16]) x_zero=5 w_zero=1", "`q_dense`: PyTorch's integer kernels"),
        ("avg_pool2d:c=4,hw=11,k=3,d=2,p=2", "not support dilation"),
        (r#"quantize(f32[3,21], const f32[3], const u16[3]) to="u16" axis=0"#, "`u16`"),
        (r#"scatter_nd(i64[4,21], i32[9,1], i64[9,21]) combine="min""#, "index tuples"),
        (r#"adaptive_pool(f32[1,3,21]) mode={"lp":{"order":2}} extents=[6]"#, "adaptive Lp pooling"),
    ] {
        match reply(&mut workers, text, &cpus[..1]) {
            RunReply::Unsupported(why) if why.contains(reason) => {}
            other => panic!("`{text}`: {other:?}"),
        }
    }
}

/// An operator without a PyTorch form must be listed here.
#[test]
fn operators_without_a_form_are_named() {
    let mut workers = common::workers();
    let cpus = affinity::allowed_cpus().expect("the system tells the CPUs");
    let mut is_missing = |text: &str| matches!(reply(&mut workers, text, &cpus[..1]), RunReply::Unsupported(_));
    let missing = models::operators::EXAMPLES.iter().filter(|(_, texts)| texts.iter().any(|text| is_missing(text)));
    assert_eq!(missing.map(|(name, _)| *name).collect::<Vec<_>>(), ["QConv", "QDense", "QMatMul"]);
}
