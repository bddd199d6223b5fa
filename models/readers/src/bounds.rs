//! Checks of constant operands for which the result of an operator is undefined: indices outside of the data, and
//! integer divisors of zero. Operands that are computed at run time are not checked.

use crate::{Emit, Outcome, malformed};
use models::graph::{Const, ValueId};
use models::operators::{Binary, BinaryOp, Class, Gather, GatherElements, GatherNd, Op, ScatterElements, ScatterNd};
use models::types::{Dim, TensorType};

/// Maximum number of elements of a constant that is checked, and of each constant that it is computed from. It bounds
/// the import time; weights above it are not indices.
const MAX_CHECKED: u64 = 1 << 20;

impl Emit<'_> {
    /// Refuses an operator whose constant operands make its result undefined.
    pub(crate) fn check_operands(&self, op: &Op, inputs: &[ValueId], types: &[TensorType]) -> Outcome<()> {
        match op {
            Op::Gather(Gather { axis })
            | Op::GatherElements(GatherElements { axis })
            | Op::ScatterElements(ScatterElements { axis, .. }) => self.check_indices(inputs, types, *axis, 1),
            Op::GatherNd(GatherNd { batch }) => self.check_indices(inputs, types, *batch, tuple_length(types)),
            Op::ScatterNd(ScatterNd { .. }) => self.check_indices(inputs, types, 0, tuple_length(types)),
            Op::Binary(Binary { function: BinaryOp::Div | BinaryOp::Mod | BinaryOp::Fmod | BinaryOp::FloorDiv }) => {
                self.check_divisor(inputs, types)
            }
            _ => Ok(()),
        }
    }

    /// Checks constant indices (the second input) into consecutive axes of the data (the first input).
    fn check_indices(&self, inputs: &[ValueId], types: &[TensorType], axis: i64, count: usize) -> Outcome<()> {
        let (&[_, indices, ..], [data, _, ..]) = (inputs, types) else { return Ok(()) };
        let Some(dims) = usize::try_from(axis).ok().and_then(|axis| data.shape.get(axis..)?.get(..count)) else {
            // Type inference reports such an axis.
            return Ok(());
        };
        for tuple in self.checked_numbers(indices, count).unwrap_or_default().chunks(count.max(1)) {
            for ((axis, dim), &index) in (axis..).zip(dims).zip(tuple) {
                // The range of a symbolic dimension is unknown.
                let Dim::Known(extent) = *dim else { continue };
                if index < -(extent as f64) || index >= extent as f64 {
                    return match extent {
                        0 => malformed(format!("index {index} is out of range: axis {axis} has no elements")),
                        _ => malformed(format!(
                            "index {index} is out of range: axis {axis} has {extent} elements, so indices are from {} to {}",
                            -extent,
                            extent - 1
                        )),
                    };
                }
            }
        }
        Ok(())
    }

    fn check_divisor(&self, inputs: &[ValueId], types: &[TensorType]) -> Outcome<()> {
        let (&[_, divisor], [_, ty]) = (inputs, types) else { return Ok(()) };
        if ty.dtype.is_float() {
            return Ok(());
        }
        match self.checked_numbers(divisor, 1).unwrap_or_default().iter().position(|&number| number == 0.0) {
            Some(_) if ty.element_count() == Some(1) => malformed("an integer is divided by the constant 0"),
            Some(place) => malformed(format!("integers are divided by a constant whose element {place} is 0")),
            None => Ok(()),
        }
    }

    /// Checks that the numbers of a constant are inside of a range; both limits are included.
    pub(crate) fn check_range(&self, id: ValueId, what: &str, [low, high]: [i64; 2]) -> Outcome<()> {
        let numbers = self.checked_numbers(id, 1).unwrap_or_default();
        match numbers.iter().find(|number| !(low as f64..=high as f64).contains(*number)) {
            Some(number) => malformed(format!("{what} {number} is out of range; it must be from {low} to {high}")),
            None => Ok(()),
        }
    }

    /// Returns the numbers of a constant, only the first `row` of them if all are equal. Returns None for values that
    /// are computed at run time, and for constants that are random, unreadable or too large to be checked.
    fn checked_numbers(&self, id: ValueId, row: usize) -> Option<Vec<f64>> {
        let (ty, data) = (self.builder.value_type(id).ok()?, self.builder.constant_data(id)?);
        match data {
            Const::Fill(_) if ty.element_count() == Some(0) => None,
            Const::Fill(number) => Some(vec![*number; row]),
            _ if is_cheap(ty, data) => reference::constant_tensor(ty, data).ok().map(|tensor| tensor.to_numbers()),
            _ => None,
        }
    }
}

/// Returns the number of axes that each index of `GatherNd` and `ScatterNd` covers: the last extent of the indices.
fn tuple_length(types: &[TensorType]) -> usize {
    let extents = types.get(1).and_then(TensorType::extents).unwrap_or_default();
    extents.last().map_or(0, |&extent| usize::try_from(extent).unwrap_or(0))
}

/// Returns whether computing a constant takes time in proportion to a bounded number of elements.
fn is_cheap(ty: &TensorType, data: &Const) -> bool {
    let is_small = ty.element_count().is_some_and(|elements| elements <= MAX_CHECKED);
    is_small
        && match data {
            Const::Random { .. } => false,
            Const::Fill(_) | Const::Small(_) | Const::Bytes(_) | Const::File { .. } => true,
            Const::Computed(computed) => {
                let is_linear = matches!(computed.op.class(), Class::Pointwise | Class::Movement | Class::View)
                    || matches!(computed.op, Op::CumSum(_));
                is_linear && computed.inputs.iter().all(|(ty, data)| is_cheap(ty, data))
            }
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Refusal;
    use models::types::DType;

    fn reason_of<T>(outcome: Outcome<T>) -> Option<String> {
        match outcome.err()? {
            Refusal::Malformed(reason) | Refusal::Unsupported(reason) => Some(reason),
        }
    }

    #[test]
    fn integers_are_not_divided_by_a_constant_zero() {
        let mut emit = Emit::new("quotients", None);
        let mut divide = |dtype: DType, function: BinaryOp, divisor: &[f64]| {
            let ty = TensorType::new(dtype, &[2]);
            let x = emit.builder.add_input("x", ty.clone()).unwrap();
            let divisor = match divisor {
                [number] => emit.add_scalar(dtype, *number),
                numbers => emit.add_constant(ty, Const::Small(numbers.to_vec())),
            };
            let divisor = divisor.map_err(|_| ()).unwrap();
            reason_of(emit.binary(function, x, divisor))
        };
        assert_eq!(divide(DType::I32, BinaryOp::Div, &[0.0]).unwrap(), "an integer is divided by the constant 0");
        for function in [BinaryOp::Div, BinaryOp::Mod, BinaryOp::Fmod, BinaryOp::FloorDiv] {
            let reason = divide(DType::I64, function, &[3.0, 0.0]).unwrap();
            assert_eq!(reason, "integers are divided by a constant whose element 1 is 0");
            assert_eq!(divide(DType::I64, function, &[3.0, -1.0]), None);
            assert_eq!(divide(DType::F32, function, &[3.0, 0.0]), None);
        }
        assert_eq!(divide(DType::U8, BinaryOp::Mul, &[0.0]), None);
    }

    #[test]
    fn an_axis_without_elements_has_no_indices() {
        let mut emit = Emit::new("lookup", None);
        let table = emit.builder.add_input("table", TensorType::f32(&[0, 4])).unwrap();
        let Ok(indices) = emit.add_integers(&[0]) else { panic!("a constant") };
        let reason = reason_of(emit.push(Op::Gather(Gather { axis: 0 }), &[table, indices]));
        assert_eq!(reason.unwrap(), "index 0 is out of range: axis 0 has no elements");
    }

    #[test]
    fn indices_into_a_symbolic_dimension_are_not_checked() {
        let mut emit = Emit::new("lookup", None);
        let shape = vec![Dim::Symbol("n".to_owned()), Dim::Known(4)];
        let table = emit.builder.add_input("table", TensorType { dtype: DType::F32, shape }).unwrap();
        let mut look_up = |axis: i64, index: i64| {
            let Ok(indices) = emit.add_integers(&[index]) else { panic!("a constant") };
            reason_of(emit.push(Op::Gather(Gather { axis }), &[table, indices]))
        };
        assert_eq!(look_up(0, 1000), None);
        assert_eq!(look_up(1, 3), None);
        let reason = look_up(1, 1000).unwrap();
        assert_eq!(reason, "index 1000 is out of range: axis 1 has 4 elements, so indices are from -4 to 3");
    }
}
