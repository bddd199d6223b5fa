//! Evaluates operators over constants. Small results, such as computed shapes, are computed at once by the reference
//! implementation. Large results (a transposed or scaled weight) are stored as an expression, because counting or
//! compiling a model does not need the values. An operator with a random input, other than a quantisation or
//! dequantisation, is not folded; its values are generated where they are needed.

use models::check::MAX_COMPUTED;
use models::contents::Contents;
use models::graph::{Computed, Const};
use models::infer::infer_type;
use models::operators::{Class, Op};
use models::types::TensorType;
use reference::Tensor;

/// Largest number of elements of a tensor that is computed at once.
pub const MAX_SMALL: u64 = 65_536;

/// Returns an operator's output for constant inputs, or None if it cannot be folded. The input types must be valid.
pub fn fold_operator(op: &Op, inputs: &[(&TensorType, &Const)]) -> Option<Const> {
    // Random contents stay random: any values in the range of the type will do.
    if let (Op::Quantize(_), Some(seed)) = (op, inputs.first().and_then(|(_, data)| data.random_seed())) {
        return Some(Const::Random { seed });
    }
    // Dequantised constants stay expressions, so that later passes find the stored integers.
    let is_stored = matches!(op, Op::Dequantize(_))
        || (matches!(op, Op::Transpose(_)) && inputs.first().is_some_and(|(_, data)| is_stored(data)));
    if is_stored {
        infer_type(op, &inputs.iter().map(|(ty, _)| *ty).collect::<Vec<_>>()).ok()?;
        return as_expression(op, inputs);
    }
    if inputs.is_empty() || inputs.iter().any(|(_, data)| data.random_seed().is_some()) {
        return None;
    }
    // An empty table has no elements to look up.
    let looks_up = matches!(op, Op::Gather(_) | Op::GatherElements(_) | Op::GatherNd(_))
        || matches!(op, Op::ScatterElements(_) | Op::ScatterNd(_));
    if looks_up && inputs[0].0.element_count() == Some(0) {
        return None;
    }
    let types: Vec<&TensorType> = inputs.iter().map(|(ty, _)| *ty).collect();
    let output = infer_type(op, &types).ok()?;
    let is_small = |ty: &TensorType| ty.element_count().is_some_and(|elements| elements <= MAX_SMALL);
    if is_small(&output) && types.iter().all(|ty| is_small(ty)) {
        return eval_small(op, inputs);
    }
    if let Some(number) = moved_fill(op, inputs) {
        return Some(Const::Fill(number));
    }
    as_expression(op, inputs)
}

fn as_expression(op: &Op, inputs: &[(&TensorType, &Const)]) -> Option<Const> {
    let owned = inputs.iter().map(|(ty, data)| ((*ty).clone(), (*data).clone())).collect();
    limit_size(Const::Computed(Box::new(Computed { op: op.clone(), inputs: owned })))
}

/// Returns the constant, or None if it is an expression of too many operators.
pub(crate) fn limit_size(data: Const) -> Option<Const> {
    (data.part_count() <= MAX_COMPUTED).then_some(data)
}

fn eval_small(op: &Op, inputs: &[(&TensorType, &Const)]) -> Option<Const> {
    let tensors: Vec<Tensor> =
        inputs.iter().map(|(ty, data)| reference::constant_tensor(ty, data)).collect::<Result<_, _>>().ok()?;
    reference::evaluate_operator(op, &tensors).ok().map(|tensor| contents_of(&tensor))
}

pub fn contents_of(tensor: &Tensor) -> Const {
    /// Maximum number of elements that are stored as a list of numbers; longer constants are stored as bytes.
    const SHORT: usize = 64;
    if tensor.is_rounded_as_numbers() {
        return Const::Bytes(Contents::new(tensor.as_bytes().to_vec()));
    }
    let numbers = tensor.to_numbers();
    match numbers.as_slice() {
        [first, rest @ ..] if !rest.is_empty() && rest.iter().all(|number| number.to_bits() == first.to_bits()) => {
            Const::Fill(*first)
        }
        short if short.len() <= SHORT => Const::Small(numbers),
        _ => Const::Bytes(Contents::new(tensor.as_bytes().to_vec())),
    }
}

fn is_stored(data: &Const) -> bool {
    match data {
        Const::Computed(computed) => match computed.op {
            Op::Dequantize(_) => true,
            Op::Transpose(_) => is_stored(&computed.inputs[0].1),
            _ => false,
        },
        _ => false,
    }
}

/// Returns the fill value of the result if the operator only moves elements of a constant with equal elements.
fn moved_fill(op: &Op, inputs: &[(&TensorType, &Const)]) -> Option<f64> {
    let [(_, Const::Fill(number))] = inputs else { return None };
    let only_moves = op.class() == Class::View || matches!(op, Op::Transpose(_) | Op::Slice(_) | Op::Concat(_));
    only_moves.then_some(*number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::operators::{Binary, BinaryOp, Transpose};
    use models::types::DType;

    #[test]
    fn small_constants_are_computed_and_large_ones_become_expressions() {
        let ty = TensorType::new(DType::I64, &[3]);
        let (a, b) = (Const::Small(vec![7.0, -7.0, 9.0]), Const::Fill(2.0));
        let div = Op::Binary(Binary { function: BinaryOp::Div });
        assert_eq!(fold_operator(&div, &[(&ty, &a), (&ty, &b)]), Some(Const::Small(vec![3.0, -3.0, 4.0])));
        assert_eq!(fold_operator(&div, &[(&ty, &a), (&ty, &Const::Random { seed: 1 })]), None);

        let large = TensorType::f32(&[512, 512]);
        let turn = Op::Transpose(Transpose { permutation: vec![1, 0] });
        assert_eq!(fold_operator(&turn, &[(&large, &Const::Fill(3.0))]), Some(Const::Fill(3.0)));
        let weight = Const::Bytes(Contents::new(vec![0; 512 * 512 * 4]));
        let Some(Const::Computed(computed)) = fold_operator(&turn, &[(&large, &weight)]) else {
            panic!("not an expression")
        };
        assert_eq!(computed.op, turn);
    }

    #[test]
    fn folded_integers_keep_all_64_bits() {
        let ty = TensorType::new(DType::I64, &[2]);
        let large = [i64::MAX - 1, i64::MAX - 2];
        let bytes = |numbers: [i64; 2]| Const::Bytes(Contents::new(numbers.map(i64::to_le_bytes).concat()));
        let add = Op::Binary(Binary { function: BinaryOp::Add });
        let folded = fold_operator(&add, &[(&ty, &bytes(large)), (&ty, &Const::Fill(1.0))]);
        assert_eq!(folded, Some(bytes([i64::MAX, i64::MAX - 1])));
        let folded = fold_operator(&add, &[(&ty, &bytes(large)), (&ty, &Const::Fill(3.0))]);
        assert_eq!(folded, Some(bytes([i64::MIN + 1, i64::MIN])));
    }

    #[test]
    fn expressions_do_not_grow_without_end() {
        let large = TensorType::f32(&[512, 512]);
        let mut data = Const::Bytes(Contents::new(vec![0; 512 * 512 * 4]));
        let add = Op::Binary(Binary { function: BinaryOp::Add });
        let doublings = (0..100).take_while(|_| match fold_operator(&add, &[(&large, &data), (&large, &data)]) {
            Some(twice) => {
                data = twice;
                true
            }
            None => false,
        });
        assert_eq!(doublings.count(), 5);
    }
}
