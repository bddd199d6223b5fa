//! A graph builder with the layers of transformers, which finds weights by their published names.
//!
//! A scope is the published name of a module, so that reports, weight files and descriptions use the same names. A
//! weight used twice is one constant.

use super::weights::{Stored, Weights};
use super::{Options, Phase};
use models::builder::GraphBuilder;
use models::error::{Error, Result};
use models::graph::{Const, Graph, ValueId};
use models::operators::{
    Attention, BiasAdd, Binary, BinaryOp, Concat, Dense, Gather, LayerNorm, Op, Reshape, RmsNorm, Rope, Slice,
    Transpose, Unary, UnaryOp,
};
use models::types::{DType, TensorType};
use std::collections::HashMap;

const MAX_NODES: usize = 1 << 17;

pub(super) struct Net {
    name: String,
    builder: GraphBuilder,
    weights: Weights,
    options: Options,
    nodes: usize,
    made: HashMap<String, ValueId>,
    /// Keys and values for the next step.
    kept: Vec<ValueId>,
}

#[derive(Clone, Copy)]
pub(super) struct Heads {
    pub count: i64,
    /// Number of key and value heads, a divisor of the query heads.
    pub kept: i64,
    pub width: i64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bias {
    With,
    Without,
}

impl From<bool> for Bias {
    fn from(has_bias: bool) -> Bias {
        if has_bias { Bias::With } else { Bias::Without }
    }
}

impl Net {
    pub fn new(name: &str, weights: Weights, options: Options) -> Net {
        Net {
            name: name.to_owned(),
            builder: GraphBuilder::new(name),
            weights,
            options,
            nodes: 0,
            made: HashMap::new(),
            kept: Vec::new(),
        }
    }

    /// Finishes the graph; its outputs are followed by the keys and values of each layer.
    pub fn finish(self, outputs: &[ValueId]) -> Result<(Graph, Weights)> {
        let outputs: Vec<ValueId> = outputs.iter().chain(&self.kept).copied().collect();
        Ok((self.builder.finish(&outputs)?, self.weights))
    }

    pub fn batch(&self) -> i64 {
        self.options.batch
    }

    /// Returns the tokens of the prompt, or in a decoding step the tokens read before.
    pub fn sequence(&self) -> i64 {
        self.options.sequence
    }

    pub fn phase(&self) -> Phase {
        self.options.phase
    }

    /// Returns the number of tokens that a decoder reads at once.
    pub fn fresh(&self) -> i64 {
        match self.options.phase {
            Phase::Prefill => self.options.sequence,
            Phase::Decode => 1,
        }
    }

    /// Returns the number of tokens read before.
    pub fn past(&self) -> i64 {
        match self.options.phase {
            Phase::Prefill => 0,
            Phase::Decode => self.options.sequence,
        }
    }

    // --- inputs and constants ---

    pub fn input(&mut self, name: &str, dtype: DType, extents: &[i64]) -> Result<ValueId> {
        self.builder.input(name, TensorType::new(dtype, extents))
    }

    pub fn tokens(&mut self, name: &str, count: i64) -> Result<ValueId> {
        self.input(name, DType::I64, &[self.options.batch, count])
    }

    pub fn weight(&mut self, name: &str, extents: &[i64]) -> Result<ValueId> {
        self.stored_weight(name, extents, Stored::AsUsed)
    }

    fn stored_weight(&mut self, name: &str, extents: &[i64], stored: Stored) -> Result<ValueId> {
        let ty = TensorType::f32(extents);
        if let Some(&id) = self.made.get(name) {
            if *self.builder.ty(id)? == ty {
                return Ok(id);
            }
            let reason = format!("`{name}` is used as {} and as {ty}", self.builder.ty(id)?);
            return Err(self.refused(reason));
        }
        let data = self.weights.find(name, &ty, stored)?;
        let id = self.builder.constant(name, ty, data)?;
        self.made.insert(name.to_owned(), id);
        Ok(id)
    }

    /// Returns a constant that is no weight, created once per name.
    pub fn formula(&mut self, name: &str, make: impl FnOnce() -> (TensorType, Const)) -> Result<ValueId> {
        if let Some(&id) = self.made.get(name) {
            return Ok(id);
        }
        let (ty, data) = make();
        let id = self.builder.constant(name, ty, data)?;
        self.made.insert(name.to_owned(), id);
        Ok(id)
    }

    fn number(&mut self, number: f64) -> Result<ValueId> {
        self.formula(&format!("number.{number}"), || (TensorType::f32(&[]), Const::Fill(number)))
    }

    // --- operators ---

    pub fn push(&mut self, scope: &str, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(self.refused(format!("it has more than {MAX_NODES} operators")));
        }
        self.builder.set_scope(scope);
        self.builder.push(op, inputs)
    }

    pub fn extents(&self, x: ValueId) -> Result<Vec<i64>> {
        let ty = self.builder.ty(x)?;
        ty.extents().ok_or_else(|| Error::Symbolic { ty: ty.to_string(), what: "extents" })
    }

    pub fn width(&self, x: ValueId) -> Result<i64> {
        self.extents(x)?.last().copied().ok_or_else(|| self.refused("a scalar has no width".to_owned()))
    }

    pub fn unary(&mut self, scope: &str, function: UnaryOp, x: ValueId) -> Result<ValueId> {
        self.push(scope, Op::Unary(Unary { function }), &[x])
    }

    pub fn add(&mut self, scope: &str, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.push(scope, Op::Binary(Binary { function: BinaryOp::Add }), &[a, b])
    }

    pub fn mul(&mut self, scope: &str, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.push(scope, Op::Binary(Binary { function: BinaryOp::Mul }), &[a, b])
    }

    pub fn scale(&mut self, scope: &str, x: ValueId, number: f64) -> Result<ValueId> {
        let number = self.number(number)?;
        self.mul(scope, x, number)
    }

    pub fn shift(&mut self, scope: &str, x: ValueId, number: f64) -> Result<ValueId> {
        let number = self.number(number)?;
        self.add(scope, x, number)
    }

    pub fn reshape(&mut self, scope: &str, x: ValueId, shape: &[i64]) -> Result<ValueId> {
        self.push(scope, Op::Reshape(Reshape { shape: shape.to_vec() }), &[x])
    }

    pub fn transpose(&mut self, scope: &str, x: ValueId, permutation: &[i64]) -> Result<ValueId> {
        self.push(scope, Op::Transpose(Transpose { permutation: permutation.to_vec() }), &[x])
    }

    pub fn concat(&mut self, scope: &str, parts: &[ValueId], axis: i64) -> Result<ValueId> {
        self.push(scope, Op::Concat(Concat { axis }), parts)
    }

    /// Slices one dimension from `start` to `stop` (exclusive).
    pub fn slice(&mut self, scope: &str, x: ValueId, axis: i64, start: i64, stop: i64) -> Result<ValueId> {
        let op = Op::Slice(Slice { axes: vec![axis], starts: vec![start], stops: vec![stop], steps: vec![1] });
        self.push(scope, op, &[x])
    }

    /// Splits the last dimension into equal parts.
    pub fn parts<const N: usize>(&mut self, scope: &str, x: ValueId) -> Result<[ValueId; N]> {
        let width = self.width(x)? / N as i64;
        let mut parts = [x; N];
        for (part, start) in parts.iter_mut().zip((0..).step_by(usize::try_from(width).unwrap_or(1))) {
            *part = self.slice(scope, x, -1, start, start + width)?;
        }
        Ok(parts)
    }

    /// Returns the first position of `[batch, positions, width]` as `[batch, width]`.
    pub fn first_place(&mut self, scope: &str, x: ValueId) -> Result<ValueId> {
        let width = self.width(x)?;
        let first = self.slice(scope, x, 1, 0, 1)?;
        self.reshape(scope, first, &[self.options.batch, width])
    }

    /// Adds a linear layer whose weight is stored as `[out, in]`.
    pub fn linear(&mut self, scope: &str, x: ValueId, out: i64, bias: Bias) -> Result<ValueId> {
        let weight = self.weight(&format!("{scope}.weight"), &[out, self.width(x)?])?;
        self.dense(scope, x, weight, bias)
    }

    /// Adds a linear layer whose weight is stored as `[in, out]`.
    pub fn linear_turned(&mut self, scope: &str, x: ValueId, out: i64) -> Result<ValueId> {
        let weight = self.stored_weight(&format!("{scope}.weight"), &[out, self.width(x)?], Stored::Transposed)?;
        self.dense(scope, x, weight, Bias::With)
    }

    /// Adds a product with a weight that may be shared, and optionally a bias of its own.
    pub fn dense(&mut self, scope: &str, x: ValueId, weight: ValueId, bias: Bias) -> Result<ValueId> {
        let y = self.push(scope, Op::Dense(Dense {}), &[x, weight])?;
        if bias == Bias::Without {
            return Ok(y);
        }
        let bias = self.weight(&format!("{scope}.bias"), &[self.width(y)?])?;
        self.push(scope, Op::BiasAdd(BiasAdd { axis: -1 }), &[y, bias])
    }

    pub fn layer_norm(&mut self, scope: &str, x: ValueId, epsilon: f64) -> Result<ValueId> {
        let width = self.width(x)?;
        let scale = self.weight(&format!("{scope}.weight"), &[width])?;
        let shift = self.weight(&format!("{scope}.bias"), &[width])?;
        self.push(scope, Op::LayerNorm(LayerNorm { axis: -1, epsilon }), &[x, scale, shift])
    }

    pub fn rms_norm(&mut self, scope: &str, x: ValueId, epsilon: f64) -> Result<ValueId> {
        let scale = self.weight(&format!("{scope}.weight"), &[self.width(x)?])?;
        self.push(scope, Op::RmsNorm(RmsNorm { axis: -1, epsilon }), &[x, scale])
    }

    /// Looks up rows of a `[entries, width]` table by token numbers.
    pub fn embed(&mut self, scope: &str, numbers: ValueId, entries: i64, width: i64) -> Result<ValueId> {
        let table = self.weight(&format!("{scope}.weight"), &[entries, width])?;
        self.push(scope, Op::Gather(Gather { axis: 0 }), &[table, numbers])
    }

    /// Returns the rows of a learned position table for the positions read now.
    pub fn positions(&mut self, scope: &str, [entries, width]: [i64; 2], first: i64, count: i64) -> Result<ValueId> {
        let (stop, name) = (first + count, format!("{scope}.weight"));
        if stop > entries {
            return Err(self.refused(format!("place {} is beyond the {entries} of `{name}`", stop - 1)));
        }
        let table = self.weight(&name, &[entries, width])?;
        if count == entries { Ok(table) } else { self.slice(scope, table, 0, first, stop) }
    }

    /// Reshapes `[batch, positions, heads · width]` to `[batch, heads, positions, width]`.
    pub fn split_heads(&mut self, scope: &str, x: ValueId, heads: i64, width: i64) -> Result<ValueId> {
        let split = self.reshape(scope, x, &[0, 0, heads, width])?;
        self.transpose(scope, split, &[0, 2, 1, 3])
    }

    /// Reshapes `[batch, heads, positions, width]` to `[batch, positions, heads · width]`.
    pub fn merge_heads(&mut self, scope: &str, x: ValueId) -> Result<ValueId> {
        let turned = self.transpose(scope, x, &[0, 2, 1, 3])?;
        self.reshape(scope, turned, &[0, 0, -1])
    }

    pub fn project(&mut self, scope: &str, x: ValueId, heads: [i64; 2], bias: Bias) -> Result<ValueId> {
        let y = self.linear(scope, x, heads[0] * heads[1], bias)?;
        self.split_heads(scope, y, heads[0], heads[1])
    }

    /// Adds attention and merges the heads. A mask is added to the scores.
    pub fn attend(
        &mut self,
        scope: &str,
        [q, k, v]: [ValueId; 3],
        mask: Option<ValueId>,
        attention: Attention,
    ) -> Result<ValueId> {
        // Masks without effect are left out, so that equal work is one task.
        let (rows, places) = (self.extents(q)?[2], self.extents(k)?[2]);
        let causal = attention.causal && rows > 1;
        let window = attention.window.filter(|window| *window < places);
        let inputs: Vec<ValueId> = [q, k, v].into_iter().chain(mask).collect();
        let y = self.push(scope, Op::Attention(Attention { causal, window, ..attention }), &inputs)?;
        self.merge_heads(scope, y)
    }

    /// Returns the keys and values of all positions so far: earlier ones are inputs, and all of them become outputs.
    pub fn remember(&mut self, layer: i64, scope: &str, k: ValueId, v: ValueId) -> Result<[ValueId; 2]> {
        let mut all = [k, v];
        if self.options.phase == Phase::Decode {
            for (fresh, name) in all.iter_mut().zip(["past_keys", "past_values"]) {
                let mut extents = self.extents(*fresh)?;
                extents[2] = self.past();
                let past = self.input(&format!("{name}.{layer}"), DType::F32, &extents)?;
                *fresh = self.concat(scope, &[past, *fresh], 2)?;
            }
        }
        self.kept.extend(all);
        Ok(all)
    }

    /// Returns keys and values of an encoder: computed from its result, or inputs in later steps.
    pub fn recall(
        &mut self,
        layer: i64,
        heads: Heads,
        places: i64,
        memory: Option<ValueId>,
        make: impl FnOnce(&mut Net, ValueId) -> Result<[ValueId; 2]>,
    ) -> Result<[ValueId; 2]> {
        if let Some(memory) = memory {
            let both = make(self, memory)?;
            self.kept.extend(both);
            return Ok(both);
        }
        let extents = [self.options.batch, heads.kept, places, heads.width];
        let k = self.input(&format!("encoder_keys.{layer}"), DType::F32, &extents)?;
        Ok([k, self.input(&format!("encoder_values.{layer}"), DType::F32, &extents)?])
    }

    /// Applies rotary positions to queries or keys. Angles are `position · frequency`, one frequency per pair.
    pub fn rotate(&mut self, scope: &str, x: ValueId, frequencies: &[f64]) -> Result<ValueId> {
        let (first, count) = (self.past(), self.fresh());
        let mut tables = Vec::new();
        for (name, function) in [("rotary.cos", UnaryOp::Cos), ("rotary.sin", UnaryOp::Sin)] {
            tables.push(self.formula(name, || angles(function, first, count, frequencies))?);
        }
        let rotary = 2 * frequencies.len() as i64;
        self.push(scope, Op::Rope(Rope { rotary, interleaved: false }), &[x, tables[0], tables[1]])
    }

    pub fn refused(&self, reason: String) -> Error {
        Error::Model { model: self.name.clone(), reason }
    }
}

/// Returns a function of `position · frequency` as a formula, because a table for long prompts would take megabytes.
fn angles(function: UnaryOp, first: i64, count: i64, frequencies: &[f64]) -> (TensorType, Const) {
    let pairs = frequencies.len() as i64;
    let places = (TensorType::f32(&[count, 1]), Const::counting(DType::F32, &[count, 1], 0, first));
    let frequencies = (TensorType::f32(&[1, pairs]), Const::Small(frequencies.to_vec()));
    let ty = TensorType::f32(&[count, pairs]);
    let angle = Const::computed(Op::Binary(Binary { function: BinaryOp::Mul }), vec![places, frequencies]);
    (ty.clone(), Const::computed(Op::Unary(Unary { function }), vec![(ty, angle)]))
}
