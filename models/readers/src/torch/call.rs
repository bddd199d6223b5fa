//! One node as its rule sees it: arguments by name, with the defaults that files leave out.

use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::types::{DType, TensorType};
use std::collections::HashMap;

/// An argument with tensors and symbols found.
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
    /// A device, a layout, a memory format, and element types, which the results state too.
    Ignored,
}

/// What a rule works with: the graph in the making and one node with its arguments found.
pub(super) struct Call<'a, 'b> {
    pub emit: &'a mut Emit<'b>,
    /// After `aten.`, without the underscore of operators that write to their input.
    pub operator: &'a str,
    pub arguments: HashMap<&'a str, Argument>,
    /// Names of arguments whose elements are complex numbers.
    pub complex: Vec<&'a str>,
    /// Types that the file states for the outputs, where they have numbers.
    pub stated: Vec<Option<TensorType>>,
}

impl Call<'_, '_> {
    /// A tensor that must be given.
    pub fn tensor(&self, name: &str) -> Outcome<ValueId> {
        match self.optional_tensor(name)? {
            Some(id) => Ok(id),
            None => malformed(format!("`{name}` is missing")),
        }
    }

    pub fn optional_tensor(&self, name: &str) -> Outcome<Option<ValueId>> {
        match self.arguments.get(name) {
            None | Some(Argument::None) => Ok(None),
            Some(Argument::Tensor(id)) => Ok(Some(*id)),
            Some(other) => malformed(format!("`{name}` is no tensor but {other:?}")),
        }
    }

    pub fn tensors(&self, name: &str) -> Outcome<Vec<ValueId>> {
        let all = self.optional_tensors(name)?;
        match all.iter().copied().collect() {
            Some(all) => Ok(all),
            None => malformed(format!("a tensor of `{name}` is missing")),
        }
    }

    pub fn optional_tensors(&self, name: &str) -> Outcome<Vec<Option<ValueId>>> {
        match self.arguments.get(name) {
            Some(Argument::Tensors(ids)) => Ok(ids.clone()),
            _ => malformed(format!("`{name}` is no list of tensors")),
        }
    }

    pub fn has(&self, name: &str) -> bool {
        !matches!(self.arguments.get(name), None | Some(Argument::None))
    }

    pub fn int(&self, name: &str, default: i64) -> Outcome<i64> {
        Ok(self.optional_int(name)?.unwrap_or(default))
    }

    pub fn optional_int(&self, name: &str) -> Outcome<Option<i64>> {
        match self.arguments.get(name) {
            None | Some(Argument::None) => Ok(None),
            Some(Argument::Int(number)) => Ok(Some(*number)),
            Some(other) => malformed(format!("`{name}` is no integer but {other:?}")),
        }
    }

    /// A list of integers; one that is left out is empty, and a single integer is a list of one.
    pub fn ints(&self, name: &str) -> Outcome<Vec<i64>> {
        match self.arguments.get(name) {
            None | Some(Argument::None) => Ok(Vec::new()),
            Some(Argument::Ints(numbers)) => Ok(numbers.clone()),
            Some(Argument::Int(number)) => Ok(vec![*number]),
            // An empty list has lost its type.
            Some(Argument::Floats(list)) if list.is_empty() => Ok(Vec::new()),
            Some(Argument::Tensors(list)) if list.is_empty() => Ok(Vec::new()),
            Some(other) => malformed(format!("`{name}` is no list of integers but {other:?}")),
        }
    }

    /// One integer per spatial dimension; a list of one counts for each.
    pub fn spatial(&self, name: &str, rank: usize, default: i64) -> Outcome<Vec<i64>> {
        match self.ints(name)?.as_slice() {
            [] => Ok(vec![default; rank]),
            [one] => Ok(vec![*one; rank]),
            many if many.len() == rank => Ok(many.to_vec()),
            many => malformed(format!("`{name}` has {} numbers for {rank} dimensions", many.len())),
        }
    }

    pub fn float(&self, name: &str, default: f64) -> Outcome<f64> {
        Ok(self.optional_float(name)?.unwrap_or(default))
    }

    pub fn optional_float(&self, name: &str) -> Outcome<Option<f64>> {
        match self.arguments.get(name) {
            None | Some(Argument::None) => Ok(None),
            Some(Argument::Float(number)) => Ok(Some(*number)),
            Some(Argument::Int(number)) => Ok(Some(*number as f64)),
            Some(Argument::Bool(flag)) => Ok(Some(f64::from(u8::from(*flag)))),
            Some(other) => malformed(format!("`{name}` is no number but {other:?}")),
        }
    }

    pub fn flag(&self, name: &str, default: bool) -> Outcome<bool> {
        match self.arguments.get(name) {
            None | Some(Argument::None) => Ok(default),
            Some(Argument::Bool(flag)) => Ok(*flag),
            Some(other) => malformed(format!("`{name}` is no flag but {other:?}")),
        }
    }

    pub fn text(&self, name: &str, default: &str) -> Outcome<String> {
        match self.arguments.get(name) {
            None | Some(Argument::None) => Ok(default.to_owned()),
            Some(Argument::Text(text)) => Ok(text.clone()),
            Some(other) => malformed(format!("`{name}` is no text but {other:?}")),
        }
    }

    /// The element type that the file states for a result.
    pub fn result_dtype(&self) -> Outcome<DType> {
        match self.stated.first() {
            Some(Some(ty)) => Ok(ty.dtype),
            _ => malformed("the file does not state the type of its result"),
        }
    }

    /// An axis counted from the front.
    pub fn axis(&self, x: ValueId, name: &str, default: i64) -> Outcome<usize> {
        self.emit.axis(self.int(name, default)?, self.emit.rank(x)?.max(1))
    }

    /// Returns the extent of a dimension. A number has none, although [`Call::axis`] lets it have the axis 0.
    pub fn extent(&self, x: ValueId, axis: usize) -> Outcome<i64> {
        let extent = self.emit.extents(x)?.get(axis).copied();
        extent.map_or_else(|| malformed("a number has no dimensions"), Ok)
    }

    /// Axes counted from the front, in ascending order; all when none are given.
    pub fn axes(&self, x: ValueId, name: &str) -> Outcome<Vec<i64>> {
        let rank = self.emit.rank(x)?;
        let given = self.ints(name)?;
        if given.is_empty() {
            return Ok((0..rank as i64).collect());
        }
        let axes = given.into_iter().map(|axis| Ok(self.emit.axis(axis, rank.max(1))? as i64));
        let mut axes = axes.collect::<Outcome<Vec<i64>>>()?;
        axes.sort_unstable();
        axes.dedup();
        Ok(axes)
    }

    /// A tensor, or a number as one, in this element type.
    pub fn operand(&mut self, name: &str, dtype: DType) -> Outcome<ValueId> {
        match self.arguments.get(name).cloned() {
            Some(Argument::Tensor(id)) => self.emit.cast(id, dtype),
            _ => match self.optional_float(name)? {
                Some(number) => self.emit.scalar(dtype, number),
                None => malformed(format!("`{name}` is missing")),
            },
        }
    }

    /// An argument that has only one value here.
    pub fn expect_int(&self, name: &str, expected: i64) -> Outcome<()> {
        match self.int(name, expected)? {
            found if found == expected => Ok(()),
            found => unsupported(format!("`{name}` is {found}, only {expected} can be represented")),
        }
    }
}
