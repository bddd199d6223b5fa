//! Imports the nodes of an ONNX file in order, each by the rule of its operator. Functions and branches with a constant
//! condition are inlined, within one limit on nodes. Names are resolved in scopes: one for the main graph, a nested one
//! for each branch, a separate one for each function.

use super::call::{Arguments, Call};
use super::messages;
use super::scope::{Scope, Slot};
use super::sequence::{self, Slots};
use super::stated::{has_no_shape, stated_type};
use super::{order, rules, tensor};
use crate::limits::{MAX_DEPTH, NodeBudget, nested_label};
use crate::{Emit, Failure, Options, Refusal, Skipped, escape_name, finish_graph};
use models::error::{Error, Result};
use models::graph::{Graph, Origin, ValueId};
use models::types::{Dim, TensorType};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

const OPSETS: std::ops::RangeInclusive<i64> = 6..=28;

pub(super) struct Importer<'a> {
    file: &'a str,
    model: &'a messages::Model,
    pub(super) options: &'a Options,
    pub(super) emit: Emit<'a>,
    functions: HashMap<(&'a str, &'a str, &'a str), &'a messages::Function>,
    stated: HashMap<&'a str, &'a messages::ValueInfo>,
    /// Outputs of nodes that no output of the model needs.
    unused: HashSet<&'a str>,
    skipped: Vec<Skipped>,
    pub(super) notes: Vec<String>,
    /// Inputs of skipped nodes, which become outputs of the remaining graph.
    pub(super) loose_ends: Vec<ValueId>,
    /// Counts nodes after inlining, because nested function calls multiply nodes.
    budget: NodeBudget,
}

pub(super) fn import_model(
    model: &messages::Model,
    file: &str,
    folder: Option<&Path>,
    options: &Options,
) -> Result<(Graph, Vec<Skipped>, Vec<String>)> {
    let Some(graph) = &model.graph else {
        return Err(Error::Malformed {
            file: file.to_owned(),
            place: String::new(),
            reason: "the file contains no graph; is it an ONNX model?".to_owned(),
        });
    };
    let name = if graph.name.is_empty() { file } else { &graph.name };
    let mut importer = Importer {
        file,
        options,
        emit: Emit::new(name, folder),
        model,
        functions: model
            .functions
            .iter()
            .map(|function| ((normalise_domain(&function.domain), &*function.name, &*function.overload), function))
            .collect(),
        stated: HashMap::new(),
        unused: order::unused_values(graph),
        skipped: Vec::new(),
        notes: Vec::new(),
        loose_ends: Vec::new(),
        budget: NodeBudget::new(count_file_nodes(model)),
    };
    let mut scope = Scope {
        names: vec![HashMap::new()],
        opsets: importer.check_opsets(&model.opset_import)?,
        arguments: HashMap::new(),
        place: String::new(),
        depth: 0,
    };
    importer.add_constants(graph, &mut scope)?;
    importer.add_inputs(graph, &mut scope)?;
    if !importer.is_reshaped(graph) {
        let infos = graph.value_info.iter().chain(&graph.output);
        importer.stated = infos.map(|info| (info.name.as_str(), info)).collect();
    }
    importer.import_nodes(&graph.node, &mut scope)?;
    importer.finish_import(graph, &scope)
}

fn count_file_nodes(model: &messages::Model) -> usize {
    let of_graph = model.graph.as_ref().map_or(0, |graph| graph.node.len());
    let of_functions: usize = model.functions.iter().map(|function| function.node.len()).sum();
    of_graph.saturating_add(of_functions)
}

/// Maps `ai.onnx`, the other name of the default domain, to the empty name.
pub(super) fn normalise_domain(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}

impl<'a> Importer<'a> {
    fn check_opsets(&self, sets: &'a [messages::OperatorSet]) -> Result<HashMap<&'a str, i64>> {
        for set in sets {
            if normalise_domain(&set.domain).is_empty() && !OPSETS.contains(&set.version) {
                let (first, last) = (OPSETS.start(), OPSETS.end());
                let reason = format!(
                    "operator set {} is not between {first} and {last}; convert it with ONNX's version converter",
                    set.version
                );
                return Err(self.unsupported(String::new(), reason));
            }
        }
        Ok(sets.iter().map(|set| (normalise_domain(&set.domain), set.version)).collect())
    }

    pub(super) fn add_constants(&mut self, graph: &'a messages::Graph, scope: &mut Scope<'a>) -> Result<()> {
        // An initializer of an input is the default of the input.
        let is_bound =
            |name: &String| self.options.values.contains_key(name) && graph.input.iter().any(|info| info.name == *name);
        for message in graph.initializer.iter().filter(|message| !is_bound(&message.name)) {
            let id = match self.emit.shared.get(&tensor::message_key(message)) {
                Some(&id) => id,
                None => match self.add_initializer(message) {
                    Ok(id) => id,
                    // Strings, for instance, of a tokenizer that was cut off.
                    Err(_) if !order::is_read(graph, &message.name) => continue,
                    Err(error) => return Err(error),
                },
            };
            self.bind_slot(&message.name, Slot::Value(id), scope)?;
        }
        match graph.sparse_initializer.first() {
            Some(sparse) => {
                let name = sparse.values.as_ref().map_or("", |values| &values.name);
                Err(self.unsupported(format!("initializer `{name}`"), "sparse tensors".to_owned()))
            }
            None => Ok(()),
        }
    }

    fn add_initializer(&mut self, message: &messages::Tensor) -> Result<ValueId> {
        let place = || format!("initializer `{}`", escape_name(&message.name));
        let (ty, data) =
            tensor::constant_data(message, self.emit.folder).map_err(|reason| self.malformed(place(), reason))?;
        let id = self.emit.builder.add_constant(&message.name, ty, data)?;
        tensor::record_constant(&mut self.emit, message, id);
        Ok(id)
    }

    pub(super) fn import_nodes(&mut self, nodes: &'a [messages::Node], scope: &mut Scope<'a>) -> Result<()> {
        match order::sort_nodes(nodes) {
            Some(order) => order.into_iter().try_for_each(|index| self.import_node(&nodes[index], scope)),
            None => nodes.iter().try_for_each(|node| self.import_node(node, scope)),
        }
    }

    fn import_node(&mut self, node: &'a messages::Node, scope: &mut Scope<'a>) -> Result<()> {
        self.count_nodes(1)?;
        let mut inputs = Vec::with_capacity(node.input.len());
        let mut slots = Slots::new();
        for (index, name) in node.input.iter().enumerate() {
            match scope.find_name(name) {
                _ if name.is_empty() => inputs.push(None),
                Some(Slot::Omitted) => inputs.push(None),
                Some(Slot::Value(id)) => inputs.push(Some(id)),
                Some(slot @ (Slot::Sequence(_) | Slot::Absent)) => {
                    slots.insert(index, slot);
                    inputs.push(None);
                }
                Some(Slot::Skipped) => {
                    return self.skip_node(
                        node,
                        scope,
                        format!("input `{}` is an output of a skipped node", escape_name(name)),
                    );
                }
                Some(Slot::Unmade(reason)) => {
                    return self.refuse_node(
                        node,
                        scope,
                        Refusal::Unsupported(format!("input `{}` is {reason}", escape_name(name))),
                    );
                }
                None => {
                    let reason = format!("input `{}` is not computed by any earlier node", escape_name(name));
                    return Err(self.malformed(node_place(node, scope), reason));
                }
            }
        }
        let first_new = self.emit.builder.next_id();
        self.emit.builder.set_origin(Origin { source_op: node.op_type.clone(), scope: node_label(node, scope) });
        match self.node_results(node, (inputs, slots), scope) {
            Ok(outputs) => self.bind_outputs(node, &outputs, first_new, scope),
            Err(Failure::Node(refusal)) => self.refuse_node(node, scope, refusal),
            Err(Failure::Inside(error)) => Err(error),
        }
    }

    pub(super) fn count_nodes(&mut self, count: usize) -> Result<()> {
        self.budget.count_nodes(count).map_err(|reason| self.malformed(String::new(), reason))
    }

    fn node_results(
        &mut self,
        node: &'a messages::Node,
        (inputs, sequences): (Vec<Option<ValueId>>, Slots),
        scope: &mut Scope<'a>,
    ) -> Result<Vec<Slot>, Failure> {
        let key = (normalise_domain(&node.domain), node.op_type.as_str(), node.overload.as_str());
        if let Some(function) = self.functions.get(&key).copied() {
            return self.inline_function(node, function, (inputs, sequences), scope);
        }
        let opset = match (key.0, scope.opsets.get("")) {
            ("", None) => {
                return Err(
                    Refusal::Malformed("the file does not state the version of the operator set".to_owned()).into()
                );
            }
            ("", Some(&opset)) => opset,
            // Rules of other domains emit standard operators in their newest version.
            _ => *OPSETS.end(),
        };
        let call = Call { node, opset, inputs, arguments: scope.arguments.clone(), mismatch: RefCell::default() };
        let results = self.call_results(&call, &sequences, scope);
        match call.mismatch.take() {
            Some(reason) => Err(Refusal::Malformed(reason).into()),
            None => results,
        }
    }

    fn call_results(
        &mut self,
        call: &Call<'a>,
        sequences: &Slots,
        scope: &mut Scope<'a>,
    ) -> Result<Vec<Slot>, Failure> {
        if let Some(results) = self.with_bodies(call, sequences, scope) {
            return results;
        }
        let (domain, operator) = (normalise_domain(&call.node.domain), call.node.op_type.as_str());
        if domain.is_empty()
            && let Some(results) = sequence::sequence_results(&mut self.emit, call, sequences)
        {
            return Ok(results?);
        }
        if !sequences.is_empty() {
            return Err(
                Refusal::Unsupported("an input is a sequence of tensors or an optional value".to_owned()).into()
            );
        }
        let Some(rule) = rules::find_rule(domain, operator) else {
            return Err(Refusal::Unsupported(self.missing_rule_reason(domain, operator)).into());
        };
        let outputs = rule(&mut self.emit, call)?;
        rules::narrow::propagate_range(&mut self.emit, call, &outputs);
        Ok(outputs.into_iter().map(Slot::Value).collect())
    }

    fn missing_rule_reason(&self, domain: &str, operator: &str) -> String {
        const MAX_LISTED: usize = 20;
        let reason = rules::refusal_reason(domain, operator);
        if self.options.skip_unsupported {
            return reason;
        }
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let main = self.model.graph.iter().flat_map(|graph| &graph.node);
        for node in main.chain(self.model.functions.iter().flat_map(|function| &function.node)) {
            let key = (self::normalise_domain(&node.domain), node.op_type.as_str(), node.overload.as_str());
            let is_known = rules::find_rule(key.0, key.1).is_some()
                || has_bodies(key.0, key.1)
                || (key.0.is_empty() && sequence::is_known(key.1))
                || self.functions.contains_key(&key);
            if !is_known {
                *counts.entry(key.1).or_default() += 1;
            }
        }
        // The counts do not include nodes of branches, so they may be empty.
        if counts.is_empty() {
            return format!("{reason}; `--skip-unsupported` leaves the node out");
        }
        let mut names: Vec<String> =
            counts.iter().take(MAX_LISTED).map(|(name, count)| format!("{count} `{}`", escape_name(name))).collect();
        if counts.len() > MAX_LISTED {
            names.push(format!("{} other operators", counts.len() - MAX_LISTED));
        }
        format!("{reason}; operators without a rule: {}; `--skip-unsupported` leaves them out", names.join(", "))
    }

    fn inline_function(
        &mut self,
        node: &'a messages::Node,
        function: &'a messages::Function,
        (inputs, slots): (Vec<Option<ValueId>>, Slots),
        scope: &Scope<'a>,
    ) -> Result<Vec<Slot>, Failure> {
        if scope.depth >= MAX_DEPTH {
            let reason = format!("function calls are nested deeper than {MAX_DEPTH} levels");
            return Err(Refusal::Malformed(reason).into());
        }
        let mut names: HashMap<&str, Slot> = function.input.iter().map(|name| (name.as_str(), Slot::Omitted)).collect();
        for (name, input) in function.input.iter().zip(inputs) {
            if let Some(id) = input {
                names.insert(name.as_str(), Slot::Value(id));
            }
        }
        for (index, slot) in slots {
            if let Some(name) = function.input.get(index) {
                names.insert(name.as_str(), slot);
            }
        }
        let defaults = function.attribute_proto.iter().map(|attribute| (attribute.name.as_str(), attribute));
        let mut arguments: Arguments<'a> = defaults.collect();
        for attribute in &node.attribute {
            let attribute = match attribute.ref_attr_name.as_str() {
                "" => Some(attribute),
                outer => scope.arguments.get(outer).copied(),
            };
            if let Some(found) = attribute {
                arguments.insert(found.name.as_str(), found);
            }
        }
        // A reference to an attribute of another name is visible inside under the name that the call uses.
        for attribute in node.attribute.iter().filter(|attribute| !attribute.ref_attr_name.is_empty()) {
            if let Some(found) = scope.arguments.get(attribute.ref_attr_name.as_str()) {
                arguments.insert(attribute.name.as_str(), found);
            }
        }
        let mut inner = Scope {
            names: vec![names],
            opsets: self.check_opsets(&function.opset_import).map_err(Failure::Inside)?,
            arguments,
            place: format!("{}/", node_label(node, scope)),
            depth: scope.depth + 1,
        };
        self.import_nodes(&function.node, &mut inner).map_err(Failure::Inside)?;
        let missing = || Refusal::Malformed("the function does not produce all of its outputs".to_owned());
        let outputs = function.output.iter().map(|name| inner.find_name(name).ok_or_else(|| missing().into()));
        outputs.collect()
    }

    /// Binds the outputs of a node to their names. Only values that the node has added are renamed.
    fn bind_outputs(
        &mut self,
        node: &'a messages::Node,
        outputs: &[Slot],
        first_new: ValueId,
        scope: &mut Scope<'a>,
    ) -> Result<()> {
        for (index, name) in node.output.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let slot = outputs.get(index).cloned().unwrap_or(Slot::Unmade("an output that is not supported"));
            if let Slot::Value(id) = slot {
                self.compare_with_stated(node, name, id, scope)?;
                if id >= first_new && scope.depth == 0 {
                    self.emit.builder.rename_value(id, name);
                }
            }
            self.bind_slot(name, slot, scope)?;
        }
        Ok(())
    }

    fn compare_with_stated(&mut self, node: &messages::Node, name: &str, id: ValueId, scope: &Scope<'a>) -> Result<()> {
        let Some(info) = self.stated.get(name).filter(|_| scope.depth == 0) else { return Ok(()) };
        let Ok(stated) = stated_type(info) else { return Ok(()) };
        let found = self.emit.builder.value_type(id)?;
        let agrees = stated.dtype == found.dtype
            && (has_no_shape(info)
                || stated.rank() == found.rank()
                    && stated
                        .shape
                        .iter()
                        .zip(&found.shape)
                        .all(|(stated, found)| stated == found || matches!(stated, Dim::Symbol(_))));
        if agrees {
            return Ok(());
        }
        if counts_padding_windows(node, &stated, found) {
            self.notes.push(format!(
                "{}: the file states {stated} for `{}`, as ONNX's shape inference does; the last window would start \
                 in the padding, so the result is {found}",
                node_place(node, scope),
                escape_name(name)
            ));
            // Types of later values follow from the stated one.
            self.stated.clear();
            return Ok(());
        }
        let reason =
            format!("the file states {stated} for `{}`, but inputs and attributes give {found}", escape_name(name));
        Err(self.malformed(node_place(node, scope), reason))
    }

    pub(super) fn bind_slot(&self, name: &'a str, slot: Slot, scope: &mut Scope<'a>) -> Result<()> {
        let names = scope.names.last_mut().expect("a scope has at least one table of names");
        match names.insert(name, slot) {
            None => Ok(()),
            Some(_) => {
                Err(self.malformed(format!("value `{}`", escape_name(name)), "several nodes produce it".to_owned()))
            }
        }
    }

    fn refuse_node(&mut self, node: &'a messages::Node, scope: &mut Scope<'a>, refusal: Refusal) -> Result<()> {
        match refusal {
            Refusal::Malformed(reason) => Err(self.malformed(node_place(node, scope), reason)),
            Refusal::Unsupported(reason) if self.options.skip_unsupported => self.skip_node(node, scope, reason),
            Refusal::Unsupported(_) if scope.depth == 0 && self.is_unused(node) => {
                self.notes
                    .push(format!("{}: left out, because no output of the model needs it", node_place(node, scope)));
                let mut names = node.output.iter().filter(|name| !name.is_empty());
                names.try_for_each(|name| {
                    self.bind_slot(name, Slot::Unmade("an output of a node that is left out"), scope)
                })
            }
            Refusal::Unsupported(reason) => Err(self.unsupported(node_place(node, scope), reason)),
        }
    }

    fn is_unused(&self, node: &messages::Node) -> bool {
        node.output.iter().all(|name| name.is_empty() || self.unused.contains(name.as_str()))
    }

    /// Leaves a node out: its inputs become graph outputs, its outputs of known type become graph inputs.
    fn skip_node(&mut self, node: &'a messages::Node, scope: &mut Scope<'a>, reason: String) -> Result<()> {
        self.skipped.push(Skipped { place: node_label(node, scope), operator: node.op_type.clone(), reason });
        for name in &node.input {
            if let Some(Slot::Value(id)) = scope.find_name(name) {
                self.loose_ends.push(id);
            }
        }
        for name in node.output.iter().filter(|name| !name.is_empty()) {
            let stated = self.stated.get(name.as_str()).filter(|info| scope.depth == 0 && !has_no_shape(info));
            let slot = match stated.and_then(|info| stated_type(info).ok()).filter(|ty| ty.extents().is_some()) {
                Some(ty) => Slot::Value(self.emit.builder.add_input(name, ty)?),
                None => Slot::Skipped,
            };
            self.bind_slot(name, slot, scope)?;
        }
        Ok(())
    }

    fn finish_import(
        mut self,
        graph: &'a messages::Graph,
        scope: &Scope<'a>,
    ) -> Result<(Graph, Vec<Skipped>, Vec<String>)> {
        let mut outputs = Vec::new();
        let names: HashSet<&str> = graph.output.iter().map(|info| info.name.as_str()).collect();
        for info in &graph.output {
            let place = || format!("output `{}`", escape_name(&info.name));
            match scope.find_name(&info.name) {
                Some(Slot::Value(id)) => {
                    // A value has one name. If several outputs are the same value, the first one names it.
                    let has_output_name = self.emit.builder.value_name(id).is_some_and(|name| names.contains(name));
                    if !self.emit.builder.is_input(id) && !has_output_name {
                        self.emit.builder.rename_value(id, &info.name);
                    }
                    outputs.push(id);
                }
                Some(Slot::Skipped | Slot::Absent) => {}
                Some(Slot::Sequence(parts)) => outputs.extend(parts.iter().copied()),
                Some(Slot::Unmade(reason)) => return Err(self.unsupported(place(), reason.to_owned())),
                Some(Slot::Omitted) | None => {
                    return Err(self.malformed(place(), "no node produces it".to_owned()));
                }
            }
        }
        let graph = finish_graph(self.emit.builder, self.file, outputs, &self.loose_ends)?;
        Ok((graph, self.skipped, self.notes))
    }

    pub(super) fn malformed(&self, place: String, reason: String) -> Error {
        Error::Malformed { file: self.file.to_owned(), place, reason }
    }

    pub(super) fn unsupported(&self, place: String, reason: String) -> Error {
        Error::Unsupported { file: self.file.to_owned(), place, reason }
    }
}

/// Whether a stated type counts one window too many in some dimensions. ONNX's shape inference rounds the number of
/// windows up with `ceil_mode`, and runtimes leave out a window that starts in the padding.
fn counts_padding_windows(node: &messages::Node, stated: &TensorType, found: &TensorType) -> bool {
    let is_pool = matches!(&*node.op_type, "MaxPool" | "AveragePool" | "LpPool");
    let is_ceil = node.attribute.iter().any(|attribute| attribute.name == "ceil_mode" && attribute.i == Some(1));
    let is_same_or_more = |(index, (stated, found)): (usize, (&Dim, &Dim))| match (stated, found) {
        (Dim::Known(stated), Dim::Known(found)) => stated == found || (index > 1 && *stated == found + 1),
        _ => matches!(stated, Dim::Symbol(_)),
    };
    let mut dims = stated.shape.iter().zip(&found.shape).enumerate();
    is_pool && is_ceil && stated.dtype == found.dtype && stated.rank() == found.rank() && dims.all(is_same_or_more)
}

/// Returns a node's name, or that of its first output, after the path of function calls; keeps the end of a long one.
pub(super) fn node_label(node: &messages::Node, scope: &Scope<'_>) -> String {
    let name = if node.name.is_empty() { node.output.first() } else { Some(&node.name) };
    let name = name.map_or("", String::as_str);
    if scope.depth == 0 {
        return name.to_owned();
    }
    nested_label(&scope.place, name)
}

fn node_place(node: &messages::Node, scope: &Scope<'_>) -> String {
    format!("node `{}` (`{}`)", escape_name(&node_label(node, scope)), escape_name(&node.op_type))
}

pub(super) fn has_bodies(domain: &str, operator: &str) -> bool {
    match domain {
        "" => matches!(operator, "If" | "Loop" | "Scan" | "SequenceMap"),
        rules::flex::DOMAIN => operator == "FlexAttention",
        _ => false,
    }
}
