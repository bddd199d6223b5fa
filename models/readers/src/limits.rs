//! Limits of what readers unroll and inline, so that a small file cannot request an unbounded graph.

use models::check::GraphLimits;

/// Maximum number of iterations of a loop that is unrolled.
pub(crate) const MAX_ITERATIONS: i64 = 4096;

/// Maximum number of steps that an operator unrolls to: the sequence length, times the layers if it has several. Each
/// step adds about twenty operators.
pub(crate) const MAX_STEPS: i64 = 4096;

/// Maximum nesting depth of subgraphs and functions.
pub(crate) const MAX_DEPTH: usize = 32;

/// Counts nodes while functions are inlined and loops are unrolled.
pub(crate) struct NodeBudget {
    visited: usize,
    most: usize,
}

impl NodeBudget {
    /// Creates a budget of a multiple of the file's node count, but at least a constant.
    pub(crate) fn new(file_nodes: usize) -> NodeBudget {
        const NODES_FIXED: usize = 200_000;
        const NODES_PER_FILE_NODE: usize = 8;
        let most = NODES_FIXED.saturating_add(NODES_PER_FILE_NODE.saturating_mul(file_nodes));
        NodeBudget { visited: 0, most: most.min(GraphLimits::default().nodes) }
    }

    pub(crate) fn count_nodes(&mut self, count: usize) -> Result<(), String> {
        self.visited = self.visited.saturating_add(count);
        if self.visited <= self.most {
            return Ok(());
        }
        Err(format!("the model has more than {} nodes after inlining functions and unrolling loops", self.most))
    }
}

/// Returns the path of a node in a subgraph. Its length is bounded, because each iteration of a loop repeats the name.
pub(crate) fn nested_label(place: &str, name: &str) -> String {
    const MAX_PREFIX_CHARS: usize = 200;
    let label = format!("{place}{}", name.chars().take(MAX_PREFIX_CHARS).collect::<String>());
    // Keeps the end, which identifies the node; the beginning is the path of calls.
    let first = label.char_indices().rev().nth(2 * MAX_PREFIX_CHARS).map_or(0, |(place, _)| place);
    label[first..].to_owned()
}
