//! Tensors whose elements may not lie in memory in the order of their dimensions. TorchScript states no strides, which
//! only `as_strided` depends on.

use std::collections::HashSet;

/// Operators with a result that may be a part of the memory of an operand, or that permute dimensions.
const REORDERING: &[&str] = &[
    "as_strided",
    "broadcast_to",
    "chunk",
    "diagonal",
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
    "narrow",
    "numpy_T",
    "permute",
    "real",
    "rnn_relu",
    "rnn_tanh",
    "scaled_dot_product_attention",
    "select",
    "slice",
    "split",
    "split_with_sizes",
    "swapaxes",
    "swapdims",
    "t",
    "tensor_split",
    "transpose",
    "unbind",
    "unfold",
    "unsafe_chunk",
    "unsafe_split",
    "unsafe_split_with_sizes",
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
    pub fn is_reordered(&self, operator: &str, operands: &[usize], is_operand: bool) -> bool {
        if ROW_MAJOR.contains(&operator) {
            return false;
        }
        operands.iter().any(|cell| self.unordered.contains(cell)) || !is_operand && REORDERING.contains(&operator)
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
