//! Finds groups of operators that a library computes in place of the compiler. Each match of the patterns of a partner
//! (a supported library) becomes one task for the partner (`fuse::plan_with`).

use crate::lookup::GraphLookup;
use crate::pattern::{Match, Pattern};
use models::fuse::Claim;
use models::graph::Graph;
use models::partner::Partner;

/// Finds the operators that partners would compute; no operator is claimed twice.
pub fn find_claims(graph: &Graph, partners: &[&'static Partner]) -> Vec<Claim> {
    let lookup = GraphLookup::from_graph(graph);
    let mut is_claimed = vec![false; graph.nodes.len()];
    let mut claims = Vec::new();
    for partner in partners {
        for text in partner.patterns {
            let pattern = Pattern::from_static(text);
            // In reverse order, so that a larger match, which ends later, is tried before a part of it.
            for node in graph.nodes.iter().rev() {
                let Some(found) = pattern.find_in(&lookup, node.outputs[0]) else { continue };
                if !found.nodes.iter().any(|&index| is_claimed[index]) && is_whole(&lookup, &found) {
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

fn is_whole(lookup: &GraphLookup<'_>, found: &Match) -> bool {
    found.nodes[1..].iter().all(|&index| lookup.is_read_once(lookup.graph.nodes[index].outputs[0]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::partner::PARTNERS;

    #[test]
    fn every_pattern_is_one() {
        for partner in PARTNERS {
            partner.patterns.iter().for_each(|text| drop(Pattern::parse_text(text).unwrap()));
        }
    }
}
