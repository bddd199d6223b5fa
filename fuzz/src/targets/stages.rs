//! Parses arbitrary texts as stage plans for a small model; accepted plans give a program that runs every call once.
//! The hash of the model's calls is filled in, because an input cannot guess it.

use executor::{Writing, lower_staged};
use job::Packing;
use models::operators::{Concat, Softmax};
use models::{Fuse, Graph, GraphBuilder, Op, Parallel, Plan, StagePlan, TensorType};
use std::sync::OnceLock;

const CORES: usize = 4;
const HOST_CLASS: &str = "host";

fn model() -> &'static (Graph, Plan) {
    static MODEL: OnceLock<(Graph, Plan)> = OnceLock::new();
    MODEL.get_or_init(|| {
        let mut builder = GraphBuilder::new("branches");
        let x = builder.add_input("x", TensorType::f32(&[2, 64])).expect("an input");
        let mut softmax = |from| builder.push(Op::Softmax(Softmax { axis: 1, log: false }), &[from]).expect("a call");
        let first = softmax(x);
        let parts = [first, first].map(&mut softmax);
        let joined = builder.push(Op::Concat(Concat { axis: 1 }), &parts).expect("a call");
        let graph = builder.finish(&[joined]).expect("a graph");
        let plan = models::plan_calls(&graph, Fuse::Epilogue).expect("calls");
        (graph, plan)
    })
}

pub fn run(bytes: &[u8]) {
    let (graph, plan) = model();
    let Ok(mut stages) = serde_json::from_slice::<StagePlan>(bytes) else { return };
    stages.calls_hash = StagePlan::without_stages(graph, plan, CORES, Parallel::Full).calls_hash;
    if stages.check_matches(graph, plan, CORES, HOST_CLASS).is_err() {
        return;
    }
    let packings = plan.tasks.iter().map(|one| vec![Packing::Plain; one.task.parameters.len() + 1]);
    let packings: Vec<Vec<Packing>> = packings.collect();
    for stages in [stages.clone(), stages.on_streams(2)] {
        let program = lower_staged(graph, plan, &packings, &stages, Writing::InPlace).expect("the plan was checked");
        let groups = program.stages.iter().flat_map(|stage| &stage.groups);
        let mut calls: Vec<usize> = groups.flat_map(|group| &group.calls).copied().collect();
        calls.sort_unstable();
        assert!(calls.into_iter().eq(0..program.calls.len()));
    }
}
