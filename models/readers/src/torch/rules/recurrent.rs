//! Recurrent layers, unrolled over time. Products with the input are one product for all steps.

use super::{Call, Made, Memory, Outputs};
use crate::{Outcome, malformed, unsupported};
use models::compose::{self, Recurrent, Reset};
use models::graph::ValueId;
use models::operators::{BiasAdd, Dense, Op};

/// Longer sequences are refused: each step becomes some twenty operators.
const MAX_STEPS: i64 = 4096;

pub(super) fn lstm(call: &mut Call<'_, '_>) -> Outputs {
    layers(call, 4)
}

pub(super) fn gru(call: &mut Call<'_, '_>) -> Outputs {
    layers(call, 3)
}

/// Gates stand in the order of PyTorch: input, forgetting, content, output; or reset, update, content.
fn layers(call: &mut Call<'_, '_>, gates: i64) -> Outputs {
    let (mut x, weights) = (call.tensor("input")?, call.tensors("params")?);
    if call.arguments.contains_key("batch_sizes") || call.emit.rank(x)? != 3 {
        return unsupported("its sequences are packed or have no batch");
    }
    if call.flag("train", false)? && call.float("dropout", 0.0)? != 0.0 {
        return unsupported("it drops elements at random; export the model after `eval()`");
    }
    let states = match call.arguments.get("hx") {
        Some(super::Argument::Tensor(id)) => vec![*id],
        _ => call.tensors("hx")?,
    };
    if states.len() != if gates == 4 { 2 } else { 1 } {
        return unsupported("its states are projected");
    }
    let has_biases = call.flag("has_biases", true)?;
    let directions = if call.flag("bidirectional", false)? { 2 } else { 1 };
    let (count, is_batch_first) = (call.int("num_layers", 1)?, call.flag("batch_first", false)?);
    let per_direction = if has_biases { 4 } else { 2 };
    if !(1..=256).contains(&count) || weights.len() as i64 != count * directions * per_direction {
        return malformed(format!("{} weights do not fit {count} layers", weights.len()));
    }
    if is_batch_first {
        x = call.emit.transpose(x, &[1, 0, 2])?;
    }
    let mut last: [Vec<ValueId>; 2] = [Vec::new(), Vec::new()];
    for layer in 0..count {
        let mut sides = Vec::new();
        for direction in 0..directions {
            let index = layer * directions + direction;
            let from = (index * per_direction) as usize;
            let starts = states.iter().map(|&state| row(call, state, index)).collect::<Outcome<Vec<_>>>()?;
            let side = Side {
                gates,
                weights: &weights[from..from + per_direction as usize],
                starts,
                is_reversed: direction == 1,
                layers: count * directions,
            };
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
    gates: i64,
    weights: &'a [ValueId],
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
        let mut from_input = call.emit.push(Op::Dense(Dense {}), &[x, self.weights[0]])?;
        if let Some(&bias) = self.weights.get(2) {
            from_input = call.emit.push(Op::BiasAdd(BiasAdd { axis: -1 }), &[from_input, bias])?;
        }
        let width = call.emit.extents(from_input)?[2];
        if width % self.gates != 0 {
            return malformed(format!("{width} rows of a weight are no {} gates", self.gates));
        }
        let recurrent = Recurrent::new(self.weights[1], self.weights.get(3).copied(), width / self.gates);
        let mut states = self.starts.clone();
        let mut all = Vec::new();
        for step in 0..steps {
            let at = if self.is_reversed { steps - 1 - step } else { step };
            let now = row(call, from_input, at)?;
            let builder = &mut call.emit.builder;
            states = match states[..] {
                [state, memory] => {
                    let (state, memory) = compose::lstm_step(builder, now, (state, memory), &recurrent, [0, 1, 2, 3])?;
                    vec![state, memory]
                }
                _ => vec![compose::gru_step(builder, now, states[0], &recurrent, [0, 1, 2], Reset::AfterProduct)?],
            };
            all.push(states[0]);
        }
        if self.is_reversed {
            all.reverse();
        }
        Ok((stacked(call, &all)?, states))
    }
}
