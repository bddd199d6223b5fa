//! Imports the operators of a TFLite file in order, each by the rule of its code.

use super::call::{Call, RealConstants};
use super::joined::Joins;
use super::rules;
use super::schema::{Model, Operator, Subgraph, Tensor};
use super::stored;
use crate::limits::{NodeBudget, nested_label};
use crate::{Emit, Failure, Options, Outcome, Refusal, Skipped, finish_graph, malformed, unsupported};
use bytes::Bytes;

use models::contents::Contents;
use models::error::{Error, Result};
use models::graph::{Const, Graph, Origin, ValueId};
use models::names::shorten_text;
use models::types::TensorType;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet};

#[derive(Clone, Copy)]
pub(super) enum TfliteSlot {
    Unmade,
    Value(ValueId),
    Skipped,
}

/// A graph of the file while its operators are imported.
pub(super) struct Scope<'a> {
    pub graph: &'a Subgraph<'a>,
    /// What each tensor of the graph is.
    pub slots: Vec<TfliteSlot>,
    /// Prefix of node names.
    pub place: String,
    pub depth: usize,
}

pub(super) struct TfliteImporter<'a> {
    file: &'a str,
    pub(super) model: &'a Model<'a>,
    pub(super) options: &'a Options,
    pub(super) emit: Emit<'a>,
    pub(super) scope: Scope<'a>,
    pub(super) budget: NodeBudget,
    /// The tensors of each graph with its constants, by the number of the graph.
    prepared: HashMap<usize, Vec<TfliteSlot>>,
    /// Bytes of constants that were packed or sparse.
    unpacked_bytes: usize,
    reals: RealConstants,
    joins: Joins,
    /// States that an operator has read and changed.
    states: HashSet<*const Tensor>,
    /// Why operators without a rule are refused.
    without_rule: OnceCell<String>,
    skipped: Vec<Skipped>,
    /// Inputs of skipped operators, which become outputs of the remaining graph.
    pub(super) loose_ends: Vec<ValueId>,
}

pub(super) fn import_model(model: &Model<'_>, file: &str, options: &Options) -> Result<(Graph, Vec<Skipped>)> {
    let main = &model.graphs[0];
    let name = if main.name.is_empty() || main.name == "main" { file } else { &main.name };
    let operator_count = model.graphs.iter().map(|graph| graph.operators.len()).sum();
    let mut importer = TfliteImporter {
        file,
        model,
        options,
        emit: Emit::new(name, None),
        scope: Scope { graph: main, slots: Vec::new(), place: String::new(), depth: 0 },
        budget: NodeBudget::new(operator_count),
        prepared: HashMap::new(),
        unpacked_bytes: 0,
        without_rule: OnceCell::new(),
        reals: RealConstants::new(),
        joins: Joins::default(),
        states: HashSet::new(),
        skipped: Vec::new(),
        loose_ends: Vec::new(),
    };
    importer.scope = importer.open_scope(0)?;
    importer.add_inputs()?;
    importer.import_operators()?;
    importer.finish_import()
}

impl<'a> TfliteImporter<'a> {
    /// Returns a scope in which only the constants of a graph of the file have values.
    pub(super) fn open_scope(&mut self, number: usize) -> Result<Scope<'a>> {
        let graph = &self.model.graphs[number];
        let slots = match self.prepared.get(&number) {
            Some(slots) => slots.clone(),
            None => {
                let slots = graph.tensors.iter().map(|tensor| self.add_constant(tensor)).collect::<Result<Vec<_>>>()?;
                self.prepared.insert(number, slots.clone());
                slots
            }
        };
        Ok(Scope { graph, slots, place: self.scope.place.clone(), depth: self.scope.depth })
    }

    fn add_constant(&mut self, tensor: &Tensor) -> Result<TfliteSlot> {
        let Some(range) = &tensor.data else { return Ok(TfliteSlot::Unmade) };
        let place = || format!("tensor `{}`", tensor.name);
        // A constant of an unsupported type is an error only if it is read.
        let packed = tensor.packed_format();
        let Some(dtype) = packed.map(|(_, dtype)| dtype).or(tensor.dtype().ok()) else {
            return Ok(TfliteSlot::Unmade);
        };
        let ty = TensorType::new(dtype, &known_extents(&tensor.shape));
        models::shapes::check_type(&ty).map_err(|reason| self.malformed(place(), reason))?;
        let bytes = self.model.file_bytes(range.clone());
        let count = ty.element_count().and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
        let bytes = match (packed, &tensor.sparsity) {
            (Some(packed), None) => stored::unpack_bits(&bytes, packed, count).map(Bytes::from),
            (None, Some(sparsity)) => sparsity.expand_dense(&bytes, &ty).map(Bytes::from),
            (None, None) => Ok(bytes),
            (Some(_), Some(_)) => {
                return Err(self.unsupported(place(), "sparse tensors with elements below 8 bits".to_owned()));
            }
        };
        let bytes = bytes.map_err(|reason| self.malformed(place(), reason))?;
        if packed.is_some() || tensor.sparsity.is_some() {
            // Several tensors may share a buffer, so the sum is bounded, too.
            self.unpacked_bytes = self.unpacked_bytes.saturating_add(bytes.len());
            if self.unpacked_bytes > self.model.file_length().saturating_add(64).saturating_mul(stored::MAX_GROWTH) {
                let reason = "the unpacked constants are too large for the file size".to_owned();
                return Err(self.malformed(place(), reason));
            }
        }
        if ty.size_bytes() != Some(bytes.len() as u64) {
            return Err(self.malformed(place(), format!("data of {} bytes does not fit {ty}", bytes.len())));
        }
        let data = Const::Bytes(Contents::new(bytes));
        Ok(TfliteSlot::Value(self.emit.builder.add_constant(&tensor.name, ty, data)?))
    }

    /// Adds a state that the interpreter keeps between runs, as it is before the first run: zero. The operator that
    /// reads the state changes it, so a second one would read other numbers.
    fn read_state(&mut self, tensor: &'a Tensor) -> Outcome<ValueId> {
        let name = shorten_text(&tensor.name);
        let dtype = tensor.dtype().or_else(|reason| unsupported(format!("input `{name}`: {reason}")))?;
        if !tensor.is_variable {
            return malformed(format!("input `{name}` is not computed by any earlier node"));
        }
        if !self.states.insert(std::ptr::from_ref(tensor)) {
            return unsupported(format!("input `{name}` is a state that an earlier node has changed"));
        }
        let zero = tensor.quantisation.as_ref().map_or(0.0, |scales| scales.zeros[0] as f64);
        self.emit.add_filled(dtype, &known_extents(&tensor.shape), zero)
    }

    fn add_inputs(&mut self) -> Result<()> {
        let graph = self.scope.graph;
        let given = graph.inputs.iter().map(|&index| self.find_tensor(index)).collect::<Result<Vec<_>>>()?;
        for name in self.options.shapes.keys().chain(self.options.bindings.keys()) {
            if !given.iter().any(|(_, tensor)| tensor.name == *name) {
                let names: Vec<&str> = given.iter().map(|(_, tensor)| tensor.name.as_str()).collect();
                let reason = format!("the model has no such input; the inputs are {}", names.join(", "));
                return Err(self.malformed(format!("input `{name}`"), reason));
            }
        }
        for (index, tensor) in given {
            let place = || format!("input `{}`", tensor.name);
            let dtype = tensor.dtype().map_err(|reason| self.unsupported(place(), reason))?;
            if let Some(bound) = self.options.bindings.get(&tensor.name) {
                let id = self.emit.builder.add_constant(
                    &tensor.name,
                    bound.tensor_type().clone(),
                    passes::fold::contents_of(bound),
                )?;
                self.scope.slots[index] = TfliteSlot::Value(id);
                continue;
            }
            let extents = self.options.shapes.get(&tensor.name).cloned().unwrap_or_else(|| self.input_extents(tensor));
            let id = self.emit.builder.add_input(&tensor.name, TensorType::new(dtype, &extents))?;
            self.scope.slots[index] = TfliteSlot::Value(id);
        }
        Ok(())
    }

    /// Returns an input's extents. Only a first dimension without a fixed extent becomes the batch size.
    fn input_extents(&self, tensor: &Tensor) -> Vec<i64> {
        let mut extents = known_extents(&tensor.shape);
        if let (Some(-1), Some(first)) = (tensor.signature.first(), extents.first_mut()) {
            *first = self.options.batch;
        }
        extents
    }

    /// Imports all operators of the current graph.
    pub(super) fn import_operators(&mut self) -> Result<()> {
        let graph = self.scope.graph;
        graph.operators.iter().try_for_each(|operator| self.import_operator(operator))
    }

    pub(super) fn count_nodes(&mut self, count: usize) -> Result<()> {
        self.budget.count_nodes(count).map_err(|reason| self.malformed(String::new(), reason))
    }

    fn import_operator(&mut self, operator: &'a Operator<'a>) -> Result<()> {
        self.count_nodes(1 + (operator.inputs.len() + operator.outputs.len()) / TENSORS_PER_NODE)?;
        let mut inputs = Vec::with_capacity(operator.inputs.len());
        for &index in &operator.inputs {
            if index < 0 {
                inputs.push(None);
                continue;
            }
            let (slot, tensor) = self.find_tensor(index)?;
            match self.scope.slots[slot] {
                TfliteSlot::Value(id) => inputs.push(Some(id)),
                TfliteSlot::Skipped => {
                    return self.skip_operator(
                        operator,
                        format!("input `{}` is an output of a skipped node", shorten_text(&tensor.name)),
                    );
                }
                TfliteSlot::Unmade => match self.read_state(tensor) {
                    Ok(id) => inputs.push(Some(id)),
                    Err(refusal) => return self.refuse_operator(operator, refusal),
                },
            }
        }
        let first_new = self.emit.builder.next_id();
        match self.operator_results(operator, inputs) {
            Ok(outputs) => self.bind_outputs(operator, &outputs, first_new),
            Err(Failure::Node(refusal)) => self.refuse_operator(operator, refusal),
            Err(Failure::Inside(error)) => Err(error),
        }
    }

    fn operator_results(
        &mut self,
        operator: &'a Operator<'a>,
        inputs: Vec<Option<ValueId>>,
    ) -> Result<Vec<ValueId>, Failure> {
        if let Some(results) = self.with_bodies(operator, &inputs) {
            return results;
        }
        self.emit.builder.set_origin(Origin {
            source_op: rules::operator_name(operator).into_owned(),
            scope: self.operator_label(operator),
        });
        let Some(rule) = rules::find_rule(operator)? else {
            let reason = self.without_rule.get_or_init(|| without_rule(self.model));
            return Err(Refusal::Unsupported(reason.clone()).into());
        };
        let mut call = Call {
            emit: &mut self.emit,
            operator,
            tensors: &self.scope.graph.tensors,
            inputs,
            reals: &mut self.reals,
            joins: &mut self.joins,
        };
        let values = rule(&mut call)?;
        check_count(operator, values.len())?;
        let stored = values.into_iter().zip(0..operator.outputs.len());
        Ok(stored.map(|(value, index)| call.store_output(value, index)).collect::<Outcome<Vec<_>>>()?)
    }

    /// Assigns an operator's results to its output tensors; values from `first_new` on are renamed accordingly.
    fn bind_outputs(&mut self, operator: &Operator<'_>, outputs: &[ValueId], first_new: ValueId) -> Result<()> {
        for (&index, &id) in operator.outputs.iter().zip(outputs) {
            let (slot, tensor) = self.find_tensor(index)?;
            if !matches!(self.scope.slots[slot], TfliteSlot::Unmade) {
                return Err(self.malformed(format!("tensor `{}`", tensor.name), "several nodes produce it".to_owned()));
            }
            self.compare_with_stated(operator, tensor, id)?;
            if id.0 >= first_new.0 && self.scope.depth == 0 {
                self.emit.builder.rename_value(id, &tensor.name);
            }
            self.scope.slots[slot] = TfliteSlot::Value(id);
        }
        Ok(())
    }

    fn compare_with_stated(&self, operator: &Operator<'_>, tensor: &Tensor, id: ValueId) -> Result<()> {
        let found = self.emit.builder.value_type(id)?;
        // In a loop, the extents of a tensor may change from one iteration to the next.
        let is_open = self.scope.depth > 0 || tensor.shape.is_empty() || tensor.signature.contains(&-1);
        let is_resized = !self.options.shapes.is_empty() || !self.options.bindings.is_empty();
        let stated = TensorType::new(tensor.dtype().unwrap_or(found.dtype), &known_extents(&tensor.shape));
        let agrees =
            stated.dtype == found.dtype && (is_open || is_resized || self.has_open_input() || stated == *found);
        if agrees {
            return Ok(());
        }
        let reason = format!("the file states {stated} for `{}`, but inputs and attributes give {found}", tensor.name);
        Err(self.malformed(self.operator_place(operator), reason))
    }

    fn has_open_input(&self) -> bool {
        let tensors = self.scope.graph.inputs.iter().filter_map(|&index| self.find_tensor(index).ok());
        tensors.into_iter().any(|(_, tensor)| tensor.signature.contains(&-1))
    }

    fn refuse_operator(&mut self, operator: &Operator<'_>, refusal: Refusal) -> Result<()> {
        match refusal {
            Refusal::Malformed(reason) => Err(self.malformed(self.operator_place(operator), reason)),
            Refusal::Unsupported(reason) if self.options.skip_unsupported => self.skip_operator(operator, reason),
            Refusal::Unsupported(reason) => Err(self.unsupported(self.operator_place(operator), reason)),
        }
    }

    /// Leaves an operator out: its inputs become graph outputs, its outputs of known type become graph inputs.
    fn skip_operator(&mut self, operator: &Operator<'_>, reason: String) -> Result<()> {
        let (place, name) = (self.operator_label(operator), rules::operator_name(operator).into_owned());
        self.skipped.push(Skipped { place, operator: name, reason });
        for &index in operator.inputs.iter().filter(|&&index| index >= 0) {
            if let TfliteSlot::Value(id) = self.scope.slots[self.find_tensor(index)?.0] {
                self.loose_ends.push(id);
            }
        }
        for &index in &operator.outputs {
            let (slot, tensor) = self.find_tensor(index)?;
            let is_known = !tensor.shape.is_empty() && tensor.shape.iter().all(|&extent| extent >= 0);
            self.scope.slots[slot] = match tensor.dtype() {
                Ok(dtype) if is_known && matches!(self.scope.slots[slot], TfliteSlot::Unmade) => {
                    let ty = TensorType::new(dtype, &known_extents(&tensor.shape));
                    TfliteSlot::Value(self.emit.builder.add_input(&self.tensor_label(&tensor.name), ty)?)
                }
                _ => TfliteSlot::Skipped,
            };
        }
        Ok(())
    }

    fn finish_import(self) -> Result<(Graph, Vec<Skipped>)> {
        let mut outputs = Vec::new();
        for &index in &self.scope.graph.outputs {
            let (slot, tensor) = self.find_tensor(index)?;
            match self.scope.slots[slot] {
                TfliteSlot::Value(id) => outputs.push(id),
                TfliteSlot::Skipped => {}
                TfliteSlot::Unmade => {
                    return Err(self.malformed(format!("output `{}`", tensor.name), "no node produces it".to_owned()));
                }
            }
        }
        let graph = finish_graph(self.emit.builder, self.file, outputs, &self.loose_ends)?;
        Ok((graph, self.skipped))
    }

    pub(super) fn find_tensor(&self, index: i32) -> Result<(usize, &'a Tensor)> {
        let found = usize::try_from(index).ok().and_then(|index| Some((index, self.scope.graph.tensors.get(index)?)));
        found.ok_or_else(|| self.malformed(String::new(), format!("tensor {index} does not exist")))
    }

    fn tensor_label(&self, name: &str) -> String {
        match &self.scope.place {
            _ if self.scope.depth == 0 => name.to_owned(),
            // Converters give operators of a body names that begin with that of the loop.
            place if name.starts_with(place.as_str()) => nested_label("", name),
            place => nested_label(place, name),
        }
    }

    pub(super) fn operator_label(&self, operator: &Operator<'_>) -> String {
        let output = operator.outputs.first().and_then(|&index| self.find_tensor(index).ok());
        // Converters join the names of everything they fused.
        self.tensor_label(output.map_or("", |(_, tensor)| tensor.name.split(';').next().unwrap_or("")))
    }

    fn operator_place(&self, operator: &Operator<'_>) -> String {
        let name = rules::operator_name(operator);
        match self.operator_label(operator).as_str() {
            "" => format!("node of `{name}`"),
            label => format!("node `{label}` (`{name}`)"),
        }
    }

    fn malformed(&self, place: String, reason: String) -> Error {
        Error::Malformed { file: self.file.to_owned(), place, reason }
    }

    fn unsupported(&self, place: String, reason: String) -> Error {
        Error::Unsupported { file: self.file.to_owned(), place, reason }
    }
}

/// Number of tensors that count as one node of the limit: their look-up takes less time than the import of a node.
pub(super) const TENSORS_PER_NODE: usize = 16;

/// Refuses an operator that has more outputs than results.
pub(super) fn check_count(operator: &Operator<'_>, results: usize) -> Outcome<()> {
    if results < operator.outputs.len() {
        return malformed(format!("the operator has {} outputs", operator.outputs.len()));
    }
    Ok(())
}

fn without_rule(model: &Model<'_>) -> String {
    let mut counts: BTreeMap<Cow<'_, str>, usize> = BTreeMap::new();
    let operators = model.graphs.iter().flat_map(|graph| &graph.operators);
    for operator in operators.filter(|operator| matches!(rules::find_rule(operator), Ok(None))) {
        *counts.entry(rules::operator_name(operator)).or_default() += 1;
    }
    let listed: Vec<String> = counts.iter().take(16).map(|(name, count)| format!("`{name}` ({count})")).collect();
    format!("this version has no rule for {}; leave them out with `--skip-unsupported`", listed.join(", "))
}

fn known_extents(shape: &[i32]) -> Vec<i64> {
    shape.iter().map(|&extent| i64::from(extent)).collect()
}
