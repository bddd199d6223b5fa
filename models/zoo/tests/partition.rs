//! Tests which parts of a network a partner library takes.
#![allow(missing_docs)]

use expect_test::expect;
use models::fuse::{Fuse, plan_with};
use models::partner::find_partner;
use passes::partition::find_claims;
use passes::simplify_graph;

#[test]
fn a_partner_takes_what_it_supports_and_the_compiler_the_rest() {
    let graph = simplify_graph(&zoo::build_model("mobilenet-v3-small", 1).unwrap()).unwrap();
    let partner = find_partner("cpu-vendor").unwrap();
    let plan = plan_with(&graph, Fuse::Epilogue, &find_claims(&graph, &[partner])).unwrap();
    let mut lines: Vec<String> = plan
        .tasks
        .iter()
        .map(|found| format!("{} for {}", found.task.name(), found.partner.as_deref().unwrap_or("the compiler")))
        .collect();
    lines.sort();
    lines.dedup();
    expect![[r#"
        conv2d+bias for cpu-vendor
        conv2d+bias+add for cpu-vendor
        conv2d+bias+hard_swish for cpu-vendor
        conv2d+bias+relu for cpu-vendor
        dense+bias for cpu-vendor
        depthwise_conv2d+bias+hard_swish for cpu-vendor
        depthwise_conv2d+bias+relu for cpu-vendor
        global_average_pool for cpu-vendor
        hard_sigmoid for the compiler
        hard_swish for the compiler
        mul for the compiler
    "#]]
    .assert_eq(&format!("{}\n", lines.join("\n")));
    // Every operator is in exactly one call.
    let plain = plan_with(&graph, Fuse::Epilogue, &[]).unwrap();
    let covered = |plan: &models::fuse::Plan| {
        let mut nodes: Vec<usize> = plan.calls.iter().flat_map(|call| call.nodes.clone()).collect();
        nodes.sort_unstable();
        nodes
    };
    assert_eq!(covered(&plan), covered(&plain));
}
