//! Tests of operators in short form.

use super::*;
use expect_test::{Expect, expect};
use models::fuse::{Fuse, distinct_tasks};
use passes::simplify_graph;
use proptest::prelude::*;

#[track_caller]
fn check(text: &str, expected: Expect) {
    let line = match build_operator(text) {
        Ok(graph) => {
            let tasks = distinct_tasks(&graph, Fuse::Epilogue).unwrap();
            assert_eq!(tasks.len(), 1);
            tasks[0].task.describe()
        }
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&line);
}

#[test]
fn short_forms() {
    check("conv2d:n=1,ci=64,hw=56,co=64,k=3,s=1,p=1", expect!["conv2d f32[1,64,56,56] w[64,64,3,3] p=1"]);
    check(
        "conv2d:ci=64,size=28x14,co=32,k=1x7,p=0x3,g=2,bias=1,act=relu6,dtype=f16",
        expect!["conv2d f16[1,64,28,14] w[32,32,1,7] p=0x3x0x3 g=2 +bias +relu6"],
    );
    check("matmul:m=512,n=256,k=128,tb=1", expect!["matmul f32[512,128] f32[256,128] tb"]);
    check("matmul:b=8x2,m=16,n=16,k=4,act=gelu,bias=1", expect!["matmul f32[8,2,16,4] f32[8,2,4,16] +bias +gelu"]);
    check("dense: n=1000, k=512, bias=true", expect!["dense f32[1,512] w[1000,512] +bias"]);
    check(
        "attention:h=32,g=8,s=128,d=64,causal=1,scale=0.125",
        expect!["attention f32[1,32,128,64] f32[1,8,128,64] f32[1,8,128,64] causal scale=0.125"],
    );
    check("einsum:equation=ij;jk,shape=4x8,other=8x6", expect!["einsum f32[4,8] f32[8,6] ij,jk"]);
    check("gather:shape=30522x768,at=1x128", expect!["gather w[30522,768] i64[1,128] axis=0"]);
    check("instance_norm:shape=1x64x56x56", expect!["instance_norm f32[1,64,56,56] g=64"]);
    check("q_conv2d:ci=64,hw=56,co=64,k=3,p=1,xz=5", expect!["q_conv2d u8[1,64,56,56] w[64,64,3,3] p=1 zero=5,0"]);
    check("requantize:shape=1x64,to=u8,zero=3,axis=1", expect!["requantize i32[1,64] (u8)"]);
    check("softmax:shape=1x1000,axis=1", expect!["softmax f32[1,1000] axis=1"]);
    check("max_pool2d:c=64,hw=112,k=3,s=2,p=1", expect!["max_pool f32[1,64,112,112] k=3 s=2 p=1"]);
    check("add:shape=1x64x56x56,other=64x1x1", expect!["add f32[1,64,56,56] f32[64,1,1]"]);
}

#[test]
fn mistakes() {
    check(
        "conv2d:ci=64,hw=56,co=64",
        expect![
            "simple operator `conv2d:ci=64,hw=56,co=64`: `k` is missing; for example `conv2d:n=1,ci=64,hw=56,co=64,k=3,s=1,p=1,bias=1,act=relu`"
        ],
    );
    check(
        "conv2d:ci=64,hw=56,co=64,k=3,stride=2",
        expect![
            "simple operator `conv2d:ci=64,hw=56,co=64,k=3,stride=2`: unknown key `stride`; known: `act`, `bias`, `ci`, `co`, `d`, `dtype`, `g`, `h`, `hw`, `k`, `n`, `p`, `s`, `size`, `w`"
        ],
    );
    check(
        "conv2d:ci=64,hw=56,co=64,k=three",
        expect![
            "simple operator `conv2d:ci=64,hw=56,co=64,k=three`: `k=three` is not a list of numbers separated by `x`; for example `conv2d:n=1,ci=64,hw=56,co=64,k=3,s=1,p=1,bias=1,act=relu`"
        ],
    );
    check(
        "conv2d:ci=64,hw=56,co=64,k=3x3x3",
        expect![
            "simple operator `conv2d:ci=64,hw=56,co=64,k=3x3x3`: `k` has 3 numbers, expected 1 or 2; for example `conv2d:n=1,ci=64,hw=56,co=64,k=3,s=1,p=1,bias=1,act=relu`"
        ],
    );
    check(
        "conv2d:ci=64,hw=2,co=64,k=3",
        expect![
            "simple operator `conv2d:ci=64,hw=2,co=64,k=3`: `conv` does not fit its inputs (f32[1,64,2,2], f32[64,64,3,3]): a window of 3 does not fit into 2 + 0 + 0 elements of spatial dimension 0; for example `conv2d:n=1,ci=64,hw=56,co=64,k=3,s=1,p=1,bias=1,act=relu`"
        ],
    );
    check("conv2d:ci=64,hw=2,hw=3", expect!["simple operator `conv2d:ci=64,hw=2,hw=3`: `hw` is given twice"]);
    check(
        "conv2d:ci=64,hw=8,co=64,k=3,g=0",
        expect![
            "simple operator `conv2d:ci=64,hw=8,co=64,k=3,g=0`: `g` must not be 0; for example `conv2d:n=1,ci=64,hw=56,co=64,k=3,s=1,p=1,bias=1,act=relu`"
        ],
    );
    check(
        "conv2d:ci=64,hw=8,co=64,k=1,bias=maybe",
        expect![
            "simple operator `conv2d:ci=64,hw=8,co=64,k=1,bias=maybe`: `bias=maybe` is neither 0 nor 1; for example `conv2d:n=1,ci=64,hw=56,co=64,k=3,s=1,p=1,bias=1,act=relu`"
        ],
    );
    check(
        "relu:shape=4,dtype=f31",
        expect![
            "simple operator `relu:shape=4,dtype=f31`: `dtype=f31` is not an element type; did you mean `f32`?; for example `relu:shape=1x64x56x56`"
        ],
    );
    check(
        "dense:n=4,k=4,act=sigmiod",
        expect![
            "simple operator `dense:n=4,k=4,act=sigmiod`: unknown value `act=sigmiod`; did you mean `sigmoid`?; for example `dense:m=1,n=1000,k=512,bias=1`"
        ],
    );
    check(
        "dense:n=4,k=4,act=squash",
        expect![
            "simple operator `dense:n=4,k=4,act=squash`: unknown value `act=squash`; known: `relu`, `relu6`, `sigmoid`, `hard_sigmoid`, `tanh`, `silu`, `hard_swish`, `gelu`; for example `dense:m=1,n=1000,k=512,bias=1`"
        ],
    );
    check(
        "scatter_nd:shape=64x64x32,at=10x2,combine=mull",
        expect![
            "simple operator `scatter_nd:shape=64x64x32,at=10x2,combine=mull`: unknown value `combine=mull`; did you mean `mul`?; for example `scatter_nd:shape=64x64x32,at=10x2,combine=add`"
        ],
    );
    check(
        "relu:shape=-4",
        expect![
            "simple operator `relu:shape=-4`: `relu` does not fit its inputs (f32[-4]): f32[-4] has the negative extent -4; for example `relu:shape=1x64x56x56`"
        ],
    );
    check(
        "relu:shape=1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1",
        expect![
            "simple operator `relu:shape=1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1`: `shape` has more than 16 numbers; for example `relu:shape=1x64x56x56`"
        ],
    );
    check(
        "scale_shift:shape=4,axis=-9",
        expect![
            "simple operator `scale_shift:shape=4,axis=-9`: `shape` has no dimension -9; for example `scale_shift:shape=1x64x56x56`"
        ],
    );
    let unknown = build_operator("squash").unwrap_err().to_string();
    assert!(
        unknown.starts_with("simple operator `squash`: unknown operator `squash`; did you mean `square`?"),
        "{unknown}"
    );
}

#[test]
fn every_example_is_one_operator() {
    for form in list_forms() {
        let graph = build_operator(form.example).unwrap();
        assert!(form.example.starts_with(form.name));
        let [one] = distinct_tasks(&graph, Fuse::Epilogue).unwrap().try_into().expect("one task");
        assert_eq!(Task::from_text(&one.task.to_text()).unwrap(), one.task, "{}", form.name);
        one.task.work().unwrap();
    }
}

#[test]
fn every_task_of_the_zoo_can_be_pasted_back() {
    for entry in crate::list_models() {
        let graph = simplify_graph(&entry.build_graph(1).unwrap()).unwrap();
        for one in distinct_tasks(&graph, Fuse::Epilogue).unwrap() {
            let pasted = build_operator(&one.task.to_text()).unwrap();
            let again = distinct_tasks(&pasted, Fuse::Epilogue).unwrap();
            assert_eq!(again.iter().map(|one| one.task.hash()).collect::<Vec<_>>(), [one.task.hash()]);
        }
    }
}

fn any_text() -> impl Strategy<Value = String> {
    let names: Vec<&str> = list_forms().iter().map(|form| form.name).collect();
    let keys =
        ["n", "ci", "co", "c", "hw", "size", "k", "s", "p", "d", "g", "m", "b", "shape", "other", "axis", "axes"];
    let more =
        ["from", "to", "step", "order", "op", "low", "high", "value", "dtype", "bias", "act", "alpha", "epsilon", "at"];
    let newest = ["h", "d", "t", "window", "rotary", "depth", "times", "combine", "zero", "xz", "keep", "mask"];
    let values = ["0", "1", "2", "3", "4x4", "8x8x8", "1x8x4x4", "-1", "-9223372036854775808", "9223372036854775807"];
    let others = ["2147483648", "4294967296x4294967296", "nan", "inf", "1e400", "f16", "i8", "bool", "relu", "", "x"];
    let pair = (
        prop::sample::select([&keys[..], &more, &newest].concat()),
        prop::sample::select([&values[..], &others].concat()),
    );
    (prop::sample::select(names), prop::collection::vec(pair, 0..9)).prop_map(|(name, pairs)| {
        let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
        format!("{name}:{}", pairs.join(","))
    })
}

fn changed_example() -> impl Strategy<Value = String> {
    let numbers = ["0", "1", "7", "-1", "9223372036854775807", "-9223372036854775808", "2147483648", "4294967296"];
    let changes = prop::collection::vec((0usize..12, prop::sample::select(numbers.to_vec())), 1..4);
    (prop::sample::select(list_forms().iter().map(|form| form.example).collect::<Vec<_>>()), changes).prop_map(
        |(example, changes)| {
            let (name, rest) = example.split_once(':').unwrap();
            // Splits at separators, so that every number can be replaced.
            let mut parts: Vec<String> = rest.split_inclusive(['=', 'x', ',']).map(str::to_owned).collect();
            for (at, number) in changes {
                let index = at % parts.len();
                let digits = parts[index].trim_end_matches(['=', 'x', ',']).to_owned();
                if digits.parse::<i64>().is_ok() {
                    parts[index] = parts[index].replacen(&digits, number, 1);
                }
            }
            format!("{name}:{}", parts.concat())
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Any text is rejected, or it becomes a graph that can be written, simplified and cut.
    #[test]
    fn nothing_that_is_typed_panics(text in prop_oneof![any_text(), changed_example()]) {
        if let Ok(graph) = build_operator(&text) {
            prop_assert_eq!(Graph::from_text(&graph.to_text()).unwrap(), graph.clone());
            let simple = simplify_graph(&graph).unwrap();
            for one in distinct_tasks(&simple, Fuse::Epilogue).unwrap() {
                one.task.work().unwrap();
                prop_assert_eq!(Task::from_text(&one.task.to_text()).unwrap().hash(), one.task.hash());
            }
        }
    }
}

#[test]
fn sizes_that_are_missing_half_given_or_zero_say_what_to_write() {
    for (text, said) in [
        (
            "conv2d:ci=3,co=64,k=3",
            "`hw` is missing: one extent for all spatial axes (or `size` with one extent per axis",
        ),
        ("conv2d:ci=3,h=56,co=64,k=3", "`hw=56` sets both"),
        ("conv2d:ci=3,h=56,w=56,hw=56,co=64,k=3", "give one of them"),
        ("matmul:m=0,n=8,k=8", "`m` is 0, so the operator computes nothing"),
        ("relu:shape=4x0", "`shape` is 0, so the operator computes nothing"),
        ("clip:shape=0x4,low=0,high=1", "`shape` is 0, so the operator computes nothing"),
    ] {
        let Err(refused) = build_operator(text) else { panic!("{text} is refused") };
        let refused = refused.to_string();
        assert!(refused.contains(said), "{text}: {refused}");
    }
    build_operator("conv2d:ci=3,h=56,w=28,co=64,k=3,p=0").expect("both extents");
}
