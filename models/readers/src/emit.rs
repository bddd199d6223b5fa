//! Helpers of all import rules: add operators (folding those over constants), query types, read constants.

use super::narrow::Narrow;
use super::{Outcome, malformed, unsupported};
use models::builder::GraphBuilder;
use models::graph::{Const, ValueId};
use models::operators::{
    Binary, BinaryOp, Cast, Class, Compare, CompareOp, Concat, Expand, MatMul, Op, Pad, Reshape, Slice, Transpose,
    Unary, UnaryOp, Where,
};
use models::types::{DType, TensorType};
use passes::fold::{MAX_SMALL, contents_of, fold_operator};
use reference::Tensor;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Returns the indices of nonzero elements of a row-major tensor, one list for each axis.
pub(crate) fn nonzero_indices(numbers: &[f64], extents: &[i64]) -> Vec<Vec<i64>> {
    let places: Vec<i64> = (0..).zip(numbers).filter(|(_, number)| **number != 0.0).map(|(place, _)| place).collect();
    if places.is_empty() {
        // The extents of an empty tensor may have a product above 64 bits.
        return vec![Vec::new(); extents.len()];
    }
    let along = |axis: usize| {
        let inner: i64 = extents[axis + 1..].iter().product();
        places.iter().map(|place| place / inner % extents[axis]).collect()
    };
    (0..extents.len()).map(along).collect()
}

pub(crate) struct Emit<'a> {
    pub builder: GraphBuilder,
    pub folder: Option<&'a Path>,
    pub narrow: BTreeMap<ValueId, Narrow>,
    /// Constants by the memory address of their protobuf message, so that unrolled loops add each constant once.
    pub shared: HashMap<usize, ValueId>,
    /// Bytes of the constants that rules and folding have computed.
    computed_bytes: u64,
}

/// Maximum bytes of all constants that are computed during an import. A small file can request many large ones.
const MAX_COMPUTED_BYTES: u64 = 2 << 30;

impl<'a> Emit<'a> {
    pub fn new(name: &str, folder: Option<&'a Path>) -> Emit<'a> {
        let builder = GraphBuilder::new(name);
        Emit { builder, folder, narrow: BTreeMap::new(), shared: HashMap::new(), computed_bytes: 0 }
    }

    pub fn narrow_range(&self, id: ValueId) -> Option<Narrow> {
        self.narrow.get(&id).copied()
    }

    pub fn set_narrow(&mut self, id: ValueId, narrow: Narrow) {
        self.narrow.insert(id, narrow);
    }

    /// Adds an operator and returns its output; if all inputs are constants, adds the folded result as a constant.
    pub fn push(&mut self, op: Op, inputs: &[ValueId]) -> Outcome<ValueId> {
        let types = inputs.iter().map(|&id| self.ty(id)).collect::<Outcome<Vec<_>>>()?;
        let op = op.with_front_axis(types.first().map_or(0, TensorType::rank));
        self.check_operands(&op, inputs, &types)?;
        let constants: Option<Vec<_>> =
            inputs.iter().zip(&types).map(|(&id, ty)| Some((ty, self.builder.constant_data(id)?))).collect();
        if let Some(data) = constants.and_then(|constants| fold_operator(&op, &constants)) {
            let ty = models::infer::infer_type(&op, &types.iter().collect::<Vec<_>>())?;
            if matches!(data, Const::Small(_) | Const::Bytes(_)) {
                self.count_computed(&ty)?;
            }
            return self.add_constant(ty, data);
        }
        if types.iter().any(|ty| ty.element_count() == Some(0))
            && let Some(made) = self.eval_empty(&op, &types)?
        {
            return Ok(made);
        }
        Ok(self.builder.push(op, inputs)?)
    }

    /// Returns the constant result of an operator with an empty input: empty, or zeros for sums over no elements.
    fn eval_empty(&mut self, op: &Op, types: &[TensorType]) -> Outcome<Option<ValueId>> {
        let ty = models::infer::infer_type(op, &types.iter().collect::<Vec<_>>())?;
        match ty.element_count() {
            Some(0) => Ok(Some(self.add_constant(ty, Const::Small(Vec::new()))?)),
            // The attention operator defines its result without keys.
            _ if op.class() == Class::Contraction && !matches!(op, Op::Attention(..)) => {
                Ok(Some(self.add_constant(ty, Const::Fill(0.0))?))
            }
            _ => Ok(None),
        }
    }

    pub fn add_constant(&mut self, ty: TensorType, data: Const) -> Outcome<ValueId> {
        Ok(self.builder.add_constant("constant", ty, data)?)
    }

    fn count_computed(&mut self, ty: &TensorType) -> Outcome<()> {
        self.computed_bytes = self.computed_bytes.saturating_add(ty.size_bytes().unwrap_or(u64::MAX));
        match self.computed_bytes {
            0..=MAX_COMPUTED_BYTES => Ok(()),
            _ => unsupported(format!(
                "the tensors that this model computes from constants take more than {} GiB; store them as weights",
                MAX_COMPUTED_BYTES >> 30
            )),
        }
    }

    /// Adds a constant that a rule has computed.
    pub fn constant_of(&mut self, tensor: &Tensor) -> Outcome<ValueId> {
        self.count_computed(tensor.tensor_type())?;
        self.add_constant(tensor.tensor_type().clone(), contents_of(tensor))
    }

    /// Adds an additive attention mask `[queries, keys]`: minus infinity where a key is hidden from a query.
    pub fn constant_mask(
        &mut self,
        [queries, keys]: [i64; 2],
        dtype: DType,
        hides: impl Fn(i64, i64) -> bool,
    ) -> Outcome<ValueId> {
        const MAX_ELEMENTS: i64 = 1 << 24;
        if queries.checked_mul(keys).is_none_or(|elements| elements > MAX_ELEMENTS) {
            return unsupported(format!("a mask of {queries} x {keys} elements is too large"));
        }
        let numbers: Vec<f64> = (0..queries * keys)
            .map(|index| if hides(index / keys, index % keys) { f64::NEG_INFINITY } else { 0.0 })
            .collect();
        self.constant_of(&Tensor::from_numbers(TensorType::new(dtype, &[queries, keys]), &numbers)?)
    }

    pub fn add_scalar(&mut self, dtype: DType, number: f64) -> Outcome<ValueId> {
        self.add_constant(TensorType::new(dtype, &[]), Const::Fill(number))
    }

    pub fn add_filled(&mut self, dtype: DType, extents: &[i64], number: f64) -> Outcome<ValueId> {
        self.add_constant(TensorType::new(dtype, extents), Const::Fill(number))
    }

    pub fn add_integers(&mut self, numbers: &[i64]) -> Outcome<ValueId> {
        let list = numbers.iter().map(|&number| number as f64).collect();
        self.add_constant(TensorType::new(DType::I64, &[numbers.len() as i64]), Const::Small(list))
    }

    /// Adds a constant of this shape that counts up from 0 in row-major order. A large constant is stored as an
    /// expression, so its memory does not grow with the extents that a file states.
    pub fn add_range(&mut self, dtype: DType, shape: &[i64]) -> Outcome<ValueId> {
        let ty = TensorType::new(dtype, shape);
        let Some(count) = ty.element_count().and_then(|count| i64::try_from(count).ok()) else {
            return malformed(format!("the shape {shape:?} is out of range"));
        };
        if count <= MAX_SMALL as i64 {
            let numbers: Vec<f64> = (0..count).map(|number| number as f64).collect();
            return self.constant_of(&Tensor::from_numbers(ty, &numbers)?);
        }
        let numbers = Const::range_along(dtype, &[count], 0, 0);
        let vector = self.add_constant(TensorType::new(dtype, &[count]), numbers)?;
        self.reshape(vector, shape)
    }

    pub fn ty(&self, id: ValueId) -> Outcome<TensorType> {
        Ok(self.builder.value_type(id)?.clone())
    }

    pub fn dtype(&self, id: ValueId) -> Outcome<DType> {
        Ok(self.builder.value_type(id)?.dtype)
    }

    pub fn rank(&self, id: ValueId) -> Outcome<usize> {
        Ok(self.builder.value_type(id)?.rank())
    }

    pub fn extents(&self, id: ValueId) -> Outcome<Vec<i64>> {
        let ty = self.builder.value_type(id)?;
        match ty.extents() {
            Some(extents) => Ok(extents),
            None => unsupported(format!("{ty} has a symbolic dimension")),
        }
    }

    /// Converts an axis, which may count from the back, to an index from the front.
    pub fn resolve_axis(&self, axis: i64, rank: usize) -> Outcome<usize> {
        let rank = rank as i64;
        let front = if axis < 0 { axis.saturating_add(rank) } else { axis };
        if (0..rank).contains(&front) {
            return Ok(front as usize);
        }
        malformed(format!("axis {axis} is out of range for {rank} dimensions"))
    }

    /// Returns a small constant, or None for a value computed at run time.
    fn known_tensor(&self, id: ValueId) -> Outcome<Option<Tensor>> {
        let Some(data) = self.builder.constant_data(id) else { return Ok(None) };
        let ty = self.builder.value_type(id)?;
        if ty.element_count().is_none_or(|elements| elements > MAX_SMALL) {
            return unsupported(format!("{ty} has too many elements to determine a shape or an attribute"));
        }
        Ok(Some(reference::constant_tensor(ty, data)?))
    }

    /// Returns the numbers of a constant, or None for a value computed at run time.
    pub fn known_numbers(&self, id: ValueId) -> Outcome<Option<Vec<f64>>> {
        Ok(self.known_tensor(id)?.map(|tensor| tensor.to_numbers()))
    }

    /// Returns whether `known_numbers` rounds the integers of a constant.
    pub fn is_rounded_as_numbers(&self, id: ValueId) -> Outcome<bool> {
        Ok(self.known_tensor(id)?.is_some_and(|tensor| tensor.is_rounded_as_numbers()))
    }

    /// Returns the numbers of an input that determines a shape or an attribute; refuses an input that is not constant.
    pub fn require_numbers(&self, id: ValueId, what: &str) -> Outcome<Vec<f64>> {
        match self.known_numbers(id)? {
            Some(numbers) => Ok(numbers),
            None => {
                unsupported(format!("`{what}` is computed at run time, so the shapes that depend on it are unknown"))
            }
        }
    }

    pub fn require_integers(&self, id: ValueId, what: &str) -> Outcome<Vec<i64>> {
        Ok(self.require_numbers(id, what)?.into_iter().map(|number| number as i64).collect())
    }

    pub fn require_number(&self, id: ValueId, what: &str) -> Outcome<f64> {
        match self.require_numbers(id, what)?.as_slice() {
            [number] => Ok(*number),
            numbers => malformed(format!("`{what}` must be one number, has {}", numbers.len())),
        }
    }

    /// Returns the number of a constant with one element, or None for a value computed at run time.
    pub fn known_scalar(&self, id: ValueId, what: &str) -> Outcome<Option<f64>> {
        match self.builder.constant_data(id) {
            Some(_) => self.require_number(id, what).map(Some),
            None => Ok(None),
        }
    }

    pub fn unary(&mut self, function: UnaryOp, x: ValueId) -> Outcome<ValueId> {
        self.push(Op::Unary(Unary { function }), &[x])
    }

    pub fn binary(&mut self, function: BinaryOp, a: ValueId, b: ValueId) -> Outcome<ValueId> {
        self.push(Op::Binary(Binary { function }), &[a, b])
    }

    pub fn binary_with(&mut self, function: BinaryOp, a: ValueId, number: f64) -> Outcome<ValueId> {
        let number = self.add_scalar(self.dtype(a)?, number)?;
        self.binary(function, a, number)
    }

    pub fn compare(&mut self, function: CompareOp, a: ValueId, b: ValueId) -> Outcome<ValueId> {
        self.push(Op::Compare(Compare { function }), &[a, b])
    }

    pub fn cast(&mut self, x: ValueId, to: DType) -> Outcome<ValueId> {
        if self.dtype(x)? == to { Ok(x) } else { self.push(Op::Cast(Cast { to }), &[x]) }
    }

    pub fn reshape(&mut self, x: ValueId, shape: &[i64]) -> Outcome<ValueId> {
        let extents = self.extents(x)?;
        if extents == shape {
            return Ok(x);
        }
        // In `Reshape`, 0 keeps the extent at its place, so it cannot express a 0 at another place.
        let is_kept = |(at, &extent): (usize, &i64)| extent != 0 || extents.get(at) == Some(&0);
        if extents.contains(&0) && !shape.iter().enumerate().all(is_kept) {
            let empty = TensorType::new(self.dtype(x)?, shape);
            return self.constant_of(&Tensor::from_numbers(empty, &[])?);
        }
        self.push(Op::Reshape(Reshape { shape: shape.to_vec() }), &[x])
    }

    pub fn transpose(&mut self, x: ValueId, permutation: &[usize]) -> Outcome<ValueId> {
        if permutation.iter().enumerate().all(|(index, &axis)| index == axis) {
            return Ok(x);
        }
        self.push(Op::Transpose(Transpose { permutation: permutation.iter().map(|&axis| axis as i64).collect() }), &[x])
    }

    /// Undoes `transpose` with this order.
    pub fn transpose_back(&mut self, x: ValueId, order: &[usize]) -> Outcome<ValueId> {
        let mut back = vec![0; order.len()];
        order.iter().enumerate().for_each(|(at, &axis)| back[axis] = at);
        self.transpose(x, &back)
    }

    /// Repeats elements along dimensions of extent 1, if the shape differs.
    pub fn expand(&mut self, x: ValueId, shape: &[i64]) -> Outcome<ValueId> {
        if self.extents(x)? == shape {
            return Ok(x);
        }
        self.push(Op::Expand(Expand { shape: shape.to_vec() }), &[x])
    }

    /// Moves the last `shift` elements of a dimension to its front.
    pub fn rotate(&mut self, x: ValueId, axis: usize, shift: i64) -> Outcome<ValueId> {
        let extent = self.extents(x)?[axis];
        let cut = extent - shift.rem_euclid(extent.max(1));
        if cut == extent {
            return Ok(x);
        }
        let parts = [self.slice(x, axis, cut, extent)?, self.slice(x, axis, 0, cut)?];
        self.concat_parts(&parts, axis)
    }

    pub fn slice(&mut self, x: ValueId, axis: usize, start: i64, stop: i64) -> Outcome<ValueId> {
        if start == 0 && self.extents(x)?.get(axis) == Some(&stop) {
            return Ok(x);
        }
        let op = Op::Slice(Slice { axes: vec![axis as i64], starts: vec![start], stops: vec![stop], steps: vec![1] });
        self.push(op, &[x])
    }

    pub fn concat_parts(&mut self, parts: &[ValueId], axis: usize) -> Outcome<ValueId> {
        match parts {
            [only] => Ok(*only),
            parts => self.push(Op::Concat(Concat { axis: axis as i64 }), parts),
        }
    }

    /// Pads with a number; `pads` holds all leading, then all trailing pads. Non-finite numbers are concatenated.
    pub fn pad(&mut self, x: ValueId, pads: &[i64], value: f64) -> Outcome<ValueId> {
        if value.is_finite() {
            return self.push(Op::Pad(Pad { pads: pads.to_vec(), value }), &[x]);
        }
        let (rank, dtype) = (self.rank(x)?, self.dtype(x)?);
        if pads.len() != 2 * rank || pads.iter().any(|&pad| pad < 0) {
            return malformed(format!("pads {pads:?} do not fit {rank} dimensions"));
        }
        let mut y = x;
        for axis in 0..rank {
            let mut extents = self.extents(y)?;
            let mut part = |pad: i64| -> Outcome<Option<ValueId>> {
                extents[axis] = pad;
                if pad > 0 { self.add_filled(dtype, &extents, value).map(Some) } else { Ok(None) }
            };
            let (head, tail) = (part(pads[axis])?, part(pads[rank + axis])?);
            let parts: Vec<ValueId> = head.into_iter().chain([y]).chain(tail).collect();
            y = self.concat_parts(&parts, axis)?;
        }
        Ok(y)
    }

    pub fn mat_mul(&mut self, a: ValueId, b: ValueId) -> Outcome<ValueId> {
        self.push(Op::MatMul(MatMul { transpose_a: false, transpose_b: false }), &[a, b])
    }

    /// Computes the angle of `x + iy`, from -π to π.
    pub fn emit_angle(&mut self, y: ValueId, x: ValueId) -> Outcome<ValueId> {
        use std::f64::consts::PI;
        let dtype = self.dtype(x)?;
        let zero = self.add_scalar(dtype, 0.0)?;
        let quotient = self.binary(BinaryOp::Div, y, x)?;
        let slope = self.unary(UnaryOp::Atan, quotient)?;
        let is_left = self.compare(CompareOp::Less, x, zero)?;
        let is_below = self.compare(CompareOp::Less, y, zero)?;
        let (half, minus_half) = (self.add_scalar(dtype, PI)?, self.add_scalar(dtype, -PI)?);
        let half_turn = self.push(Op::Where(Where {}), &[is_below, minus_half, half])?;
        let half_turn = self.push(Op::Where(Where {}), &[is_left, half_turn, zero])?;
        let shifted = self.binary(BinaryOp::Add, slope, half_turn)?;
        // For x = 0 the quotient is infinite or NaN.
        let is_upright = self.compare(CompareOp::Equal, x, zero)?;
        let side = self.unary(UnaryOp::Sign, y)?;
        let upright = self.binary_with(BinaryOp::Mul, side, PI / 2.0)?;
        self.push(Op::Where(Where {}), &[is_upright, upright, shifted])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_files_cannot_request_constants_without_end() {
        let mut emit = Emit::new("ranges", None);
        let ty = TensorType::new(DType::F32, &[1 << 24]);
        (0..MAX_COMPUTED_BYTES >> 26).for_each(|_| emit.count_computed(&ty).map_err(|_| ()).expect("within the limit"));
        assert!(emit.count_computed(&ty).is_err());
        assert!(emit.constant_of(&Tensor::from_numbers(TensorType::new(DType::F32, &[1]), &[1.0]).unwrap()).is_err());
    }

    #[test]
    fn nonzero_elements_are_listed_by_axis() {
        assert_eq!(nonzero_indices(&[0.0, 1.0, 2.0, 0.0], &[2, 2]), [[0_i64, 1], [1, 0]]);
        assert_eq!(nonzero_indices(&[], &[0, 1 << 32, 1 << 31]), vec![Vec::<i64>::new(); 3]);
    }

    #[test]
    fn a_large_range_is_an_expression() {
        let mut emit = Emit::new("ranges", None);
        let id = emit.add_range(DType::I64, &[1, 1 << 40]).unwrap();
        assert!(matches!(emit.builder.constant_data(id), Some(Const::Computed(_))));
        assert!(emit.add_range(DType::I64, &[1 << 32, 1 << 31]).is_err());
    }
}
