//! Recurrent cells, unrolled over the steps of their input `[batch, steps, features]`.
//!
//! The product with the input is one for all steps; the products with the state follow each other. Both have a bias, as in
//! the common implementations. The first state is an input too, so that all steps are alike; the answer is the last.

use super::net::Net;
use crate::error::Result;
use crate::graph::ValueId;
use crate::operator::{BinaryOp, UnaryOp};

/// Width of the state.
const UNITS: i64 = 128;

pub(super) fn lstm(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let cell = Cell::new(net, x, 4)?;
    let mut memory = net.input("memory", &[cell.batch, UNITS])?;
    let mut state = net.input("state", &[cell.batch, UNITS])?;
    for step in 0..cell.steps {
        let scope = format!("step{step}");
        let from_input = cell.input_at(net, &scope, step)?;
        let from_state = cell.of_state(net, &scope, state)?;
        let sum = net.add(&format!("{scope}.gates"), from_input, from_state)?;
        let input = gate(net, &format!("{scope}.input"), sum, 0, UnaryOp::Sigmoid)?;
        let forget = gate(net, &format!("{scope}.forget"), sum, 1, UnaryOp::Sigmoid)?;
        let fresh = gate(net, &format!("{scope}.fresh"), sum, 2, UnaryOp::Tanh)?;
        let output = gate(net, &format!("{scope}.output"), sum, 3, UnaryOp::Sigmoid)?;
        let kept = net.binary(&format!("{scope}.keep"), BinaryOp::Mul, forget, memory)?;
        let added = net.binary(&format!("{scope}.write"), BinaryOp::Mul, input, fresh)?;
        memory = net.add(&format!("{scope}.memory"), kept, added)?;
        let shown = net.unary(&format!("{scope}.show"), memory, UnaryOp::Tanh)?;
        state = net.binary(&format!("{scope}.state"), BinaryOp::Mul, output, shown)?;
    }
    Ok(vec![state])
}

pub(super) fn gru(net: &mut Net, x: ValueId) -> Result<Vec<ValueId>> {
    let cell = Cell::new(net, x, 3)?;
    let mut state = net.input("state", &[cell.batch, UNITS])?;
    for step in 0..cell.steps {
        let scope = format!("step{step}");
        let from_input = cell.input_at(net, &scope, step)?;
        let from_state = cell.of_state(net, &scope, state)?;
        let part = |net: &mut Net, name: &str, index: i64| -> Result<[ValueId; 2]> {
            let scope = format!("{scope}.{name}");
            Ok([slice(net, &scope, from_input, index)?, slice(net, &scope, from_state, index)?])
        };
        let [from_x, from_h] = part(net, "reset", 0)?;
        let reset = net.add(&format!("{scope}.reset"), from_x, from_h)?;
        let reset = net.unary(&format!("{scope}.reset"), reset, UnaryOp::Sigmoid)?;
        let [from_x, from_h] = part(net, "update", 1)?;
        let update = net.add(&format!("{scope}.update"), from_x, from_h)?;
        let update = net.unary(&format!("{scope}.update"), update, UnaryOp::Sigmoid)?;
        let [from_x, from_h] = part(net, "fresh", 2)?;
        let fresh = net.binary(&format!("{scope}.fresh"), BinaryOp::Mul, reset, from_h)?;
        let fresh = net.add(&format!("{scope}.fresh"), fresh, from_x)?;
        let fresh = net.unary(&format!("{scope}.fresh"), fresh, UnaryOp::Tanh)?;
        // (1 - update) · fresh + update · state, with one product less.
        let change = net.binary(&format!("{scope}.change"), BinaryOp::Sub, state, fresh)?;
        let change = net.binary(&format!("{scope}.change"), BinaryOp::Mul, change, update)?;
        state = net.add(&format!("{scope}.state"), change, fresh)?;
    }
    Ok(vec![state])
}

/// What all steps share.
struct Cell {
    batch: i64,
    steps: i64,
    /// Gates times units.
    width: i64,
    /// The product with the input, of all steps.
    from_input: ValueId,
    weight: ValueId,
    bias: ValueId,
}

impl Cell {
    fn new(net: &mut Net, x: ValueId, gates: i64) -> Result<Cell> {
        let extents = net.extents(x)?;
        let width = gates * UNITS;
        let from_input = net.dense("input", x, width)?;
        let weight = net.weight("recurrent.weight", &[width, UNITS])?;
        let bias = net.weight("recurrent.bias", &[width])?;
        Ok(Cell { batch: extents[0], steps: extents[1], width, from_input, weight, bias })
    }

    fn input_at(&self, net: &mut Net, scope: &str, step: i64) -> Result<ValueId> {
        let x = net.slice(&format!("{scope}.take"), self.from_input, 1, step, step + 1)?;
        net.reshape(&format!("{scope}.take"), x, &[self.batch, self.width])
    }

    fn of_state(&self, net: &mut Net, scope: &str, state: ValueId) -> Result<ValueId> {
        net.dense_with(&format!("{scope}.recurrent"), state, self.weight, self.bias)
    }
}

/// One gate of all that were computed together.
fn gate(net: &mut Net, scope: &str, all: ValueId, index: i64, function: UnaryOp) -> Result<ValueId> {
    let x = slice(net, scope, all, index)?;
    net.unary(scope, x, function)
}

fn slice(net: &mut Net, scope: &str, x: ValueId, index: i64) -> Result<ValueId> {
    net.slice(scope, x, 1, index * UNITS, (index + 1) * UNITS)
}
