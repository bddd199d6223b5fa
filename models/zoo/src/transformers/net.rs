//! A graph builder with the layers of transformers. A scope is the published name of a module, by which weights are
//! found. A weight used twice is one constant.

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
    kept: Vec<ValueId>,
}

#[derive(Clone, Copy)]
pub(super) struct Heads {
    pub count: i64,
    /// Number of key and value heads, a divisor of `count`, the number of query heads.
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

    /// Finishes the graph with these outputs, followed by the keys and values of each layer.
    pub fn finish_graph(self, outputs: &[ValueId]) -> Result<(Graph, Weights)> {
        let outputs: Vec<ValueId> = outputs.iter().chain(&self.kept).copied().collect();
        Ok((self.builder.finish(&outputs)?, self.weights))
    }

    pub fn batch_size(&self) -> i64 {
        self.options.batch
    }

    /// Returns the number of tokens of the prompt; in a decoding step, of past tokens.
    pub fn prompt_length(&self) -> i64 {
        self.options.sequence
    }

    pub fn current_phase(&self) -> Phase {
        self.options.phase
    }

    pub fn fresh_tokens(&self) -> i64 {
        match self.options.phase {
            Phase::Prefill => self.options.sequence,
            Phase::Decode => 1,
        }
    }

    pub fn past_tokens(&self) -> i64 {
        match self.options.phase {
            Phase::Prefill => 0,
            Phase::Decode => self.options.sequence,
        }
    }

    // --- inputs and constants ---

    pub fn add_input(&mut self, name: &str, dtype: DType, extents: &[i64]) -> Result<ValueId> {
        self.builder.add_input(name, TensorType::new(dtype, extents))
    }

    pub fn add_token_input(&mut self, name: &str, count: i64) -> Result<ValueId> {
        self.add_input(name, DType::I64, &[self.options.batch, count])
    }

    pub fn add_weight(&mut self, name: &str, extents: &[i64]) -> Result<ValueId> {
        self.stored_weight(name, extents, Stored::AsUsed)
    }

    fn stored_weight(&mut self, name: &str, extents: &[i64], stored: Stored) -> Result<ValueId> {
        let ty = TensorType::f32(extents);
        if let Some(&id) = self.made.get(name) {
            if *self.builder.value_type(id)? == ty {
                return Ok(id);
            }
            let reason = format!("weight `{name}` is used with the types {} and {ty}", self.builder.value_type(id)?);
            return Err(self.model_error(reason));
        }
        let data = self.weights.find_weight(name, &ty, stored)?;
        let id = self.builder.add_constant(name, ty, data)?;
        self.made.insert(name.to_owned(), id);
        Ok(id)
    }

    /// Creates a computed constant (not a weight), or returns the existing one of that name.
    pub fn add_formula(&mut self, name: &str, make: impl FnOnce() -> (TensorType, Const)) -> Result<ValueId> {
        if let Some(&id) = self.made.get(name) {
            return Ok(id);
        }
        let (ty, data) = make();
        let id = self.builder.add_constant(name, ty, data)?;
        self.made.insert(name.to_owned(), id);
        Ok(id)
    }

    fn add_number(&mut self, number: f64) -> Result<ValueId> {
        self.add_formula(&format!("number.{number}"), || (TensorType::f32(&[]), Const::Fill(number)))
    }

    // --- operators ---

    pub fn push_op(&mut self, scope: &str, op: Op, inputs: &[ValueId]) -> Result<ValueId> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(self.model_error(format!("the model has more than {MAX_NODES} operators")));
        }
        self.builder.set_scope(scope);
        self.builder.push(op, inputs)
    }

    pub fn extents(&self, x: ValueId) -> Result<Vec<i64>> {
        let ty = self.builder.value_type(x)?;
        ty.extents().ok_or_else(|| Error::Symbolic { ty: ty.to_string(), what: "extents" })
    }

    pub fn last_extent(&self, x: ValueId) -> Result<i64> {
        self.extents(x)?.last().copied().ok_or_else(|| self.model_error("a scalar has no width".to_owned()))
    }

    pub fn unary(&mut self, scope: &str, function: UnaryOp, x: ValueId) -> Result<ValueId> {
        self.push_op(scope, Op::Unary(Unary { function }), &[x])
    }

    pub fn add(&mut self, scope: &str, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.push_op(scope, Op::Binary(Binary { function: BinaryOp::Add }), &[a, b])
    }

    pub fn mul(&mut self, scope: &str, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.push_op(scope, Op::Binary(Binary { function: BinaryOp::Mul }), &[a, b])
    }

    pub fn scale_by(&mut self, scope: &str, x: ValueId, number: f64) -> Result<ValueId> {
        let number = self.add_number(number)?;
        self.mul(scope, x, number)
    }

    pub fn shift_by(&mut self, scope: &str, x: ValueId, number: f64) -> Result<ValueId> {
        let number = self.add_number(number)?;
        self.add(scope, x, number)
    }

    pub fn reshape(&mut self, scope: &str, x: ValueId, shape: &[i64]) -> Result<ValueId> {
        self.push_op(scope, Op::Reshape(Reshape { shape: shape.to_vec() }), &[x])
    }

    pub fn transpose(&mut self, scope: &str, x: ValueId, permutation: &[i64]) -> Result<ValueId> {
        self.push_op(scope, Op::Transpose(Transpose { permutation: permutation.to_vec() }), &[x])
    }

    pub fn concat(&mut self, scope: &str, parts: &[ValueId], axis: i64) -> Result<ValueId> {
        self.push_op(scope, Op::Concat(Concat { axis }), parts)
    }

    /// Adds a slice of one dimension; `stop` is exclusive.
    pub fn slice(&mut self, scope: &str, x: ValueId, axis: i64, start: i64, stop: i64) -> Result<ValueId> {
        let op = Op::Slice(Slice { axes: vec![axis], starts: vec![start], stops: vec![stop], steps: vec![1] });
        self.push_op(scope, op, &[x])
    }

    pub fn split_parts<const N: usize>(&mut self, scope: &str, x: ValueId) -> Result<[ValueId; N]> {
        let width = self.last_extent(x)? / N as i64;
        let mut parts = [x; N];
        for (part, start) in parts.iter_mut().zip((0..).step_by(usize::try_from(width).unwrap_or(1))) {
            *part = self.slice(scope, x, -1, start, start + width)?;
        }
        Ok(parts)
    }

    pub fn first_position(&mut self, scope: &str, x: ValueId) -> Result<ValueId> {
        let width = self.last_extent(x)?;
        let first = self.slice(scope, x, 1, 0, 1)?;
        self.reshape(scope, first, &[self.options.batch, width])
    }

    /// Adds a linear layer whose weight is stored as `[out, in]`.
    pub fn linear_layer(&mut self, scope: &str, x: ValueId, out: i64, bias: Bias) -> Result<ValueId> {
        let weight = self.add_weight(&format!("{scope}.weight"), &[out, self.last_extent(x)?])?;
        self.shared_dense(scope, x, weight, bias)
    }

    /// Adds a linear layer whose weight is stored as `[in, out]`.
    pub fn linear_transposed(&mut self, scope: &str, x: ValueId, out: i64) -> Result<ValueId> {
        let weight =
            self.stored_weight(&format!("{scope}.weight"), &[out, self.last_extent(x)?], Stored::Transposed)?;
        self.shared_dense(scope, x, weight, Bias::With)
    }

    pub fn shared_dense(&mut self, scope: &str, x: ValueId, weight: ValueId, bias: Bias) -> Result<ValueId> {
        let y = self.push_op(scope, Op::Dense(Dense {}), &[x, weight])?;
        if bias == Bias::Without {
            return Ok(y);
        }
        let bias = self.add_weight(&format!("{scope}.bias"), &[self.last_extent(y)?])?;
        self.push_op(scope, Op::BiasAdd(BiasAdd { axis: -1 }), &[y, bias])
    }

    pub fn layer_norm(&mut self, scope: &str, x: ValueId, epsilon: f64) -> Result<ValueId> {
        let width = self.last_extent(x)?;
        let scale = self.add_weight(&format!("{scope}.weight"), &[width])?;
        let shift = self.add_weight(&format!("{scope}.bias"), &[width])?;
        self.push_op(scope, Op::LayerNorm(LayerNorm { axis: -1, epsilon }), &[x, scale, shift])
    }

    pub fn rms_norm(&mut self, scope: &str, x: ValueId, epsilon: f64) -> Result<ValueId> {
        let scale = self.add_weight(&format!("{scope}.weight"), &[self.last_extent(x)?])?;
        self.push_op(scope, Op::RmsNorm(RmsNorm { axis: -1, epsilon }), &[x, scale])
    }

    pub fn embed_numbers(&mut self, scope: &str, numbers: ValueId, entries: i64, width: i64) -> Result<ValueId> {
        let table = self.add_weight(&format!("{scope}.weight"), &[entries, width])?;
        self.push_op(scope, Op::Gather(Gather { axis: 0 }), &[table, numbers])
    }

    pub fn position_rows(
        &mut self,
        scope: &str,
        [entries, width]: [i64; 2],
        first: i64,
        count: i64,
    ) -> Result<ValueId> {
        let (stop, name) = (first + count, format!("{scope}.weight"));
        if stop > entries {
            return Err(self.model_error(format!("position {} exceeds the {entries} entries of `{name}`", stop - 1)));
        }
        let table = self.add_weight(&name, &[entries, width])?;
        if count == entries { Ok(table) } else { self.slice(scope, table, 0, first, stop) }
    }

    pub fn split_heads(&mut self, scope: &str, x: ValueId, heads: i64, width: i64) -> Result<ValueId> {
        let split = self.reshape(scope, x, &[0, 0, heads, width])?;
        self.transpose(scope, split, &[0, 2, 1, 3])
    }

    pub fn merge_heads(&mut self, scope: &str, x: ValueId) -> Result<ValueId> {
        let transposed = self.transpose(scope, x, &[0, 2, 1, 3])?;
        self.reshape(scope, transposed, &[0, 0, -1])
    }

    pub fn project_heads(&mut self, scope: &str, x: ValueId, heads: [i64; 2], bias: Bias) -> Result<ValueId> {
        let y = self.linear_layer(scope, x, heads[0] * heads[1], bias)?;
        self.split_heads(scope, y, heads[0], heads[1])
    }

    pub fn add_attention(
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
        let y = self.push_op(scope, Op::Attention(Attention { causal, window, ..attention }), &inputs)?;
        self.merge_heads(scope, y)
    }

    /// Prepends the cached keys and values, which are inputs of a decoding step; registers the results as outputs.
    pub fn extend_cache(&mut self, layer: i64, scope: &str, k: ValueId, v: ValueId) -> Result<[ValueId; 2]> {
        let mut all = [k, v];
        if self.options.phase == Phase::Decode {
            for (fresh, name) in all.iter_mut().zip(["past_keys", "past_values"]) {
                let mut extents = self.extents(*fresh)?;
                extents[2] = self.past_tokens();
                let past = self.add_input(&format!("{name}.{layer}"), DType::F32, &extents)?;
                *fresh = self.concat(scope, &[past, *fresh], 2)?;
            }
        }
        self.kept.extend(all);
        Ok(all)
    }

    /// Computes the keys and values of cross-attention from `memory`, the encoder's result, and registers them as
    /// outputs; without `memory`, adds inputs for them.
    pub fn encoder_cache(
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
        let k = self.add_input(&format!("encoder_keys.{layer}"), DType::F32, &extents)?;
        Ok([k, self.add_input(&format!("encoder_values.{layer}"), DType::F32, &extents)?])
    }

    /// Adds a rotary embedding with the angles `position · frequency`, one frequency per pair.
    pub fn rotate_pairs(&mut self, scope: &str, x: ValueId, frequencies: &[f64]) -> Result<ValueId> {
        let (first, count) = (self.past_tokens(), self.fresh_tokens());
        let mut tables = Vec::new();
        for (name, function) in [("rotary.cos", UnaryOp::Cos), ("rotary.sin", UnaryOp::Sin)] {
            tables.push(self.add_formula(name, || angle_formula(function, first, count, frequencies))?);
        }
        let rotary = 2 * frequencies.len() as i64;
        self.push_op(scope, Op::Rope(Rope { rotary, interleaved: false }), &[x, tables[0], tables[1]])
    }

    pub fn model_error(&self, reason: String) -> Error {
        Error::Model { model: self.name.clone(), reason }
    }
}

/// Returns the sines or cosines of the angles as a formula, because a stored table would take megabytes.
fn angle_formula(function: UnaryOp, first: i64, count: i64, frequencies: &[f64]) -> (TensorType, Const) {
    let pairs = frequencies.len() as i64;
    let places = (TensorType::f32(&[count, 1]), Const::range_along(DType::F32, &[count, 1], 0, first));
    let frequencies = (TensorType::f32(&[1, pairs]), Const::Small(frequencies.to_vec()));
    let ty = TensorType::f32(&[count, pairs]);
    let angle = Const::from_operator(Op::Binary(Binary { function: BinaryOp::Mul }), vec![places, frequencies]);
    (ty.clone(), Const::from_operator(Op::Unary(Unary { function }), vec![(ty, angle)]))
}
