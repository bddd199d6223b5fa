//! Recurrent layers, unrolled over time. The product with the input is also computed step by step, so that every
//! operator has the size of one cell.

use super::quantise;
use crate::limits::MAX_STEPS;
use crate::onnx::call::Call;
use crate::{Emit, Outcome, malformed, unsupported};
use models::compose::{Recurrent, Reset, elman_step, gru_step, lstm_step};
use models::graph::ValueId;
use models::operators::{BiasAdd, Dense, Op, UnaryOp};

type Outputs = Outcome<Vec<ValueId>>;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    Gru,
    Lstm,
}

impl Kind {
    fn gate_count(self) -> i64 {
        match self {
            Kind::Plain => 1,
            Kind::Gru => 3,
            Kind::Lstm => 4,
        }
    }

    fn default_activations(self) -> &'static [&'static str] {
        match self {
            Kind::Plain => &["Tanh"],
            Kind::Gru => &["Sigmoid", "Tanh"],
            Kind::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

pub(super) fn rnn_layer(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    recurrent_layer(emit, call, Kind::Plain, &LayerWeights::from_inputs(call)?)
}

pub(super) fn gru_layer(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    recurrent_layer(emit, call, Kind::Gru, &LayerWeights::from_inputs(call)?)
}

pub(super) fn lstm_layer(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    recurrent_layer(emit, call, Kind::Lstm, &LayerWeights::from_inputs(call)?)
}

pub(super) fn rounded_lstm(emit: &mut Emit<'_>, call: &Call<'_>, [inputs, states]: [ValueId; 2]) -> Outputs {
    recurrent_layer(emit, call, Kind::Lstm, &LayerWeights { inputs, states, rounds: true })
}

struct LayerWeights {
    inputs: ValueId,
    states: ValueId,
    /// Whether the input and the hidden state are quantised to 8 bits before they are multiplied by the weights.
    rounds: bool,
}

impl LayerWeights {
    fn from_inputs(call: &Call<'_>) -> Outcome<LayerWeights> {
        Ok(LayerWeights { inputs: call.input(1)?, states: call.input(2)?, rounds: false })
    }

    fn round_operand(&self, emit: &mut Emit<'_>, x: ValueId) -> Outcome<ValueId> {
        if !self.rounds {
            return Ok(x);
        }
        let [stored, scale, zero] = quantise::quantise_dynamic(emit, x)?;
        quantise::dequantise_scalar(emit, stored, scale, Some(zero))
    }
}

struct Direction {
    kind: Kind,
    weight: ValueId,
    bias: Option<ValueId>,
    recurrent: Recurrent,
    reset_at: Reset,
}

fn recurrent_layer(emit: &mut Emit<'_>, call: &Call<'_>, kind: Kind, weights: &LayerWeights) -> Outputs {
    let is_batch_first = call.flag_attribute("layout");
    let mut x = call.input(0)?;
    if is_batch_first {
        x = emit.transpose(x, &[1, 0, 2])?;
    }
    let [steps, batch, inputs] = emit.extents(x)?[..] else { return malformed("the data must have 3 dimensions") };
    if !(1..=MAX_STEPS).contains(&steps) {
        return unsupported(format!("a sequence of {steps} steps; 1 to {MAX_STEPS} are supported"));
    }
    check_lengths(emit, call, steps)?;
    let x = weights.round_operand(emit, x)?;
    if call.flag_attribute("input_forget") {
        return unsupported("coupled input and forget gates");
    }
    let orders: &[bool] = match call.text_attribute("direction").unwrap_or("forward") {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return malformed(format!("`direction` has the unknown value `{other}`")),
    };
    let hidden = call.int_attribute("hidden_size", emit.extents(weights.states)?.last().copied().unwrap_or(0));
    let mut by_direction = Vec::new();
    let (mut last_states, mut last_cells) = (Vec::new(), Vec::new());
    for (index, &is_reversed) in orders.iter().enumerate() {
        let direction = build_direction(emit, call, (kind, weights), (index, orders.len()), hidden)?;
        let mut state = initial_state(emit, call, 5, (index, is_batch_first), [batch, hidden], x)?;
        let mut cell = initial_state(emit, call, 6, (index, is_batch_first), [batch, hidden], x)?;
        let mut states = Vec::new();
        for step in 0..steps {
            let step = if is_reversed { steps - 1 - step } else { step };
            let now = emit.slice(x, 0, step, step + 1)?;
            let now = emit.reshape(now, &[batch, inputs])?;
            let seen = weights.round_operand(emit, state)?;
            (state, cell) = direction.emit_step(emit, now, seen, cell)?;
            states.push(emit.reshape(state, &[1, 1, batch, hidden])?);
        }
        if is_reversed {
            states.reverse();
        }
        by_direction.push(emit.concat_parts(&states, 0)?);
        last_states.push(emit.reshape(state, &[1, batch, hidden])?);
        last_cells.push(emit.reshape(cell, &[1, batch, hidden])?);
    }
    let mut outputs = vec![
        emit.concat_parts(&by_direction, 1)?,
        emit.concat_parts(&last_states, 0)?,
        emit.concat_parts(&last_cells, 0)?,
    ];
    if is_batch_first {
        outputs[0] = emit.transpose(outputs[0], &[2, 0, 1, 3])?;
        for index in [1, 2] {
            outputs[index] = emit.transpose(outputs[index], &[1, 0, 2])?;
        }
    }
    if kind != Kind::Lstm {
        outputs.truncate(2);
    }
    Ok(outputs)
}

fn check_lengths(emit: &Emit<'_>, call: &Call<'_>, steps: i64) -> Outcome<()> {
    let Some(lengths) = call.optional_input(4) else { return Ok(()) };
    if emit.require_integers(lengths, "sequence_lens")?.iter().all(|&length| length == steps) {
        return Ok(());
    }
    unsupported("sequences of different lengths")
}

fn initial_state(
    emit: &mut Emit<'_>,
    call: &Call<'_>,
    place: usize,
    (index, is_batch_first): (usize, bool),
    extents: [i64; 2],
    x: ValueId,
) -> Outcome<ValueId> {
    let Some(given) = call.optional_input(place) else {
        let dtype = emit.dtype(x)?;
        return emit.add_filled(dtype, &extents, 0.0);
    };
    let given = if is_batch_first { emit.transpose(given, &[1, 0, 2])? } else { given };
    direction_part(emit, given, index, &extents)
}

fn direction_part(emit: &mut Emit<'_>, x: ValueId, index: usize, extents: &[i64]) -> Outcome<ValueId> {
    let one = emit.slice(x, 0, index as i64, index as i64 + 1)?;
    emit.reshape(one, extents)
}

fn build_direction(
    emit: &mut Emit<'_>,
    call: &Call<'_>,
    (kind, weights): (Kind, &LayerWeights),
    (index, directions): (usize, usize),
    hidden: i64,
) -> Outcome<Direction> {
    let rows = kind.gate_count().checked_mul(hidden).filter(|rows| *rows > 0 && rows.checked_mul(2).is_some());
    let Some(rows) = rows else { return malformed(format!("`hidden_size` is {hidden}, which is out of range")) };
    let inputs = emit.extents(weights.inputs)?.last().copied().unwrap_or(0);
    let weight = direction_part(emit, weights.inputs, index, &[rows, inputs])?;
    let recurrence = direction_part(emit, weights.states, index, &[rows, hidden])?;
    let (mut bias, mut state_bias) = (None, None);
    if let Some(both) = call.optional_input(3) {
        let both = direction_part(emit, both, index, &[2 * rows])?;
        bias = Some(emit.slice(both, 0, 0, rows)?);
        state_bias = Some(emit.slice(both, 0, rows, 2 * rows)?);
    }
    let mut peepholes = None;
    if let Some(all) = call.optional_input(7).filter(|_| kind == Kind::Lstm) {
        let all = direction_part(emit, all, index, &[3 * hidden])?;
        let mut gate = |number: i64| emit.slice(all, 0, number * hidden, (number + 1) * hidden);
        // ONNX stores the input, output and forget gate in this order.
        peepholes = Some([gate(0)?, gate(2)?, gate(1)?]);
    }
    let names: Vec<String> = match call.text_list("activations") {
        Some(names) => names,
        None => kind.default_activations().repeat(directions).iter().map(|name| (*name).to_owned()).collect(),
    };
    let count = kind.default_activations().len();
    let Some(names) = names.get(index * count..(index + 1) * count) else {
        return malformed(format!("there are {} activations instead of {count} per direction", names.len()));
    };
    if call.has_attribute("activation_alpha") || call.has_attribute("activation_beta") {
        return unsupported("activations with parameters");
    }
    let functions = names.iter().map(|name| match name.to_lowercase().as_str() {
        "sigmoid" => Ok(UnaryOp::Sigmoid),
        "tanh" => Ok(UnaryOp::Tanh),
        "relu" => Ok(UnaryOp::Relu),
        "softsign" => Ok(UnaryOp::Softsign),
        "softplus" => Ok(UnaryOp::Softplus),
        _ => unsupported(format!("activation `{name}`")),
    });
    let functions = functions.collect::<Outcome<Vec<UnaryOp>>>()?;
    let nth = |index: usize| functions.get(index).copied().unwrap_or(functions[0]);
    let recurrent = Recurrent {
        functions: [nth(0), nth(1), nth(2)],
        clip: call.optional_float("clip").filter(|clip| *clip > 0.0),
        peepholes,
        ..Recurrent::new(recurrence, state_bias, hidden)
    };
    let reset_at = if call.flag_attribute("linear_before_reset") { Reset::AfterProduct } else { Reset::BeforeProduct };
    Ok(Direction { kind, weight, bias, recurrent, reset_at })
}

impl Direction {
    fn emit_step(&self, emit: &mut Emit<'_>, x: ValueId, state: ValueId, cell: ValueId) -> Outcome<(ValueId, ValueId)> {
        let mut given = emit.push(Op::Dense(Dense {}), &[x, self.weight])?;
        if let Some(bias) = self.bias {
            given = emit.push(Op::BiasAdd(BiasAdd { axis: 1 }), &[given, bias])?;
        }
        let builder = &mut emit.builder;
        Ok(match self.kind {
            Kind::Plain => (elman_step(builder, given, state, &self.recurrent)?, cell),
            // ONNX stores update, reset and content in this order.
            Kind::Gru => (gru_step(builder, given, state, &self.recurrent, [1, 0, 2], self.reset_at)?, cell),
            // ONNX stores input, output, forget gate and content in this order.
            Kind::Lstm => lstm_step(builder, given, (state, cell), &self.recurrent, [0, 2, 3, 1])?,
        })
    }
}
