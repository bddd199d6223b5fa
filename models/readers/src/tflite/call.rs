//! One TFLite operator as rules see it: attributes by field number, inputs by position, as stored or as real numbers.

use super::flatbuffer::{FlatTable, Read};
use super::joined::Joins;
use super::schema::{Operator, Quantisation, Tensor};
use crate::{Emit, Outcome, Refusal, malformed, unsupported};
use models::graph::{Const, ValueId};
use models::operators::{BinaryOp, Clip, Dequantize, Op, Quantize, Requantize, UnaryOp};
use models::types::{DType, TensorType};
use passes::quantise;
use std::collections::HashMap;

pub(super) struct Call<'a, 'b> {
    pub emit: &'a mut Emit<'b>,
    pub operator: &'a Operator<'a>,
    pub tensors: &'a [Tensor],
    /// Inputs by position; None for an omitted optional input.
    pub inputs: Vec<Option<ValueId>>,
    pub reals: &'a mut RealConstants,
    pub joins: &'a mut Joins,
}

/// Constants as real numbers, by the stored constant and the tensor with its scales, so that unrolled loops convert each
/// constant once.
pub(super) type RealConstants = HashMap<(ValueId, *const Tensor), ValueId>;

impl<'a> Call<'a, '_> {
    pub fn input(&self, index: usize) -> Outcome<ValueId> {
        match self.optional_input(index) {
            Some(id) => Ok(id),
            None => malformed(format!("input {index} is missing")),
        }
    }

    pub fn optional_input(&self, index: usize) -> Option<ValueId> {
        self.inputs.get(index).copied().flatten()
    }

    pub fn scales_of_input(&self, index: usize) -> Option<&'a Quantisation> {
        self.find_tensor(*self.operator.inputs.get(index)?)?.quantisation.as_ref()
    }

    pub fn scales_of_output(&self, index: usize) -> Option<(&'a Quantisation, DType)> {
        let tensor = self.find_tensor(*self.operator.outputs.get(index)?)?;
        let dtype = tensor.dtype().ok().filter(|dtype| !dtype.is_float())?;
        Some((tensor.quantisation.as_ref()?, dtype))
    }

    fn find_tensor(&self, index: i32) -> Option<&'a Tensor> {
        self.tensors.get(usize::try_from(index).ok()?)
    }

    pub fn output_dtype(&self, index: usize) -> Outcome<DType> {
        let tensor = self.operator.outputs.get(index).and_then(|&index| self.find_tensor(index));
        match tensor.map(Tensor::dtype) {
            Some(Ok(dtype)) => Ok(dtype),
            Some(Err(reason)) => unsupported(format!("result type: {reason}")),
            None => malformed(format!("output {index} is missing")),
        }
    }

    pub fn output_count(&self) -> usize {
        self.operator.outputs.len()
    }

    /// Returns an input as real numbers; dequantises a quantised one.
    pub fn real(&mut self, index: usize) -> Outcome<ValueId> {
        let x = self.input(index)?;
        let tensor = self.operator.inputs.get(index).and_then(|&index| self.find_tensor(index));
        let Some(tensor) = tensor.filter(|_| self.emit.builder.constant_data(x).is_some()) else {
            return self.convert_input(x, index);
        };
        let key = (x, std::ptr::from_ref(tensor));
        if let Some(&real) = self.reals.get(&key) {
            return Ok(real);
        }
        let real = self.convert_input(x, index)?;
        self.reals.insert(key, real);
        Ok(real)
    }

    fn convert_input(&mut self, x: ValueId, index: usize) -> Outcome<ValueId> {
        match self.scales_of_input(index) {
            Some(scales) if !self.emit.dtype(x)?.is_float() => self.dequantise_input(x, scales),
            // Half precision is only a storage format of weights; TFLite computes in 32 bits.
            _ if self.emit.dtype(x)? == DType::F16 && self.emit.builder.constant_data(x).is_some() => {
                self.emit.cast(x, DType::F32)
            }
            _ => Ok(x),
        }
    }

    pub fn real_inputs(&mut self) -> Outcome<Vec<ValueId>> {
        match self.inputs.len() {
            0 => malformed("there are no inputs"),
            count => (0..count).map(|index| self.real(index)).collect(),
        }
    }

    /// Returns the inputs of a data movement: as stored if all have the output's quantisation, else as real numbers.
    pub fn movable_inputs(&mut self, indices: &[usize]) -> Outcome<Vec<ValueId>> {
        let out = self.scales_of_output(0).map(|(scales, _)| scales);
        let keeps_scale = indices.iter().all(|&index| self.scales_of_input(index) == out);
        indices.iter().map(|&index| if keeps_scale { self.input(index) } else { self.real(index) }).collect()
    }

    fn dequantise_input(&mut self, x: ValueId, scales: &Quantisation) -> Outcome<ValueId> {
        let axis = if scales.scales.len() == 1 { 0 } else { i64::from(scales.axis) };
        let ty = self.emit.ty(x)?;
        if !(0..ty.rank() as i64).contains(&axis) && scales.scales.len() > 1 {
            return malformed(format!("the scales are along axis {}, but the tensor is {ty}", scales.axis));
        }
        let scale = self.scale_constant(scales)?;
        if ty.dtype == DType::I64 {
            return self.scale_wide(x, scale, axis as usize);
        }
        let mut inputs = vec![x, scale];
        inputs.extend(self.zero_constant(scales, ty.dtype)?);
        self.emit.push(Op::Dequantize(Dequantize { axis }), &inputs)
    }

    /// Multiplies 64-bit integers by their scales; such integers are biases of layers with 16-bit data.
    fn scale_wide(&mut self, x: ValueId, scale: ValueId, axis: usize) -> Outcome<ValueId> {
        let mut shape = vec![1; self.emit.rank(x)?];
        if let (Some(extent), [count]) = (shape.get_mut(axis), &self.emit.extents(scale)?[..]) {
            *extent = *count;
        }
        let scale = if shape.is_empty() { scale } else { self.emit.reshape(scale, &shape)? };
        let x = self.emit.cast(x, DType::F32)?;
        self.emit.binary(BinaryOp::Mul, x, scale)
    }

    pub fn store_output(&mut self, y: ValueId, index: usize) -> Outcome<ValueId> {
        let Some((scales, to)) = self.scales_of_output(index) else { return Ok(y) };
        if !self.emit.dtype(y)?.is_float() {
            return Ok(y);
        }
        if scales.scales.len() > 1 {
            return unsupported("a result with one scale per channel");
        }
        let scale = self.scale_constant(scales)?;
        let mut inputs = vec![y, scale];
        inputs.extend(self.zero_constant(scales, to)?);
        self.emit.push(Op::Quantize(Quantize { to, axis: 0 }), &inputs)
    }

    /// Returns a stored result as real numbers, as the next step of a recurrent layer reads it.
    pub fn real_output(&mut self, stored: ValueId, index: usize) -> Outcome<ValueId> {
        match self.scales_of_output(index) {
            Some((scales, _)) if !self.emit.dtype(stored)?.is_float() => self.dequantise_input(stored, scales),
            _ => Ok(stored),
        }
    }

    fn scale_constant(&mut self, scales: &Quantisation) -> Outcome<ValueId> {
        let numbers: Vec<f64> = scales.scales.iter().map(|&scale| scale.into()).collect();
        self.number_constant(DType::F32, &numbers)
    }

    /// Adds the zero points as a constant, or returns None if all are 0.
    fn zero_constant(&mut self, scales: &Quantisation, dtype: DType) -> Outcome<Option<ValueId>> {
        if scales.zeros.iter().all(|&zero| zero == 0) {
            return Ok(None);
        }
        let (low, high) = dtype.integer_range().unwrap_or((i64::MIN, i64::MAX));
        if let Some(zero) = scales.zeros.iter().find(|zero| !(low..=high).contains(*zero)) {
            return malformed(format!("the zero point {zero} does not fit {dtype}"));
        }
        let mut numbers: Vec<f64> = scales.zeros.iter().map(|&zero| zero as f64).collect();
        numbers.resize(scales.scales.len(), numbers[0]);
        self.number_constant(dtype, &numbers).map(Some)
    }

    /// Adds numbers as a constant: a scalar for a single number, else a vector.
    pub fn number_constant(&mut self, dtype: DType, numbers: &[f64]) -> Outcome<ValueId> {
        let ty = match numbers {
            [_] => TensorType::new(dtype, &[]),
            numbers => TensorType::new(dtype, &[numbers.len() as i64]),
        };
        self.emit.add_constant(ty, Const::Small(numbers.to_vec()))
    }

    fn read_option<T>(&self, default: T, read: impl Fn(FlatTable<'a>) -> Read<T>) -> Outcome<T> {
        match self.operator.options {
            Some(table) => read(table).map_err(Refusal::Malformed),
            None => Ok(default),
        }
    }

    pub fn flag_option(&self, field: usize) -> Outcome<bool> {
        self.read_option(false, |table| table.bool(field))
    }

    pub fn int_option(&self, field: usize, default: i32) -> Outcome<i64> {
        Ok(i64::from(self.read_option(default, |table| table.i32(field, default))?))
    }

    pub fn byte_option(&self, field: usize) -> Outcome<i8> {
        self.read_option(0, |table| table.i8(field, 0))
    }

    pub fn float_option(&self, field: usize) -> Outcome<f64> {
        Ok(f64::from(self.read_option(0.0, |table| table.f32(field))?))
    }

    pub fn ints_option(&self, field: usize) -> Outcome<Vec<i64>> {
        let list = self.read_option(vec![], |table| table.i32s(field))?;
        Ok(list.into_iter().map(i64::from).collect())
    }

    pub fn read_activation(&self, field: usize) -> Outcome<Activation> {
        Ok(match self.byte_option(field)? {
            0 => Activation::None,
            1 => Activation::Between(Some(0.0), None),
            2 => Activation::Between(Some(-1.0), Some(1.0)),
            3 => Activation::Between(Some(0.0), Some(6.0)),
            4 => Activation::Tanh,
            other => return unsupported(format!("activation code {other}")),
        })
    }

    pub fn apply_activation(&mut self, y: ValueId, activation: Activation) -> Outcome<ValueId> {
        match activation {
            Activation::None => Ok(y),
            Activation::Between(Some(0.0), None) => self.emit.unary(UnaryOp::Relu, y),
            Activation::Between(low, high) => {
                let op = Op::Clip(Clip {
                    low: low.unwrap_or(f64::from(f32::MIN)),
                    high: high.unwrap_or(f64::from(f32::MAX)),
                });
                self.emit.push(op, &[y])
            }
            Activation::Tanh => self.emit.unary(UnaryOp::Tanh, y),
        }
    }

    /// Returns the bias as a vector, because some converters give it more dimensions.
    pub fn bias_vector(&mut self, index: usize, is_stored: bool) -> Outcome<Option<ValueId>> {
        if self.optional_input(index).is_none() {
            return Ok(None);
        }
        let bias = if is_stored { self.input(index)? } else { self.real(index)? };
        let extents = self.emit.extents(bias)?;
        match extents.split_last() {
            Some((&count, rest)) if !rest.is_empty() && rest.iter().all(|&extent| extent == 1) => {
                self.emit.reshape(bias, &[count]).map(Some)
            }
            _ => Ok(Some(bias)),
        }
    }

    /// Requantises integer sums of 8-bit products; refuses activations that integers cannot express.
    pub fn requantise_sums(
        &mut self,
        sums: ValueId,
        factor: Factor,
        axis: i64,
        activation: Activation,
    ) -> Outcome<ValueId> {
        let Factor { x, w, y, to } = factor;
        let multipliers: Vec<f64> = w
            .scales
            .iter()
            .map(|&scale| f64::from(quantise::requantise_factor(x.scales[0], scale, y.scales[0])))
            .collect();
        let zero = y.zeros[0];
        let Activation::Between(low, high) = activation.as_bounds() else {
            return unsupported("this activation on quantised data");
        };
        let Some((low, high)) = quantise::integer_bounds(to, y.scales[0], zero, low, high) else {
            return malformed(format!("the zero point {zero} of the result does not fit {to}"));
        };
        let axis = if multipliers.len() == 1 { 0 } else { axis };
        let multiplier = self.number_constant(DType::F32, &multipliers)?;
        self.emit.push(Op::Requantize(Requantize { to, axis, zero, low, high }), &[sums, multiplier])
    }

    /// Returns the scales of a product of 8-bit numbers, or None if it cannot be an exact integer operator. Only the
    /// weight may have several scales, along `w_axis`.
    pub fn exact_factor(&self, [x, w]: [usize; 2], w_axis: i32, activation: Activation) -> Outcome<Option<Factor<'a>>> {
        let is_narrow = |id: ValueId| -> Outcome<bool> { Ok(matches!(self.emit.dtype(id)?, DType::I8 | DType::U8)) };
        let narrow = is_narrow(self.input(x)?)? && is_narrow(self.input(w)?)?;
        let (Some(x), Some(w), Some((y, to))) =
            (self.scales_of_input(x), self.scales_of_input(w), self.scales_of_output(0))
        else {
            return Ok(None);
        };
        let is_single = |scales: &Quantisation| scales.scales.len() == 1;
        let has_one_zero = w.zeros.iter().all(|zero| *zero == w.zeros[0]);
        let is_per_output = is_single(w) || w.axis == w_axis;
        let is_exact = narrow && is_single(x) && is_single(y) && is_per_output && has_one_zero;
        let is_exact = is_exact && activation != Activation::Tanh;
        let is_narrow_result = matches!(to, DType::I8 | DType::U8);
        Ok((is_exact && is_narrow_result && y.scales[0] > 0.0).then_some(Factor { x, w, y, to }))
    }

    pub fn binary(&mut self, function: BinaryOp, a: ValueId, b: ValueId) -> Outcome<ValueId> {
        self.emit.binary(function, a, b)
    }

    pub fn channels_first(&mut self, x: ValueId) -> Outcome<ValueId> {
        let rank = self.image_rank(x)?;
        let mut order = vec![0, rank - 1];
        order.extend(1..rank - 1);
        self.emit.transpose(x, &order)
    }

    pub fn channels_last(&mut self, x: ValueId) -> Outcome<ValueId> {
        let rank = self.image_rank(x)?;
        let mut order = vec![0];
        order.extend(2..rank);
        order.push(1);
        self.emit.transpose(x, &order)
    }

    fn image_rank(&self, x: ValueId) -> Outcome<usize> {
        match self.emit.rank(x)? {
            rank @ 3.. => Ok(rank),
            rank => malformed(format!("an image must have at least 3 dimensions, has {rank}")),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Activation {
    None,
    Between(Option<f64>, Option<f64>),
    Tanh,
}

impl Activation {
    fn as_bounds(self) -> Activation {
        if self == Activation::None { Activation::Between(None, None) } else { self }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Factor<'a> {
    pub x: &'a Quantisation,
    pub w: &'a Quantisation,
    pub y: &'a Quantisation,
    pub to: DType,
}
