//! Recurrent layers, unrolled over time. The product with the input is computed once for all steps.

use super::{Call, Memory, Outputs, RuleOutput};
use crate::limits::MAX_STEPS;
use crate::{Outcome, malformed, unsupported};
use models::compose::{self, Recurrent, Reset};
use models::graph::ValueId;
use models::operators::{BiasAdd, Dense, Op, UnaryOp};

/// Cell type. The gates have PyTorch's order: input, forget, content, output for LSTM; reset, update, content for GRU.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Lstm,
    Gru,
    /// A plain recurrent cell: one product with the state, then this activation.
    Plain(UnaryOp),
}

impl Kind {
    fn gate_count(self) -> i64 {
        match self {
            Kind::Lstm => 4,
            Kind::Gru => 3,
            Kind::Plain(_) => 1,
        }
    }

    /// Returns the states after one step; the first is the output.
    fn next_states(
        self,
        call: &mut Call<'_, '_>,
        now: ValueId,
        states: &[ValueId],
        (recurrent, projection): (&Recurrent, Option<ValueId>),
    ) -> Outcome<Vec<ValueId>> {
        let builder = &mut call.emit.builder;
        Ok(match (self, states) {
            (Kind::Lstm, &[state, memory]) => {
                let (state, memory) = compose::lstm_step(builder, now, (state, memory), recurrent, [0, 1, 2, 3])?;
                let state = match projection {
                    Some(projection) => builder.push(Op::Dense(Dense {}), &[state, projection])?,
                    None => state,
                };
                vec![state, memory]
            }
            (Kind::Gru, &[state]) => {
                vec![compose::gru_step(builder, now, state, recurrent, [0, 1, 2], Reset::AfterProduct)?]
            }
            (Kind::Plain(_), &[state]) => vec![compose::elman_step(builder, now, state, recurrent)?],
            _ => return malformed(format!("the cell cannot have {} states", states.len())),
        })
    }

    fn recurrent_weights(self, weight: ValueId, bias: Option<ValueId>, units: i64) -> Recurrent {
        let usual = Recurrent::new(weight, bias, units);
        match self {
            Kind::Plain(function) => Recurrent { functions: [function; 3], ..usual },
            Kind::Lstm | Kind::Gru => usual,
        }
    }
}

pub(super) fn lstm_layers(call: &mut Call<'_, '_>) -> Outputs {
    run_layers(call, Kind::Lstm)
}

pub(super) fn gru_layers(call: &mut Call<'_, '_>) -> Outputs {
    run_layers(call, Kind::Gru)
}

pub(super) fn plain_layers(call: &mut Call<'_, '_>, function: UnaryOp) -> Outputs {
    run_layers(call, Kind::Plain(function))
}

fn initial_states(call: &Call<'_, '_>) -> Outcome<Vec<ValueId>> {
    match call.arguments.get("hx") {
        Some(super::Argument::Tensor(id)) => Ok(vec![*id]),
        _ => call.tensor_list("hx"),
    }
}

fn run_layers(call: &mut Call<'_, '_>, kind: Kind) -> Outputs {
    if call.arguments.contains_key("batch_sizes") {
        return unsupported("packed sequences");
    }
    let (mut x, weights) = (call.tensor_argument("input")?, call.tensor_list("params")?);
    if call.flag_argument("train", false)? && call.float_argument("dropout", 0.0)? != 0.0 {
        return unsupported("dropout in training mode; export the model after `eval()`");
    }
    let states = initial_states(call)?;
    if states.len() != if kind == Kind::Lstm { 2 } else { 1 } {
        return malformed(format!("the layer cannot have {} initial states", states.len()));
    }
    let is_projected = kind == Kind::Lstm && call.emit.extents(states[0])? != call.emit.extents(states[1])?;
    let per_direction = if call.flag_argument("has_biases", true)? { 4 } else { 2 } + usize::from(is_projected);
    let directions = if call.flag_argument("bidirectional", false)? { 2 } else { 1 };
    let (count, is_batch_first) = (call.int_argument("num_layers", 1)?, call.flag_argument("batch_first", false)?);
    if !(1..=256).contains(&count) || weights.len() != (count * directions) as usize * per_direction {
        return malformed(format!("{} weights do not fit {count} layers", weights.len()));
    }
    if call.emit.rank(x)? != 3 {
        return malformed("the input must have 3 dimensions");
    }
    if is_batch_first {
        x = call.emit.transpose(x, &[1, 0, 2])?;
    }
    let mut last: [Vec<ValueId>; 2] = [Vec::new(), Vec::new()];
    for layer in 0..count {
        let mut sides = Vec::new();
        for direction in 0..directions {
            let index = layer * directions + direction;
            let from = index as usize * per_direction;
            let starts = states.iter().map(|&state| take_row(call, state, index)).collect::<Outcome<Vec<_>>>()?;
            let weights = &weights[from..from + per_direction];
            let (weights, projection) = match weights {
                [weights @ .., projection] if is_projected => (weights, Some(*projection)),
                weights => (weights, None),
            };
            let (is_reversed, layers) = (direction == 1, count * directions);
            let side = Side { kind, weights, projection, starts, is_reversed, layers };
            let (y, ends) = side.unroll_steps(call, x)?;
            sides.push(y);
            ends.into_iter().zip(&mut last).for_each(|(end, last)| last.push(end));
        }
        x = call.emit.concat_parts(&sides, 2)?;
    }
    if is_batch_first {
        x = call.emit.transpose(x, &[1, 0, 2])?;
    }
    let mut outputs = vec![x];
    for states in last.iter().filter(|states| !states.is_empty()) {
        outputs.push(stack_rows(call, states)?);
    }
    Ok(outputs.into_iter().map(|id| RuleOutput { id, window: Memory::Own }).collect())
}

fn take_row(call: &mut Call<'_, '_>, x: ValueId, at: i64) -> Outcome<ValueId> {
    let [rows, batch, width] = call.emit.extents(x)?[..] else {
        return malformed("the initial state must have 3 dimensions");
    };
    if at >= rows {
        return malformed(format!("the initial state has only {rows} rows, one per layer and direction"));
    }
    let cut = call.emit.slice(x, 0, at, at + 1)?;
    call.emit.reshape(cut, &[batch, width])
}

fn stack_rows(call: &mut Call<'_, '_>, rows: &[ValueId]) -> Outcome<ValueId> {
    let mut parts = Vec::new();
    for &id in rows {
        let shape = [vec![1], call.emit.extents(id)?].concat();
        parts.push(call.emit.reshape(id, &shape)?);
    }
    call.emit.concat_parts(&parts, 0)
}

struct Side<'a> {
    kind: Kind,
    weights: &'a [ValueId],
    /// Weight of the projection (`proj_size`) that reduces the output of each step.
    projection: Option<ValueId>,
    starts: Vec<ValueId>,
    is_reversed: bool,
    /// Number of layers times number of directions, for the limit on unrolled steps.
    layers: i64,
}

impl Side<'_> {
    /// Unrolls all steps; returns the outputs `[steps, batch, width]` and the last states.
    fn unroll_steps(&self, call: &mut Call<'_, '_>, x: ValueId) -> Outcome<(ValueId, Vec<ValueId>)> {
        let steps = call.emit.extents(x)?[0];
        if !(1..=MAX_STEPS).contains(&(steps.saturating_mul(self.layers))) {
            return unsupported(format!("{steps} steps of {} layers exceed the limit of {MAX_STEPS}", self.layers));
        }
        let from_input = from_input(call, x, self.weights[0], self.weights.get(2).copied())?;
        let width = call.emit.extents(from_input)?[2];
        if width % self.kind.gate_count() != 0 {
            return malformed(format!(
                "{width} rows of a weight cannot be split into {} gates",
                self.kind.gate_count()
            ));
        }
        let bias = self.weights.get(3).copied();
        let recurrent = self.kind.recurrent_weights(self.weights[1], bias, width / self.kind.gate_count());
        let mut states = self.starts.clone();
        let mut all = Vec::new();
        for step in 0..steps {
            let at = if self.is_reversed { steps - 1 - step } else { step };
            let now = take_row(call, from_input, at)?;
            states = self.kind.next_states(call, now, &states, (&recurrent, self.projection))?;
            all.push(states[0]);
        }
        if self.is_reversed {
            all.reverse();
        }
        Ok((stack_rows(call, &all)?, states))
    }
}

fn from_input(call: &mut Call<'_, '_>, x: ValueId, weight: ValueId, bias: Option<ValueId>) -> Outcome<ValueId> {
    let y = call.emit.push(Op::Dense(Dense {}), &[x, weight])?;
    match bias {
        Some(bias) => call.emit.push(Op::BiasAdd(BiasAdd { axis: -1 }), &[y, bias]),
        None => Ok(y),
    }
}

fn single_step(call: &mut Call<'_, '_>, kind: Kind) -> Outputs {
    let (x, states) = (call.tensor_argument("input")?, initial_states(call)?);
    let (weight, bias) = (call.tensor_argument("w_hh")?, call.optional_tensor("b_hh")?);
    let (from_x, from_bias) = (call.tensor_argument("w_ih")?, call.optional_tensor("b_ih")?);
    let now = from_input(call, x, from_x, from_bias)?;
    let width = call.emit.extents(now)?.last().copied().unwrap_or(0);
    if call.emit.rank(now)? != 2 || width % kind.gate_count() != 0 {
        return malformed(format!("{width} rows of a weight cannot be split into {} gates", kind.gate_count()));
    }
    let recurrent = kind.recurrent_weights(weight, bias, width / kind.gate_count());
    let states = kind.next_states(call, now, &states, (&recurrent, None))?;
    Ok(states.into_iter().map(|id| RuleOutput { id, window: Memory::Own }).collect())
}

pub(super) fn lstm_cell(call: &mut Call<'_, '_>) -> Outputs {
    single_step(call, Kind::Lstm)
}

pub(super) fn gru_cell(call: &mut Call<'_, '_>) -> Outputs {
    single_step(call, Kind::Gru)
}

pub(super) fn plain_cell(call: &mut Call<'_, '_>, function: UnaryOp) -> Outputs {
    single_step(call, Kind::Plain(function))
}
