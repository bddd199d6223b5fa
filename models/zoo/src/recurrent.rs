//! Recurrent cells, unrolled over the steps of their input `[batch, steps, features]`.
//! One product with the input serves all steps; the products with the state are sequential. Both products have a bias,
//! as in common implementations. The initial state is a model input, so that all steps are equal; the output is the
//! last state.

use super::net::Net;
use models::compose::{Recurrent, Reset, gru_step, lstm_step};
use models::error::Result;
use models::graph::ValueId;

const UNITS: i64 = 128;

pub(super) fn build_lstm(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let cell = RecurrentCell::new(net, x, 4)?;
    let mut memory = net.add_input("memory", &[cell.batch, UNITS])?;
    let mut state = net.add_input("state", &[cell.batch, UNITS])?;
    for step in 0..cell.steps {
        let from_input = cell.input_at(net, step)?;
        let builder = net.scoped_builder(&format!("step{step}"));
        (state, memory) = lstm_step(builder, from_input, (state, memory), &cell.recurrent, [0, 1, 2, 3])?;
    }
    Ok(vec![state])
}

pub(super) fn build_gru(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let cell = RecurrentCell::new(net, x, 3)?;
    let mut state = net.add_input("state", &[cell.batch, UNITS])?;
    for step in 0..cell.steps {
        let from_input = cell.input_at(net, step)?;
        let builder = net.scoped_builder(&format!("step{step}"));
        state = gru_step(builder, from_input, state, &cell.recurrent, [0, 1, 2], Reset::AfterProduct)?;
    }
    Ok(vec![state])
}

struct RecurrentCell {
    batch: i64,
    steps: i64,
    /// Number of gates times number of units.
    width: i64,
    /// Product of the input with its weights, for all steps at once.
    from_input: ValueId,
    recurrent: Recurrent,
}

impl RecurrentCell {
    fn new(net: &mut Net, x: ValueId, gates: i64) -> Result<RecurrentCell> {
        let extents = net.extents(x)?;
        let width = gates * UNITS;
        let from_input = net.dense("input", x, width)?;
        let weight = net.add_weight("recurrent.weight", &[width, UNITS])?;
        let bias = Some(net.add_weight("recurrent.bias", &[width])?);
        let recurrent = Recurrent::new(weight, bias, UNITS);
        Ok(RecurrentCell { batch: extents[0], steps: extents[1], width, from_input, recurrent })
    }

    fn input_at(&self, net: &mut Net, step: i64) -> Result<ValueId> {
        let scope = format!("step{step}.take");
        let x = net.slice(&scope, self.from_input, 1, step, step + 1)?;
        net.reshape(&scope, x, &[self.batch, self.width])
    }
}
