//! Chains decoding steps into one graph: each step reads the keys and values of the previous one. Outputs are those of
//! every step, followed by the keys and values of the last one.

use models::error::{Error, Result};
use models::graph::{Graph, Node, Value, ValueId};
use std::collections::HashMap;

/// Joins graphs of consecutive decoding steps, each with one more past token than the previous one.
pub(super) fn chain_steps(name: &str, steps: &[Graph]) -> Result<Graph> {
    let mut chain = Chain {
        graph: Graph { name: name.to_owned(), values: vec![], nodes: vec![], inputs: vec![], outputs: vec![] },
        known: HashMap::new(),
        carried: Vec::new(),
    };
    for (step, graph) in steps.iter().enumerate() {
        chain.add_step(step, graph)?;
    }
    chain.graph.outputs.append(&mut chain.carried);
    chain.graph.check_default()?;
    Ok(chain.graph)
}

struct Chain {
    graph: Graph,
    known: HashMap<String, Vec<ValueId>>,
    /// Keys and values that the last step returns, in the order of the inputs of a step.
    carried: Vec<ValueId>,
}

impl Chain {
    fn add_step(&mut self, step: usize, graph: &Graph) -> Result<()> {
        let mut places: Vec<Option<ValueId>> = vec![None; graph.values.len()];
        let mut past = std::mem::take(&mut self.carried).into_iter();
        for &input in &graph.inputs {
            let value = &graph.values[input.0 as usize];
            places[input.0 as usize] = Some(match value.name.split('.').next().unwrap_or_default() {
                "past_keys" | "past_values" if step > 0 => {
                    let id = past.next().ok_or_else(|| self.mismatch_error(&value.name))?;
                    if self.graph.values[id.0 as usize].ty != value.ty {
                        return Err(self.mismatch_error(&value.name));
                    }
                    id
                }
                "past_keys" | "past_values" => self.add_input(value.clone()),
                // In some families the encoder's length equals the sequence, which differs between steps.
                "encoder_keys" | "encoder_values" if step > 0 && !self.has_value(value) => {
                    return Err(self.mismatch_error(&value.name));
                }
                "encoder_keys" | "encoder_values" => self.share_value(value, true),
                _ => self.add_input(Value { name: format!("{}.{step}", value.name), ..value.clone() }),
            });
        }
        for (id, value) in graph.values.iter().enumerate() {
            if places[id].is_none() {
                places[id] = Some(match value.data {
                    Some(_) => self.share_value(value, false),
                    None => self.push_value(value.clone()),
                });
            }
        }
        let placed = |ids: &[ValueId]| ids.iter().filter_map(|id| places[id.0 as usize]).collect::<Vec<ValueId>>();
        for node in &graph.nodes {
            let mut origin = node.origin.clone();
            origin.scope = format!("step.{step}.{}", origin.scope);
            let (inputs, outputs) = (placed(&node.inputs), placed(&node.outputs));
            self.graph.nodes.push(Node { op: node.op.clone(), inputs, outputs, origin });
        }
        let is_past = |id: &&ValueId| graph.values[id.0 as usize].name.starts_with("past_");
        let kept = graph.inputs.iter().filter(is_past).count();
        let mut answers = placed(&graph.outputs);
        self.carried = answers.split_off(answers.len().saturating_sub(kept));
        self.graph.outputs.extend(answers);
        Ok(())
    }

    fn push_value(&mut self, value: Value) -> ValueId {
        let id = ValueId(u32::try_from(self.graph.values.len()).unwrap_or(u32::MAX));
        self.graph.values.push(value);
        id
    }

    fn add_input(&mut self, value: Value) -> ValueId {
        let id = self.push_value(value);
        self.graph.inputs.push(id);
        id
    }

    fn share_value(&mut self, value: &Value, is_input: bool) -> ValueId {
        let mut same = self.known.get(&value.name).into_iter().flatten().copied();
        if let Some(id) = same.find(|id| self.graph.values[id.0 as usize] == *value) {
            return id;
        }
        let id = if is_input { self.add_input(value.clone()) } else { self.push_value(value.clone()) };
        self.known.entry(value.name.clone()).or_default().push(id);
        id
    }

    fn has_value(&self, value: &Value) -> bool {
        let same = self.known.get(&value.name).into_iter().flatten();
        same.copied().any(|id| self.graph.values[id.0 as usize] == *value)
    }

    fn mismatch_error(&self, name: &str) -> Error {
        let reason = format!(
            "decoding steps cannot be chained: `{name}` of a step differs from the result of the previous step"
        );
        Error::Model { model: self.graph.name.clone(), reason }
    }
}
