//! Plans made by rules are valid, and invalid plans are rejected.

use super::*;
use crate::operators::{Concat, Reshape, Softmax};
use crate::{Fuse, GraphBuilder, Op, TensorType, plan_calls};

fn branches() -> (Graph, Plan) {
    let mut builder = GraphBuilder::new("branches");
    let x = builder.add_input("x", TensorType::f32(&[2, 64])).expect("an input");
    let softmax = |builder: &mut GraphBuilder, from| {
        builder.push(Op::Softmax(Softmax { axis: 1, log: false }), &[from]).expect("a call")
    };
    let first = softmax(&mut builder, x);
    let flat = builder.push(Op::Reshape(Reshape { shape: vec![2, 8, 8] }), &[first]).expect("a view");
    let back = builder.push(Op::Reshape(Reshape { shape: vec![2, 64] }), &[flat]).expect("a view");
    let parts = [first, back, first].map(|from| softmax(&mut builder, from));
    let joined = builder.push(Op::Concat(Concat { axis: 1 }), &parts).expect("a call");
    let graph = builder.finish(&[joined]).expect("a graph");
    let cut = plan_calls(&graph, Fuse::Epilogue).expect("calls");
    (graph, cut)
}

#[test]
fn calls_wait_through_views() {
    let (graph, plan) = branches();
    assert_eq!(call_dependencies(&graph, &plan), [vec![], vec![0], vec![0], vec![0], vec![1, 2, 3]]);
}

#[test]
fn rules_make_plans() {
    let (graph, plan) = branches();
    let widths = [(Parallel::Sequential, 1, 1), (Parallel::Stream, 3, 2), (Parallel::Full, 3, 3)];
    for (parallel, stages, width) in widths {
        let made = StagePlan::by_rule(&graph, &plan, 2, parallel);
        assert_eq!(made.check_matches(&graph, &plan, 2, "here"), Ok(()), "{made:?}");
        assert_eq!((made.stages.len(), made.max_groups()), (stages, width), "{made:?}");
        let text = serde_json::to_string(&made).expect("JSON");
        assert_eq!(serde_json::from_str::<StagePlan>(&text).expect("a plan"), made);
    }
    let many = StagePlan::by_rule(&graph, &plan, 7, Parallel::Stream);
    let cores: Vec<usize> = many.stages[1].groups.iter().map(|group| group.cores.len()).collect();
    assert_eq!(cores, [2, 2, 3]);
}

#[test]
fn groups_have_streams_on_a_gpu() {
    let (graph, plan) = branches();
    let streams = |parallel, most| {
        let made = StagePlan::by_rule(&graph, &plan, 4, parallel).on_streams(most);
        let of_stage = |stage: &Stage| stage.groups.iter().map(|group| group.cores.clone()).collect::<Vec<_>>();
        (made.cores, made.stages.iter().map(of_stage).collect::<Vec<_>>())
    };
    let one = || vec![vec![0]];
    assert_eq!(streams(Parallel::Sequential, 4), (1, vec![one()]));
    assert_eq!(streams(Parallel::Stream, 4), (3, vec![one(), vec![vec![0], vec![1], vec![2]], one()]));
    assert_eq!(streams(Parallel::Full, 2), (2, vec![one(), vec![vec![0], vec![1], vec![0]], one()]));
}

#[test]
fn what_is_no_plan_of_a_model_is_refused() {
    let (graph, plan) = branches();
    let made = StagePlan::by_rule(&graph, &plan, 2, Parallel::Stream);
    let refused = |change: &dyn Fn(&mut StagePlan)| {
        let mut changed = StagePlan { host_class: Some("here".to_owned()), ..made.clone() };
        change(&mut changed);
        changed.check_matches(&graph, &plan, 2, "here").expect_err("it is none").to_string()
    };
    assert!(refused(&|one| one.format = 9).contains("format version 9"));
    assert!(refused(&|one| one.calls_hash = "0".to_owned()).contains("another graph: the calls of `branches`"));
    assert!(
        refused(&|one| one.host_class = Some("there".to_owned()))
            .contains("another machine: there; this machine is here")
    );
    assert_eq!(refused(&|one| one.cores = 4), "the plan is for 4 cores, but 2 are given");
    assert!(refused(&|one| one.stages[1].groups[0].cores = vec![2]).contains("uses core 2"));
    assert!(refused(&|one| one.stages[1].groups[0].cores = vec![1]).contains("another group uses"));
    assert!(refused(&|one| one.stages[1].groups[0].cores.clear()).contains("no core"));
    assert!(refused(&|one| one.stages.swap(0, 1)).contains("has not computed yet"));
    assert!(refused(&|one| one.stages[2].groups[0].calls.push(0)).contains("occurs twice"));
    assert!(refused(&|one| one.stages[2].groups[0].calls = vec![9]).contains("call 9 does not exist"));
    assert_eq!(refused(&|one| drop(one.stages.pop())), "call 4 is not in any stage");
}
