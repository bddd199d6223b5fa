//! Recurrent layers, unrolled over time. The product with the input is also computed step by step, so that every
//! operator has the size of one cell. States start with their content in the file, which is zeros for variables.

use crate::limits::MAX_STEPS;
use crate::tflite::call::{Activation, Call};
use crate::{Outcome, malformed, unsupported};
use models::compose::{Recurrent, clip_absolute, elman_step, lstm_step};
use models::graph::ValueId;
use models::operators::{BiasAdd, Dense, Op, UnaryOp};

type Outputs = Outcome<Vec<ValueId>>;

/// First of the four inputs with weights, recurrent weights and biases; each has input, forget, content, output gate.
const WEIGHTS: usize = 1;
const STATE_WEIGHTS: usize = 5;
const PEEPHOLES: usize = 9;
const BIASES: usize = 12;
const PROJECTION: usize = 16;
const STATE: usize = 18;
const MEMORY: usize = 19;
const NORMALISATION: usize = 20;

struct LstmCell {
    weight: ValueId,
    bias: ValueId,
    recurrent: Recurrent,
    projection: Option<Projection>,
}

/// A dense layer between the output of the cell and the state.
struct Projection {
    weight: ValueId,
    bias: Option<ValueId>,
    clip: Option<f64>,
}

impl LstmCell {
    fn read_cell(call: &mut Call<'_, '_>) -> Outcome<LstmCell> {
        if call.optional_input(WEIGHTS).is_none() {
            return unsupported("coupled input and forget gates");
        }
        if (NORMALISATION..NORMALISATION + 4).any(|index| call.optional_input(index).is_some()) {
            return unsupported("normalised gates");
        }
        if call.flag_option(5)? {
            return unsupported("diagonal recurrent weights");
        }
        let weight = join_gates(call, WEIGHTS)?;
        let recurrent_weight = join_gates(call, STATE_WEIGHTS)?;
        let bias = join_gates(call, BIASES)?;
        let rows = call.emit.extents(recurrent_weight)?.first().copied().unwrap_or(0);
        let given = PEEPHOLES..PEEPHOLES + 3;
        let peepholes = match given.clone().any(|index| call.optional_input(index).is_some()) {
            true => Some([call.real(PEEPHOLES)?, call.real(PEEPHOLES + 1)?, call.real(PEEPHOLES + 2)?]),
            false => None,
        };
        let projection = match call.optional_input(PROJECTION) {
            Some(_) => Some(Projection {
                weight: call.real(PROJECTION)?,
                bias: call.bias_vector(PROJECTION + 1, false)?,
                clip: positive(call.float_option(2)?),
            }),
            None => None,
        };
        let function = unary_activation(call.read_activation(0)?)?;
        let recurrent = Recurrent {
            functions: [UnaryOp::Sigmoid, function, function],
            memory_clip: positive(call.float_option(1)?),
            peepholes,
            ..Recurrent::new(recurrent_weight, None, rows / 4)
        };
        Ok(LstmCell { weight, bias, recurrent, projection })
    }

    /// Emits one step and returns the state and the memory.
    fn emit_step(
        &self,
        call: &mut Call<'_, '_>,
        x: ValueId,
        (state, memory): (ValueId, ValueId),
    ) -> Outcome<(ValueId, ValueId)> {
        let given = dense_layer(call, x, self.weight, Some(self.bias))?;
        let (state, memory) = lstm_step(&mut call.emit.builder, given, (state, memory), &self.recurrent, [0, 1, 2, 3])?;
        let Some(projection) = &self.projection else { return Ok((state, memory)) };
        let state = dense_layer(call, state, projection.weight, projection.bias)?;
        Ok((clip_absolute(&mut call.emit.builder, state, projection.clip)?, memory))
    }
}

/// Joins the weights of the four gates to one matrix, or their biases to one vector.
fn join_gates(call: &mut Call<'_, '_>, first: usize) -> Outcome<ValueId> {
    let parts = (first..first + 4).map(|index| call.real(index)).collect::<Outcome<Vec<_>>>()?;
    let extents = call.emit.extents(parts[0])?;
    for &part in &parts {
        if call.emit.extents(part)? != extents {
            return malformed("the gates have weights of different shapes");
        }
    }
    call.emit.concat_parts(&parts, 0)
}

fn dense_layer(call: &mut Call<'_, '_>, x: ValueId, weight: ValueId, bias: Option<ValueId>) -> Outcome<ValueId> {
    let y = call.emit.push(Op::Dense(Dense {}), &[x, weight])?;
    match bias {
        Some(bias) => call.emit.push(Op::BiasAdd(BiasAdd { axis: 1 }), &[y, bias]),
        None => Ok(y),
    }
}

fn positive(limit: f64) -> Option<f64> {
    Some(limit).filter(|limit| *limit > 0.0)
}

fn unary_activation(activation: Activation) -> Outcome<UnaryOp> {
    match activation {
        Activation::Tanh => Ok(UnaryOp::Tanh),
        Activation::Between(Some(0.0), None) => Ok(UnaryOp::Relu),
        _ => unsupported("this activation of a recurrent layer"),
    }
}

/// Returns the input of each step, and the axis of time.
fn split_steps(call: &mut Call<'_, '_>, is_time_major: bool) -> Outcome<(Vec<ValueId>, usize)> {
    let x = call.real(0)?;
    let extents = call.emit.extents(x)?;
    let &[first, second, width] = &extents[..] else { return malformed("the data must have 3 dimensions") };
    let (axis, steps, batch) = if is_time_major { (0, first, second) } else { (1, second, first) };
    if !(1..=MAX_STEPS).contains(&steps) {
        return unsupported(format!("a sequence of {steps} steps; 1 to {MAX_STEPS} are supported"));
    }
    let mut parts = Vec::new();
    for step in 0..steps {
        let part = call.emit.slice(x, axis, step, step + 1)?;
        parts.push(call.emit.reshape(part, &[batch, width])?);
    }
    Ok((parts, axis))
}

/// Joins the states of all steps along the axis of time.
fn join_steps(call: &mut Call<'_, '_>, states: &[ValueId], axis: usize) -> Outputs {
    let mut parts = Vec::new();
    for &state in states {
        let mut extents = call.emit.extents(state)?;
        extents.insert(axis, 1);
        parts.push(call.emit.reshape(state, &extents)?);
    }
    Ok(vec![call.emit.concat_parts(&parts, axis)?])
}

pub(super) fn sequence_lstm(call: &mut Call<'_, '_>) -> Outputs {
    let (steps, axis) = split_steps(call, call.flag_option(3)?)?;
    let cell = LstmCell::read_cell(call)?;
    let (mut state, mut memory) = (call.real(STATE)?, call.real(MEMORY)?);
    let mut states = Vec::new();
    for x in steps {
        (state, memory) = cell.emit_step(call, x, (state, memory))?;
        let stored = call.store_output(state, 0)?;
        state = call.real_output(stored, 0)?;
        states.push(stored);
    }
    join_steps(call, &states, axis)
}

pub(super) fn sequence_rnn(call: &mut Call<'_, '_>) -> Outputs {
    let function = unary_activation(call.read_activation(1)?)?;
    let (steps, axis) = split_steps(call, call.flag_option(0)?)?;
    let states = rnn_states(call, &steps, function)?;
    join_steps(call, &states, axis)
}

/// Emits `RNN`, which computes one step.
pub(super) fn single_rnn(call: &mut Call<'_, '_>) -> Outputs {
    let function = unary_activation(call.read_activation(0)?)?;
    let x = call.real(0)?;
    rnn_states(call, &[x], function)
}

fn rnn_states(call: &mut Call<'_, '_>, steps: &[ValueId], function: UnaryOp) -> Outputs {
    let (weight, recurrent_weight) = (call.real(1)?, call.real(2)?);
    let bias = call.bias_vector(3, false)?;
    let mut state = call.real(4)?;
    let units = call.emit.extents(recurrent_weight)?.first().copied().unwrap_or(0);
    let recurrent = Recurrent { functions: [function; 3], ..Recurrent::new(recurrent_weight, None, units) };
    let mut states = Vec::new();
    for &x in steps {
        let given = dense_layer(call, x, weight, bias)?;
        state = elman_step(&mut call.emit.builder, given, state, &recurrent)?;
        states.push(state);
    }
    Ok(states)
}
