//! Recurrent layers, unrolled over time. Products with the input are one product for all steps.

use super::{Call, Made, Memory, Outputs};
use crate::{Outcome, malformed, unsupported};
use models::compose::{self, Recurrent, Reset};
use models::graph::ValueId;
use models::operators::{BiasAdd, Dense, Gather, Op, UnaryOp};

/// Longer sequences are refused: each step becomes some twenty operators.
const MAX_STEPS: i64 = 4096;

/// What a step computes. Gates stand in the order of PyTorch: input, forgetting, content, output; or reset, update,
/// content.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Lstm,
    Gru,
    /// One product with the state, then this function.
    Plain(UnaryOp),
}

impl Kind {
    fn gates(self) -> i64 {
        match self {
            Kind::Lstm => 4,
            Kind::Gru => 3,
            Kind::Plain(_) => 1,
        }
    }

    /// States after one step, of which the first is the output.
    fn step(
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
            _ => return malformed(format!("{} states do not fit its kind", states.len())),
        })
    }

    fn recurrent(self, weight: ValueId, bias: Option<ValueId>, units: i64) -> Recurrent {
        let usual = Recurrent::new(weight, bias, units);
        match self {
            Kind::Plain(function) => Recurrent { functions: [function; 3], ..usual },
            Kind::Lstm | Kind::Gru => usual,
        }
    }
}

pub(super) fn lstm(call: &mut Call<'_, '_>) -> Outputs {
    layers(call, Kind::Lstm)
}

pub(super) fn gru(call: &mut Call<'_, '_>) -> Outputs {
    layers(call, Kind::Gru)
}

pub(super) fn plain(call: &mut Call<'_, '_>, function: UnaryOp) -> Outputs {
    layers(call, Kind::Plain(function))
}

fn states(call: &Call<'_, '_>) -> Outcome<Vec<ValueId>> {
    match call.arguments.get("hx") {
        Some(super::Argument::Tensor(id)) => Ok(vec![*id]),
        _ => call.tensors("hx"),
    }
}

fn layers(call: &mut Call<'_, '_>, kind: Kind) -> Outputs {
    if call.arguments.contains_key("batch_sizes") {
        return unsupported("its sequences are packed");
    }
    let (mut x, weights) = (call.tensor("input")?, call.tensors("params")?);
    if call.flag("train", false)? && call.float("dropout", 0.0)? != 0.0 {
        return unsupported("it drops elements at random; export the model after `eval()`");
    }
    let states = states(call)?;
    if states.len() != if kind == Kind::Lstm { 2 } else { 1 } {
        return malformed(format!("it has {} states", states.len()));
    }
    let is_projected = kind == Kind::Lstm && call.emit.extents(states[0])? != call.emit.extents(states[1])?;
    let per_direction = if call.flag("has_biases", true)? { 4 } else { 2 } + usize::from(is_projected);
    let directions = if call.flag("bidirectional", false)? { 2 } else { 1 };
    let (count, is_batch_first) = (call.int("num_layers", 1)?, call.flag("batch_first", false)?);
    if !(1..=256).contains(&count) || weights.len() != (count * directions) as usize * per_direction {
        return malformed(format!("{} weights do not fit {count} layers", weights.len()));
    }
    if call.emit.rank(x)? != 3 {
        return malformed("its input needs 3 dimensions");
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
            let starts = states.iter().map(|&state| row(call, state, index)).collect::<Outcome<Vec<_>>>()?;
            let weights = &weights[from..from + per_direction];
            let (weights, projection) = match weights {
                [weights @ .., projection] if is_projected => (weights, Some(*projection)),
                weights => (weights, None),
            };
            let (is_reversed, layers) = (direction == 1, count * directions);
            let side = Side { kind, weights, projection, starts, is_reversed, layers };
            let (y, ends) = side.run(call, x)?;
            sides.push(y);
            ends.into_iter().zip(&mut last).for_each(|(end, last)| last.push(end));
        }
        x = call.emit.concat(&sides, 2)?;
    }
    if is_batch_first {
        x = call.emit.transpose(x, &[1, 0, 2])?;
    }
    let mut outputs = vec![x];
    for states in last.iter().filter(|states| !states.is_empty()) {
        outputs.push(stacked(call, states)?);
    }
    Ok(outputs.into_iter().map(|id| Made { id, window: Memory::Own }).collect())
}

/// One row of the first dimension.
fn row(call: &mut Call<'_, '_>, x: ValueId, at: i64) -> Outcome<ValueId> {
    let [rows, batch, width] = call.emit.extents(x)?[..] else { return malformed("a state needs 3 dimensions") };
    if at >= rows {
        return malformed(format!("a state has {rows} rows"));
    }
    let cut = call.emit.slice(x, 0, at, at + 1)?;
    call.emit.reshape(cut, &[batch, width])
}

fn stacked(call: &mut Call<'_, '_>, rows: &[ValueId]) -> Outcome<ValueId> {
    let mut parts = Vec::new();
    for &id in rows {
        let shape = [vec![1], call.emit.extents(id)?].concat();
        parts.push(call.emit.reshape(id, &shape)?);
    }
    call.emit.concat(&parts, 0)
}

/// One layer in one direction of time.
struct Side<'a> {
    kind: Kind,
    weights: &'a [ValueId],
    /// A product that makes the output of a step smaller.
    projection: Option<ValueId>,
    starts: Vec<ValueId>,
    is_reversed: bool,
    /// How many such layers there are.
    layers: i64,
}

impl Side<'_> {
    /// All states of `[steps, batch, width]`, and the last.
    fn run(&self, call: &mut Call<'_, '_>, x: ValueId) -> Outcome<(ValueId, Vec<ValueId>)> {
        let steps = call.emit.extents(x)?[0];
        if !(1..=MAX_STEPS).contains(&(steps.saturating_mul(self.layers))) {
            return unsupported(format!("{steps} steps of {} layers are above {MAX_STEPS}", self.layers));
        }
        let from_input = from_input(call, x, self.weights[0], self.weights.get(2).copied())?;
        let width = call.emit.extents(from_input)?[2];
        if width % self.kind.gates() != 0 {
            return malformed(format!("{width} rows of a weight are no {} gates", self.kind.gates()));
        }
        let bias = self.weights.get(3).copied();
        let recurrent = self.kind.recurrent(self.weights[1], bias, width / self.kind.gates());
        let mut states = self.starts.clone();
        let mut all = Vec::new();
        for step in 0..steps {
            let at = if self.is_reversed { steps - 1 - step } else { step };
            // An index, unlike the offset of a slice, is no part of a task: all steps share one.
            let at = call.emit.integers(&[at])?;
            let now = call.emit.push(Op::Gather(Gather { axis: 0 }), &[from_input, at])?;
            let now = row(call, now, 0)?;
            states = self.kind.step(call, now, &states, (&recurrent, self.projection))?;
            all.push(states[0]);
        }
        if self.is_reversed {
            all.reverse();
        }
        Ok((stacked(call, &all)?, states))
    }
}

/// The product of a weight with the input, and its bias.
fn from_input(call: &mut Call<'_, '_>, x: ValueId, weight: ValueId, bias: Option<ValueId>) -> Outcome<ValueId> {
    let y = call.emit.push(Op::Dense(Dense {}), &[x, weight])?;
    match bias {
        Some(bias) => call.emit.push(Op::BiasAdd(BiasAdd { axis: -1 }), &[y, bias]),
        None => Ok(y),
    }
}

/// One step of a layer.
fn cell(call: &mut Call<'_, '_>, kind: Kind) -> Outputs {
    let (x, states) = (call.tensor("input")?, states(call)?);
    let (weight, bias) = (call.tensor("w_hh")?, call.optional_tensor("b_hh")?);
    let (from_x, from_bias) = (call.tensor("w_ih")?, call.optional_tensor("b_ih")?);
    let now = from_input(call, x, from_x, from_bias)?;
    let width = call.emit.extents(now)?.last().copied().unwrap_or(0);
    if call.emit.rank(now)? != 2 || width % kind.gates() != 0 {
        return malformed(format!("{width} rows of a weight are no {} gates", kind.gates()));
    }
    let recurrent = kind.recurrent(weight, bias, width / kind.gates());
    let states = kind.step(call, now, &states, (&recurrent, None))?;
    Ok(states.into_iter().map(|id| Made { id, window: Memory::Own }).collect())
}

pub(super) fn lstm_cell(call: &mut Call<'_, '_>) -> Outputs {
    cell(call, Kind::Lstm)
}

pub(super) fn gru_cell(call: &mut Call<'_, '_>) -> Outputs {
    cell(call, Kind::Gru)
}

pub(super) fn plain_cell(call: &mut Call<'_, '_>, function: UnaryOp) -> Outputs {
    cell(call, Kind::Plain(function))
}
