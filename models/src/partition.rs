//! Which groups of operators a library beside the compiler would compute.
//!
//! A composite target such as `cpu-vendor, llvm` names partners first. What a partner supports is a table of patterns;
//! each match becomes one task for the partner (`fuse::plan_with`), and what is left goes to the compiler. Partners are
//! asked in their order, patterns of one partner in theirs: put the largest first.

use crate::graph::Graph;
use crate::look::Look;
use crate::pattern::{Match, Pattern};

/// A library that computes operators or groups of them.
#[derive(Debug, PartialEq, Eq)]
pub struct Partner {
    /// Its name in targets.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// What it supports: the operators that a match covers.
    pub patterns: &'static [&'static str],
}

/// The name of the vendor's library of CPU operators.
pub const CPU_VENDOR: &str = "cpu-vendor";

/// Every partner a target may name.
pub const PARTNERS: &[Partner] = &[Partner {
    name: CPU_VENDOR,
    what: "a vendor's library of CPU operators, such as oneDNN",
    patterns: &[
        "relu?(add(bias_add?(conv(x, #w), #b), residual))",
        "relu/clip/sigmoid/tanh/hard_swish?(bias_add?(conv/conv_transpose(x, #w), #b))",
        "relu/clip/sigmoid/tanh/gelu/gelu_tanh?(bias_add?(dense(x, #w), #b))",
        "requantize(bias_add?(q_conv/q_dense(x, #w), #b), #multiplier)",
        "mat_mul(a, b)",
        "attention(q, k, v, ..)",
        "pool(x)",
        "global_pool(x)",
        "softmax(x)",
        "layer_norm(x, #scale, #shift)",
        "batch_norm(x, ..)",
    ],
}];

/// The partner of a name.
pub fn partner(name: &str) -> Option<&'static Partner> {
    PARTNERS.iter().find(|partner| partner.name == name)
}

/// Operators that a partner computes at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Indices of nodes in the order of the graph.
    pub nodes: Vec<usize>,
    /// Who computes them.
    pub partner: &'static str,
}

/// What these partners would compute of a graph; no operator is claimed twice.
pub fn claims(graph: &Graph, partners: &[&'static Partner]) -> Vec<Claim> {
    let look = Look::at(graph);
    let mut is_claimed = vec![false; graph.nodes.len()];
    let mut claims = Vec::new();
    for partner in partners {
        for text in partner.patterns {
            let pattern = Pattern::fixed(text);
            // From the end, so that a match with what follows comes before one without.
            for node in graph.nodes.iter().rev() {
                let Some(found) = pattern.find_in(&look, node.outputs[0]) else { continue };
                if !found.nodes.iter().any(|&index| is_claimed[index]) && is_whole(&look, &found) {
                    found.nodes.iter().for_each(|&index| is_claimed[index] = true);
                    let mut nodes = found.nodes;
                    nodes.sort_unstable();
                    claims.push(Claim { nodes, partner: partner.name });
                }
            }
        }
    }
    claims.sort_by_key(|claim| claim.nodes.last().copied());
    claims
}

/// Whether nothing outside of a match reads what is inside.
fn is_whole(look: &Look<'_>, found: &Match) -> bool {
    found.nodes[1..].iter().all(|&index| look.is_read_once(look.graph.nodes[index].outputs[0]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::{Fuse, plan_with};
    use crate::passes::simplify;
    use crate::zoo;
    use expect_test::expect;

    #[test]
    fn every_pattern_is_one() {
        for partner in PARTNERS {
            partner.patterns.iter().for_each(|text| drop(Pattern::read(text).unwrap()));
        }
    }

    #[test]
    fn a_partner_takes_what_it_supports_and_the_compiler_the_rest() {
        let graph = simplify(&zoo::build("mobilenet-v3-small", 1).unwrap()).unwrap();
        let partner = partner("cpu-vendor").unwrap();
        let plan = plan_with(&graph, Fuse::Epilogue, &claims(&graph, &[partner])).unwrap();
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
        let covered = |plan: &crate::fuse::Plan| {
            let mut nodes: Vec<usize> = plan.calls.iter().flat_map(|call| call.nodes.clone()).collect();
            nodes.sort_unstable();
            nodes
        };
        assert_eq!(covered(&plan), covered(&plain));
    }
}
