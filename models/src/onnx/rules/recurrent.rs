//! Recurrent layers, unrolled over time.
//!
//! Each step is two products, a sum and the gates, so its tasks are the same at every step; products of the inputs
//! are done step by step too, which keeps every operator of the size that a cell has.

use crate::graph::ValueId;
use crate::onnx::call::Call;
use crate::operator::{BinaryOp, Op, UnaryOp};
use crate::reader::{Emit, Outcome, malformed, unsupported};

type Outputs = Outcome<Vec<ValueId>>;

/// Longer sequences are refused: each step becomes some twenty operators.
const MAX_STEPS: i64 = 4096;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    Gru,
    Lstm,
}

impl Kind {
    fn gates(self) -> i64 {
        match self {
            Kind::Plain => 1,
            Kind::Gru => 3,
            Kind::Lstm => 4,
        }
    }

    fn activations(self) -> &'static [&'static str] {
        match self {
            Kind::Plain => &["Tanh"],
            Kind::Gru => &["Sigmoid", "Tanh"],
            Kind::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

pub(super) fn rnn(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    layer(emit, call, Kind::Plain)
}

pub(super) fn gru(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    layer(emit, call, Kind::Gru)
}

pub(super) fn lstm(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    layer(emit, call, Kind::Lstm)
}

/// One direction of a layer.
struct Direction {
    kind: Kind,
    hidden: i64,
    weight: ValueId,
    recurrence: ValueId,
    /// Of the inputs and of the recurrence.
    biases: Option<[ValueId; 2]>,
    /// Of input, output and forget gate.
    peepholes: Option<[ValueId; 3]>,
    functions: Vec<UnaryOp>,
    clip: Option<f64>,
    is_linear_before_reset: bool,
}

fn layer(emit: &mut Emit<'_>, call: &Call<'_>, kind: Kind) -> Outputs {
    let is_batch_first = call.flag("layout");
    let mut x = call.input(0)?;
    if is_batch_first {
        x = emit.transpose(x, &[1, 0, 2])?;
    }
    let [steps, batch, inputs] = emit.extents(x)?[..] else { return malformed("the data must have 3 dimensions") };
    if !(1..=MAX_STEPS).contains(&steps) {
        return unsupported(format!("{steps} steps are not between 1 and {MAX_STEPS}"));
    }
    check_lengths(emit, call, steps)?;
    if call.flag("input_forget") {
        return unsupported("its input and forget gates are coupled");
    }
    let orders: &[bool] = match call.text("direction").unwrap_or("forward") {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return malformed(format!("`direction` is `{other}`")),
    };
    let hidden = call.int("hidden_size", emit.extents(call.input(2)?)?.last().copied().unwrap_or(0));
    let mut by_direction = Vec::new();
    let (mut last_states, mut last_cells) = (Vec::new(), Vec::new());
    for (index, &is_reversed) in orders.iter().enumerate() {
        let direction = direction(emit, call, kind, (index, orders.len()), hidden)?;
        let mut state = initial(emit, call, 5, (index, is_batch_first), [batch, hidden], x)?;
        let mut cell = initial(emit, call, 6, (index, is_batch_first), [batch, hidden], x)?;
        let mut states = Vec::new();
        for step in 0..steps {
            let step = if is_reversed { steps - 1 - step } else { step };
            let now = emit.slice(x, 0, step, step + 1)?;
            let now = emit.reshape(now, &[batch, inputs])?;
            (state, cell) = direction.step(emit, now, state, cell)?;
            states.push(emit.reshape(state, &[1, 1, batch, hidden])?);
        }
        if is_reversed {
            states.reverse();
        }
        by_direction.push(emit.concat(&states, 0)?);
        last_states.push(emit.reshape(state, &[1, batch, hidden])?);
        last_cells.push(emit.reshape(cell, &[1, batch, hidden])?);
    }
    let mut outputs = vec![emit.concat(&by_direction, 1)?, emit.concat(&last_states, 0)?, emit.concat(&last_cells, 0)?];
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

/// All sequences must have the length of the data.
fn check_lengths(emit: &Emit<'_>, call: &Call<'_>, steps: i64) -> Outcome<()> {
    let Some(lengths) = call.optional(4) else { return Ok(()) };
    if emit.known_integers(lengths, "sequence_lens")?.iter().all(|&length| length == steps) {
        return Ok(());
    }
    unsupported("its sequences differ in length")
}

fn initial(
    emit: &mut Emit<'_>,
    call: &Call<'_>,
    place: usize,
    (index, is_batch_first): (usize, bool),
    extents: [i64; 2],
    x: ValueId,
) -> Outcome<ValueId> {
    let Some(given) = call.optional(place) else {
        let dtype = emit.dtype(x)?;
        return emit.filled(dtype, &extents, 0.0);
    };
    let given = if is_batch_first { emit.transpose(given, &[1, 0, 2])? } else { given };
    part(emit, given, index, &extents)
}

/// What belongs to one direction, without that dimension.
fn part(emit: &mut Emit<'_>, x: ValueId, index: usize, extents: &[i64]) -> Outcome<ValueId> {
    let one = emit.slice(x, 0, index as i64, index as i64 + 1)?;
    emit.reshape(one, extents)
}

fn direction(
    emit: &mut Emit<'_>,
    call: &Call<'_>,
    kind: Kind,
    (index, directions): (usize, usize),
    hidden: i64,
) -> Outcome<Direction> {
    let rows = kind.gates().checked_mul(hidden).filter(|rows| *rows > 0 && rows.checked_mul(2).is_some());
    let Some(rows) = rows else { return malformed(format!("`hidden_size` is {hidden}")) };
    let inputs = emit.extents(call.input(1)?)?.last().copied().unwrap_or(0);
    let weight = part(emit, call.input(1)?, index, &[rows, inputs])?;
    let recurrence = part(emit, call.input(2)?, index, &[rows, hidden])?;
    let mut biases = None;
    if let Some(both) = call.optional(3) {
        let both = part(emit, both, index, &[2 * rows])?;
        biases = Some([emit.slice(both, 0, 0, rows)?, emit.slice(both, 0, rows, 2 * rows)?]);
    }
    let mut peepholes = None;
    if let Some(all) = call.optional(7).filter(|_| kind == Kind::Lstm) {
        let all = part(emit, all, index, &[3 * hidden])?;
        let mut gate = |number: i64| emit.slice(all, 0, number * hidden, (number + 1) * hidden);
        peepholes = Some([gate(0)?, gate(1)?, gate(2)?]);
    }
    let names: Vec<String> = match call.attribute("activations") {
        Some(attribute) => attribute.strings.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect(),
        None => kind.activations().repeat(directions).iter().map(|name| (*name).to_owned()).collect(),
    };
    let count = kind.activations().len();
    let Some(names) = names.get(index * count..(index + 1) * count) else {
        return malformed(format!("{} activations are not {count} per direction", names.len()));
    };
    if call.attribute("activation_alpha").is_some() || call.attribute("activation_beta").is_some() {
        return unsupported("its activations have parameters");
    }
    let functions = names.iter().map(|name| match name.to_lowercase().as_str() {
        "sigmoid" => Ok(UnaryOp::Sigmoid),
        "tanh" => Ok(UnaryOp::Tanh),
        "relu" => Ok(UnaryOp::Relu),
        "softsign" => Ok(UnaryOp::Softsign),
        "softplus" => Ok(UnaryOp::Softplus),
        _ => unsupported(format!("its activation `{name}`")),
    });
    Ok(Direction {
        kind,
        hidden,
        weight,
        recurrence,
        biases,
        peepholes,
        functions: functions.collect::<Outcome<Vec<UnaryOp>>>()?,
        clip: call.optional_float("clip").filter(|clip| *clip > 0.0),
        is_linear_before_reset: call.flag("linear_before_reset"),
    })
}

impl Direction {
    /// State and cell after one step.
    fn step(&self, emit: &mut Emit<'_>, x: ValueId, state: ValueId, cell: ValueId) -> Outcome<(ValueId, ValueId)> {
        let given = self.product(emit, x, self.weight, 0)?;
        match self.kind {
            Kind::Plain => {
                let kept = self.product(emit, state, self.recurrence, 1)?;
                let sum = emit.binary(BinaryOp::Add, given, kept)?;
                let state = self.bend(emit, 0, sum)?;
                Ok((state, state))
            }
            Kind::Gru => self.gru(emit, given, state),
            Kind::Lstm => self.lstm(emit, given, state, cell),
        }
    }

    fn product(&self, emit: &mut Emit<'_>, x: ValueId, weight: ValueId, bias: usize) -> Outcome<ValueId> {
        let y = emit.push(Op::Dense, &[x, weight])?;
        match self.biases {
            Some(biases) => emit.push(Op::BiasAdd { axis: 1 }, &[y, biases[bias]]),
            None => Ok(y),
        }
    }

    fn gate(&self, emit: &mut Emit<'_>, all: ValueId, index: i64) -> Outcome<ValueId> {
        emit.slice(all, 1, index * self.hidden, (index + 1) * self.hidden)
    }

    fn bend(&self, emit: &mut Emit<'_>, function: usize, x: ValueId) -> Outcome<ValueId> {
        let x = match self.clip {
            Some(clip) => emit.push(Op::Clip { low: -clip, high: clip }, &[x])?,
            None => x,
        };
        emit.unary(self.functions[function], x)
    }

    /// `z, r, h`: `h' = (1 - z) · n + z · h`
    fn gru(&self, emit: &mut Emit<'_>, given: ValueId, state: ValueId) -> Outcome<(ValueId, ValueId)> {
        let kept = self.product(emit, state, self.recurrence, 1)?;
        let mut gates = Vec::new();
        for index in [0, 1] {
            let (a, b) = (self.gate(emit, given, index)?, self.gate(emit, kept, index)?);
            let sum = emit.binary(BinaryOp::Add, a, b)?;
            gates.push(self.bend(emit, 0, sum)?);
        }
        let (update, reset) = (gates[0], gates[1]);
        let inner = if self.is_linear_before_reset {
            let kept = self.gate(emit, kept, 2)?;
            emit.binary(BinaryOp::Mul, reset, kept)?
        } else {
            let reset_state = emit.binary(BinaryOp::Mul, reset, state)?;
            let rows = emit.slice(self.recurrence, 0, 2 * self.hidden, 3 * self.hidden)?;
            let kept = emit.push(Op::Dense, &[reset_state, rows])?;
            match self.biases {
                Some([_, bias]) => {
                    let bias = emit.slice(bias, 0, 2 * self.hidden, 3 * self.hidden)?;
                    emit.push(Op::BiasAdd { axis: 1 }, &[kept, bias])?
                }
                None => kept,
            }
        };
        let new = self.gate(emit, given, 2)?;
        let new = emit.binary(BinaryOp::Add, new, inner)?;
        let new = self.bend(emit, 1, new)?;
        let one = emit.scalar(emit.dtype(update)?, 1.0)?;
        let rest = emit.binary(BinaryOp::Sub, one, update)?;
        let new = emit.binary(BinaryOp::Mul, rest, new)?;
        let old = emit.binary(BinaryOp::Mul, update, state)?;
        let state = emit.binary(BinaryOp::Add, new, old)?;
        Ok((state, state))
    }

    /// Input, output, forget gate and candidate.
    fn lstm(&self, emit: &mut Emit<'_>, given: ValueId, state: ValueId, cell: ValueId) -> Outcome<(ValueId, ValueId)> {
        let kept = self.product(emit, state, self.recurrence, 1)?;
        let sums = emit.binary(BinaryOp::Add, given, kept)?;
        let peep = |emit: &mut Emit<'_>, gate: ValueId, index: usize, cell: ValueId| match self.peepholes {
            Some(peepholes) => {
                let seen = emit.binary(BinaryOp::Mul, cell, peepholes[index])?;
                emit.binary(BinaryOp::Add, gate, seen)
            }
            None => Ok(gate),
        };
        let input = self.gate(emit, sums, 0)?;
        let input = peep(emit, input, 0, cell)?;
        let input = self.bend(emit, 0, input)?;
        let forget = self.gate(emit, sums, 2)?;
        let forget = peep(emit, forget, 2, cell)?;
        let forget = self.bend(emit, 0, forget)?;
        let candidate = self.gate(emit, sums, 3)?;
        let candidate = self.bend(emit, 1, candidate)?;
        let old = emit.binary(BinaryOp::Mul, forget, cell)?;
        let new = emit.binary(BinaryOp::Mul, input, candidate)?;
        let cell = emit.binary(BinaryOp::Add, old, new)?;
        let output = self.gate(emit, sums, 1)?;
        let output = peep(emit, output, 1, cell)?;
        let output = self.bend(emit, 0, output)?;
        let shown = emit.unary(self.functions[2], cell)?;
        Ok((emit.binary(BinaryOp::Mul, output, shown)?, cell))
    }
}
