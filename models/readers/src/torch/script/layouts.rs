//! Tensors whose elements may not lie in memory in the order of their dimensions. TorchScript states no strides, which
//! only `as_strided` depends on.

use crate::torch::rules::RuleOutput;
use models::graph::ValueId;
use std::collections::HashSet;

/// Operators whose result may have another order than their rule states: it is computed so, or is a view by its type.
const REORDERING: &[&str] = &[
    "as_strided",
    "broadcast_to",
    "einsum",
    "expand",
    "expand_as",
    "gru",
    "imag",
    "lstm",
    "mH",
    "mT",
    "matrix_H",
    "meshgrid",
    "moveaxis",
    "movedim",
    "numpy_T",
    "permute",
    "real",
    "rnn_relu",
    "rnn_tanh",
    "scaled_dot_product_attention",
    "swapaxes",
    "swapdims",
    "t",
    "transpose",
    "unfold",
];

/// Operators with a row-major result, whatever the order of their operands is.
const ROW_MAJOR: &[&str] = &[
    "addmm",
    "baddbmm",
    "bmm",
    "cat",
    "contiguous",
    "embedding",
    "layer_norm",
    "linear",
    "log_softmax",
    "matmul",
    "mm",
    "new_empty",
    "new_full",
    "new_ones",
    "new_zeros",
    "repeat",
    "softmax",
    "stack",
    "tile",
];

#[derive(Default)]
pub(super) struct Layouts {
    unordered: HashSet<usize>,
}

impl Layouts {
    pub fn mark_unordered(&mut self, cell: usize) {
        self.unordered.insert(cell);
    }

    pub fn is_row_major(&self, cell: usize) -> bool {
        !self.unordered.contains(&cell)
    }

    /// Returns whether the results of an operator may have another order. A result that is the operand itself keeps
    /// its order.
    pub fn is_reordered(
        &self,
        operator: &str,
        operands: &[usize],
        made: &[RuleOutput],
        operand: Option<ValueId>,
    ) -> bool {
        if ROW_MAJOR.contains(&operator) {
            return false;
        }
        let is_operand = matches!(made, [RuleOutput { id, .. }] if Some(*id) == operand);
        let is_part = made.iter().any(|output| output.window.is_part_or_permuted());
        operands.iter().any(|cell| self.unordered.contains(cell))
            || !is_operand && (is_part || REORDERING.contains(&operator))
    }
}

#[cfg(test)]
mod tests {
    use super::{REORDERING, ROW_MAJOR};
    use crate::torch::rules;

    #[test]
    fn listed_operators_have_a_rule() {
        let without: Vec<_> =
            REORDERING.iter().chain(ROW_MAJOR).filter(|name| rules::find_rule(name).is_none()).collect();
        assert_eq!(without, [&"imag", &"real"], "which are rules of complex numbers");
    }
}
