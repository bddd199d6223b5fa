//! Limits of what readers unroll and inline, so that a small file cannot request an unbounded graph.

use models::check::GraphLimits;

/// Maximum number of iterations of a loop that is unrolled.
pub(crate) const MAX_ITERATIONS: i64 = 4096;

/// Maximum sequence length of a recurrent layer. Longer sequences are refused, because each step adds about twenty
/// operators.
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
        const NODES_FIXED: usize = 100_000;
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
