use super::*;
use crate::fuse::{Fuse, tasks};
use crate::passes::simplify;
use crate::zoo;
use expect_test::{Expect, expect};

#[track_caller]
fn check(text: &str, expected: Expect) {
    let line = match build(text) {
        Ok(graph) => {
            let tasks = tasks(&graph, Fuse::Epilogue).unwrap();
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
            "simple operator `conv2d:ci=64,hw=56,co=64,k=3,stride=2`: there is no `stride`; the keys are act, bias, ci, co, d, dtype, g, hw, k, n, p, s, size"
        ],
    );
    check(
        "conv2d:ci=64,hw=56,co=64,k=three",
        expect![
            "simple operator `conv2d:ci=64,hw=56,co=64,k=three`: `k=three` is not numbers with `x` between them; for example `conv2d:n=1,ci=64,hw=56,co=64,k=3,s=1,p=1,bias=1,act=relu`"
        ],
    );
    check(
        "conv2d:ci=64,hw=56,co=64,k=3x3x3",
        expect![
            "simple operator `conv2d:ci=64,hw=56,co=64,k=3x3x3`: `k` has 3 numbers, takes 1 or 2; for example `conv2d:n=1,ci=64,hw=56,co=64,k=3,s=1,p=1,bias=1,act=relu`"
        ],
    );
    check(
        "conv2d:ci=64,hw=2,co=64,k=3",
        expect![
            "`conv` does not fit its inputs (f32[1,64,2,2], f32[64,64,3,3]): a window of 3 does not fit into 2 + 0 + 0 elements of spatial dimension 0"
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
            "simple operator `relu:shape=4,dtype=f31`: `dtype=f31` is none of f32, f16, bf16, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool; for example `relu:shape=1x64x56x56`"
        ],
    );
    check("relu:shape=-4", expect!["`relu` does not fit its inputs (f32[-4]): f32[-4] has the negative extent -4"]);
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
    let unknown = build("swish").unwrap_err().to_string();
    assert!(unknown.starts_with("simple operator `swish`: `swish` is none of conv1d, conv2d"), "{unknown}");
}

#[test]
fn every_example_is_one_operator() {
    for form in list() {
        let graph = build(form.example).unwrap();
        assert!(form.example.starts_with(form.name));
        assert_eq!(tasks(&graph, Fuse::Epilogue).unwrap().len(), 1, "{}", form.name);
    }
}

#[test]
fn every_task_of_the_zoo_can_be_pasted_back() {
    for entry in zoo::list() {
        let graph = simplify(&entry.build(1).unwrap()).unwrap();
        for one in tasks(&graph, Fuse::Epilogue).unwrap() {
            let pasted = build(&one.task.to_text()).unwrap();
            let again = tasks(&pasted, Fuse::Epilogue).unwrap();
            assert_eq!(again.iter().map(|one| one.task.hash()).collect::<Vec<_>>(), [one.task.hash()]);
        }
    }
}
