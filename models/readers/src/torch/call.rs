//! One node with resolved arguments, as rules see it: arguments by name, with the defaults that files omit.

use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::types::{DType, TensorType};
use std::collections::HashMap;

/// Converts an integer to the number that scalars are computed with; refuses one that would be rounded.
pub(super) fn exact_float(number: i64) -> Outcome<f64> {
    let float = number as f64;
    if float as i64 == number { Ok(float) } else { unsupported(format!("the integer {number}, which is above 2^53")) }
}

#[derive(Clone, Debug)]
pub(super) enum Argument {
    None,
    Tensor(ValueId),
    Tensors(Vec<Option<ValueId>>),
    Int(i64),
    Ints(Vec<i64>),
    Float(f64),
    Floats(Vec<f64>),
    Bool(bool),
    Text(String),
    /// An argument without effect: device, layout, memory format, or element type, as the file states the result types.
    Ignored,
}

pub(super) struct Call<'a, 'b> {
    pub emit: &'a mut Emit<'b>,
    /// Operator name, without `aten.` and without the underscore of in-place operators.
    pub operator: &'a str,
    pub arguments: HashMap<&'a str, Argument>,
    /// Names of the arguments that are complex tensors.
    pub complex: Vec<&'a str>,
    /// Types that the file states for the outputs, where all extents are known.
    pub stated: Vec<Option<TensorType>>,
    /// Number of leading outputs that may be read. A rule may leave out the others.
    pub wanted: usize,
    /// Dimensions of the first operand in memory order, from the largest stride to the smallest; None if the order is
    /// unknown or the memory has gaps.
    pub memory_order: Option<Vec<usize>>,
}

impl Call<'_, '_> {
    pub fn tensor_argument(&self, name: &str) -> Outcome<ValueId> {
        match self.optional_tensor(name)? {
            Some(id) => Ok(id),
            None => malformed(format!("`{name}` is missing")),
        }
    }

    pub fn optional_tensor(&self, name: &str) -> Outcome<Option<ValueId>> {
        match self.arguments.get(name) {
            None | Some(Argument::None) => Ok(None),
            Some(Argument::Tensor(id)) => Ok(Some(*id)),
            Some(other) => malformed(format!("`{name}` must be a tensor, is {other:?}")),
        }
    }

    pub fn tensor_list(&self, name: &str) -> Outcome<Vec<ValueId>> {
        let all = self.optional_tensors(name)?;
        match all.iter().copied().collect() {
            Some(all) => Ok(all),
            None => malformed(format!("a tensor of the list `{name}` is missing")),
        }
    }

    pub fn optional_tensors(&self, name: &str) -> Outcome<Vec<Option<ValueId>>> {
        match self.arguments.get(name) {
            Some(Argument::Tensors(ids)) => Ok(ids.clone()),
            _ => malformed(format!("`{name}` must be a list of tensors")),
        }
    }

    pub fn has_argument(&self, name: &str) -> bool {
        !matches!(self.arguments.get(name), None | Some(Argument::None))
    }

    pub fn int_argument(&self, name: &str, default: i64) -> Outcome<i64> {
        Ok(self.optional_int(name)?.unwrap_or(default))
    }

    pub fn optional_int(&self, name: &str) -> Outcome<Option<i64>> {
        match self.arguments.get(name) {
            None | Some(Argument::None) => Ok(None),
            Some(Argument::Int(number)) => Ok(Some(*number)),
            Some(other) => malformed(format!("`{name}` must be an integer, is {other:?}")),
        }
    }

    /// Returns a list of integers: empty if omitted, one element for a single integer.
    pub fn int_list(&self, name: &str) -> Outcome<Vec<i64>> {
        match self.arguments.get(name) {
            None | Some(Argument::None) => Ok(Vec::new()),
            Some(Argument::Ints(numbers)) => Ok(numbers.clone()),
            Some(Argument::Int(number)) => Ok(vec![*number]),
            // The element type of an empty list is unknown.
            Some(Argument::Floats(list)) if list.is_empty() => Ok(Vec::new()),
            Some(Argument::Tensors(list)) if list.is_empty() => Ok(Vec::new()),
            Some(other) => malformed(format!("`{name}` must be a list of integers, is {other:?}")),
        }
    }

    /// Returns one integer per spatial dimension; a single integer is repeated.
    pub fn spatial_list(&self, name: &str, rank: usize, default: i64) -> Outcome<Vec<i64>> {
        match self.int_list(name)?.as_slice() {
            [] => Ok(vec![default; rank]),
            [one] => Ok(vec![*one; rank]),
            many if many.len() == rank => Ok(many.to_vec()),
            many => malformed(format!("`{name}` has {} numbers, but there are {rank} dimensions", many.len())),
        }
    }

    pub fn float_argument(&self, name: &str, default: f64) -> Outcome<f64> {
        Ok(self.optional_float(name)?.unwrap_or(default))
    }

    pub fn optional_float(&self, name: &str) -> Outcome<Option<f64>> {
        match self.arguments.get(name) {
            None | Some(Argument::None) => Ok(None),
            Some(Argument::Float(number)) => Ok(Some(*number)),
            Some(Argument::Int(number)) => exact_float(*number).map(Some),
            Some(Argument::Bool(flag)) => Ok(Some(f64::from(u8::from(*flag)))),
            Some(other) => malformed(format!("`{name}` must be a number, is {other:?}")),
        }
    }

    pub fn flag_argument(&self, name: &str, default: bool) -> Outcome<bool> {
        match self.arguments.get(name) {
            None | Some(Argument::None) => Ok(default),
            Some(Argument::Bool(flag)) => Ok(*flag),
            Some(other) => malformed(format!("`{name}` must be a boolean, is {other:?}")),
        }
    }

    pub fn text_argument(&self, name: &str, default: &str) -> Outcome<String> {
        match self.arguments.get(name) {
            None | Some(Argument::None) => Ok(default.to_owned()),
            Some(Argument::Text(text)) => Ok(text.clone()),
            Some(other) => malformed(format!("`{name}` must be a string, is {other:?}")),
        }
    }

    pub fn result_dtype(&self) -> Outcome<DType> {
        Ok(self.result_type()?.dtype)
    }

    pub fn result_type(&self) -> Outcome<TensorType> {
        match self.stated.first() {
            Some(Some(ty)) => Ok(ty.clone()),
            _ => malformed("the file does not state the type of the result, or states one that is not supported"),
        }
    }

    /// Converts an axis, which may count from the back, to an index from the front.
    pub fn axis_argument(&self, x: ValueId, name: &str, default: i64) -> Outcome<usize> {
        self.emit.resolve_axis(self.int_argument(name, default)?, self.emit.rank(x)?.max(1))
    }

    /// Returns the extent of an axis. Fails for a scalar, although [`Call::axis_argument`] accepts axis 0 of a scalar.
    pub fn axis_extent(&self, x: ValueId, axis: usize) -> Outcome<i64> {
        let extent = self.emit.extents(x)?.get(axis).copied();
        extent.map_or_else(|| malformed("a scalar has no dimensions"), Ok)
    }

    /// Converts axes to indices from the front, in ascending order; all axes if none are given.
    pub fn axis_list(&self, x: ValueId, name: &str) -> Outcome<Vec<i64>> {
        let rank = self.emit.rank(x)?;
        let given = self.int_list(name)?;
        if given.is_empty() {
            return Ok((0..rank as i64).collect());
        }
        let axes = given.into_iter().map(|axis| Ok(self.emit.resolve_axis(axis, rank.max(1))? as i64));
        let mut axes = axes.collect::<Outcome<Vec<i64>>>()?;
        axes.sort_unstable();
        axes.dedup();
        Ok(axes)
    }

    /// Returns a tensor, or a number as a tensor, cast to this element type.
    pub fn operand_as(&mut self, name: &str, dtype: DType) -> Outcome<ValueId> {
        match self.arguments.get(name).cloned() {
            Some(Argument::Tensor(id)) => self.emit.cast(id, dtype),
            _ => match self.optional_float(name)? {
                Some(number) => self.emit.add_scalar(dtype, number),
                None => malformed(format!("`{name}` is missing")),
            },
        }
    }
}
