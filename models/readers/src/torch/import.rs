//! Imports the nodes of a program in order, each by the rule of its operator.

use super::call::{Argument, Call};
use super::inline::is_loop;
use super::memory::{Cells, STALE, Slot};
use super::rules::{self, RuleOutput};
use super::schema::{self, ExportedProgram, Input, Meta, Node, Union, names_of};
use super::weights::{Weights, dense_order, type_of};
use crate::{Emit, Options, Outcome, Refusal, Skipped, finish_graph, unsupported};

use models::check::GraphLimits;
use models::error::{Error, Result};
use models::graph::{Graph, Origin, ValueId};
use models::names::shorten_text;
use models::types::{Dim, TensorType};
use passes::fold::contents_of;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};

pub(super) const MAX_VALUES: u32 = 1 << 21;

pub(super) struct Importer<'a> {
    file: &'a str,
    program: &'a ExportedProgram,
    /// Graph of the nodes that are being imported: the program's, or that of a loop's condition or body.
    pub(super) graph: &'a schema::Graph,
    /// Prefix of value names inside loops, which identifies the loop and the iteration; empty outside of loops.
    pub(super) prefix: String,
    pub(super) iterations: usize,
    /// Number of nodes in all unrolled iterations.
    pub(super) nodes: usize,
    pub(super) options: &'a Options,
    pub(super) emit: Emit<'a>,
    pub(super) cells: Cells,
    pub(super) cell_of: HashMap<&'a str, usize>,
    /// Integers that the program computes, for example from shapes, by name.
    pub(super) numbers: HashMap<&'a str, i64>,
    /// Names that nodes read or that are outputs, in all graphs of the program.
    read: HashSet<&'a str>,
    skipped: Vec<Skipped>,
    notes: Vec<String>,
    pub(super) loose_ends: Vec<ValueId>,
}

pub(super) fn import_program(
    program: &ExportedProgram,
    mut weights: Weights<'_>,
    file: &str,
    options: &Options,
) -> Result<(Graph, Vec<Skipped>, Vec<String>)> {
    let graph = &program.graph_module.graph;
    let mut importer = Importer {
        file,
        program,
        graph,
        prefix: String::new(),
        iterations: 0,
        nodes: 0,
        options,
        emit: Emit::new(file, None),
        cells: Cells::default(),
        cell_of: HashMap::new(),
        numbers: HashMap::new(),
        read: HashSet::new(),
        skipped: Vec::new(),
        notes: Vec::new(),
        loose_ends: Vec::new(),
    };
    if graph.nodes.len() > GraphLimits::default().nodes {
        let reason = format!("the model has too many nodes: {}", graph.nodes.len());
        return Err(importer.malformed(String::new(), reason));
    }
    collect_read_names(graph, &mut importer.read);
    importer.add_inputs(&mut weights)?;
    let resized = importer.resized_input();
    let imported = graph.nodes.iter().try_for_each(|node| importer.import_node(node));
    match (imported.and_then(|()| importer.finish_import()), resized) {
        (Ok((graph, skipped, mut notes)), Some(resized)) => {
            notes.push(format!(
                "input `{}`: {}; numbers in the program that depend on it are unchanged",
                resized.name, resized.change
            ));
            Ok((graph, skipped, notes))
        }
        (Err(Error::Malformed { file, place, reason }), Some(resized)) => {
            let reason = format!(
                "{}, and {place} does not accept it: {reason}; export the model again with `dynamic_shapes` for this \
                 dimension",
                resized.change
            );
            Err(Error::Malformed { file, place: format!("input `{}`", resized.name), reason })
        }
        (imported, _) => imported,
    }
}

/// An input with a given extent that differs from the static size in the file.
struct Resized {
    name: String,
    change: String,
}

impl<'a> Importer<'a> {
    fn value_meta(&self, name: &str) -> Option<&'a Meta> {
        self.graph.tensor_values.get(name)
    }

    fn add_inputs(&mut self, weights: &mut Weights<'_>) -> Result<()> {
        let specs = &self.program.graph_module.signature.input_specs;
        let mut shared: HashMap<String, usize> = HashMap::new();
        let mut given = Vec::new();
        for spec in specs {
            let (kind, spec) = spec.variant_and_value();
            let argument = spec.get("arg").unwrap_or(&Value::Null);
            match kind {
                "parameter" | "buffer" | "tensor_constant" => {
                    let name = argument.get("name").and_then(Value::as_str).unwrap_or("");
                    let full = spec.get(format!("{kind}_name")).and_then(Value::as_str).unwrap_or(name);
                    let place = || format!("tensor `{full}`");
                    let (ty, data, same) = weights
                        .find_tensor(full, self.value_meta(name))
                        .map_err(|reason| self.malformed(place(), reason))?;
                    let cell = match shared.get(&same) {
                        Some(cell) => *cell,
                        None => {
                            let id = self.emit.builder.add_constant(full, ty, data)?;
                            self.cells.add_cell(Slot::Value(id))
                        }
                    };
                    shared.insert(same, cell);
                    self.bind_name(name, cell)?;
                }
                "user_input" => given.push(argument),
                "constant_input" => {
                    // Python constants of the exported call; the nodes contain them as literals.
                    let number = spec.get("value").and_then(|value| value.get("as_int")?.as_i64());
                    if let (Some(name), Some(number)) = (spec.get("name").and_then(Value::as_str), number) {
                        self.numbers.insert(name, number);
                    }
                }
                "token" => {}
                other => {
                    let reason = format!("inputs of type `{}`", shorten_text(other));
                    return Err(self.unsupported(String::new(), reason));
                }
            }
        }
        self.user_inputs(&given)
    }

    fn user_inputs(&mut self, given: &[&'a Value]) -> Result<()> {
        let name_of = |value: &'a Value| value.get("as_tensor")?.get("name")?.as_str();
        let names: Vec<&str> = given.iter().filter_map(|value| name_of(value)).collect();
        for name in self.options.shapes.keys().chain(self.options.bindings.keys()) {
            if !names.contains(&name.as_str()) {
                let reason = format!("the model has no such input; the inputs are {}", names.join(", "));
                return Err(self.malformed(format!("input `{name}`"), reason));
            }
        }
        let sizes = self.given_sizes(&names)?;
        for name in names {
            let place = || format!("input `{name}`");
            let id = if let Some(bound) = self.options.bindings.get(name) {
                self.emit.builder.add_constant(name, bound.tensor_type().clone(), contents_of(bound))?
            } else {
                let meta = self.value_meta(name).ok_or_else(|| {
                    self.malformed(place(), "the file does not state the type of the input".to_owned())
                })?;
                let mut ty = type_of(meta).map_err(|reason| self.unsupported(place(), reason))?;
                match self.options.shapes.get(name) {
                    Some(extents) => {
                        if let Some(reason) = self.program.range_problem(meta, extents) {
                            return Err(self.malformed(place(), reason));
                        }
                        ty = TensorType::new(ty.dtype, extents);
                    }
                    None => {
                        for (dim, size) in ty.shape.iter_mut().zip(&meta.sizes) {
                            if let Some((extent, _)) = schema::symbol_name(size).and_then(|symbol| sizes.get(symbol)) {
                                *dim = Dim::Known(*extent);
                            }
                        }
                    }
                }
                self.emit.builder.add_input(name, ty)?
            };
            let cell = self.cells.add_cell(Slot::Value(id));
            self.bind_name(name, cell)?;
        }
        Ok(())
    }

    /// Returns the first input for which the caller gives another extent than the static size in the file.
    fn resized_input(&self) -> Option<Resized> {
        self.options.shapes.iter().find_map(|(name, extents)| {
            let sizes = &self.value_meta(name)?.sizes;
            let mut pairs = sizes.iter().zip(extents).enumerate();
            pairs.find_map(|(dimension, (size, extent))| {
                let fixed = size.value_of("as_int")?.as_i64().filter(|fixed| fixed != extent)?;
                let change = format!("dimension {dimension} is {extent}, but the export has a static size of {fixed}");
                Some(Resized { name: name.clone(), change })
            })
        })
    }

    /// Returns the size of each symbol that the given shapes set, and the input that sets it. A symbol has the same size
    /// in all inputs.
    fn given_sizes(&self, names: &[&'a str]) -> Result<HashMap<&'a str, (i64, &'a str)>> {
        let mut sizes: HashMap<&str, (i64, &str)> = HashMap::new();
        for &name in names {
            let (Some(meta), Some(extents)) = (self.value_meta(name), self.options.shapes.get(name)) else { continue };
            for (dimension, (size, &extent)) in meta.sizes.iter().zip(extents).enumerate() {
                let Some(symbol) = schema::symbol_name(size) else { continue };
                let (known, input) = *sizes.entry(symbol).or_insert((extent, name));
                if known != extent {
                    let symbol = shorten_text(symbol);
                    let reason = format!(
                        "dimension {dimension} is {extent}, but the size `{symbol}` is {known} in input `{input}`"
                    );
                    return Err(self.malformed(format!("input `{name}`"), reason));
                }
            }
        }
        Ok(sizes)
    }

    pub(super) fn bind_name(&mut self, name: &'a str, cell: usize) -> Result<()> {
        match self.cell_of.insert(name, cell) {
            None => Ok(()),
            Some(_) => {
                Err(self.malformed(format!("value `{}`", shorten_text(name)), "several nodes produce it".to_owned()))
            }
        }
    }

    pub(super) fn import_node(&mut self, node: &'a Node) -> Result<()> {
        let target = node.target.strip_prefix("torch.ops.").unwrap_or(&node.target);
        if self.emit.builder.next_id().0 > MAX_VALUES {
            return Err(self.malformed(node_place(node), format!("the model has more than {MAX_VALUES} tensors")));
        }
        if rules::is_dropped(target) {
            return Ok(());
        }
        if is_loop(target) {
            return self.import_loop(node);
        }
        let scope = scope_of(node);
        self.emit.builder.set_origin(Origin { source_op: target.to_owned(), scope });
        let first_new = self.emit.builder.next_id();
        match self.node_results(node, target) {
            Ok(Results::Tensors { made, is_written }) => self.bind_outputs(node, made, is_written, first_new),
            Ok(Results::Number(number)) => {
                if let Some(name) = node.outputs.first().and_then(number_name) {
                    self.numbers.insert(name, number);
                }
                Ok(())
            }
            // An unknown number is an error only for the nodes that read it.
            Err(Refusal::Unsupported(_)) if rules::is_number(target) => Ok(()),
            Err(refusal) => self.refuse_node(node, refusal),
        }
    }

    fn node_results(&mut self, node: &'a Node, target: &'a str) -> Outcome<Results> {
        // Arguments of a refused operator are not read, because they may be unreadable, too.
        if let Some((operator, _)) = rules::split_target(target)
            && let Some(reason) = rules::refusal_reason(operator)
        {
            return unsupported(reason);
        }
        let mut arguments = HashMap::new();
        for input in &node.inputs {
            arguments.insert(input.name.as_str(), self.parse_argument(&input.arg)?);
        }
        if let Some(number) = rules::shape_number(target, &arguments, &self.emit)? {
            return Ok(Results::Number(number));
        }
        let Some((operator, is_written)) = rules::split_target(target) else {
            return unsupported(self.without_rule());
        };
        let names: Vec<&str> = node.outputs.iter().flat_map(names_of).collect();
        let is_complex = |name: &&str| self.value_meta(name).is_some_and(Meta::is_complex);
        let reads_complex = |input: &&'a Input| names_of(&input.arg).iter().any(is_complex);
        let complex: Vec<&str> = node.inputs.iter().filter(reads_complex).map(|input| input.name.as_str()).collect();
        let rule = match complex.is_empty() && !names.iter().any(is_complex) {
            true => rules::find_rule(operator),
            false => match rules::complex::find_rule(operator) {
                None if rules::find_rule(operator).is_some() => return unsupported("complex operands"),
                rule => rule,
            },
        };
        let Some(rule) = rule else {
            return unsupported(self.without_rule());
        };
        let stated = names.iter().map(|name| self.value_meta(name).and_then(|meta| type_of(meta).ok())).collect();
        let is_open = operator == "higher_order.cond" && self.is_open_condition(&arguments)?;
        let wanted = names.iter().rposition(|name| self.read.contains(name)).map_or(1, |last| last + 1);
        let operand = node.inputs.first().and_then(|input| names_of(&input.arg).first().copied());
        let meta = operand.filter(|_| operator.starts_with("as_strided")).and_then(|name| self.value_meta(name));
        let memory_order = meta.and_then(dense_order);
        let mut call = Call { emit: &mut self.emit, operator, arguments, complex, stated, wanted, memory_order };
        let made = rules::apply_rule(rule, &mut call)?;
        if is_open {
            let place = node_label(node);
            self.notes.push(format!(
                "node `{place}` (`{operator}`): the condition depends on input data, so the graph computes both branches"
            ));
        }
        Ok(Results::Tensors { made, is_written })
    }

    fn is_open_condition(&self, arguments: &HashMap<&str, Argument>) -> Outcome<bool> {
        match arguments.get("predicate") {
            Some(Argument::Tensor(predicate)) => Ok(self.emit.known_numbers(*predicate)?.is_none()),
            _ => Ok(false),
        }
    }

    fn without_rule(&self) -> String {
        let mut counts = BTreeMap::new();
        count_without_rule(&self.program.graph_module.graph, &mut counts);
        let listed: Vec<String> =
            counts.iter().take(16).map(|(target, count)| format!("`{target}` ({count})")).collect();
        let more = match counts.len().saturating_sub(16) {
            0 => String::new(),
            more => format!(" and {more} others"),
        };
        format!(
            "this version has no rule for {}{more}; leave them out with `--skip-unsupported`, or export the model after \
             `run_decompositions()`",
            listed.join(", ")
        )
    }

    fn bind_outputs(
        &mut self,
        node: &'a Node,
        made: Vec<RuleOutput>,
        is_written: bool,
        first_new: ValueId,
    ) -> Result<()> {
        let names: Vec<&'a str> = node.outputs.iter().flat_map(names_of).collect();
        let input = node.inputs.first().and_then(|input| names_of(&input.arg).first().copied());
        let source = input.and_then(|name| self.cell_of.get(name).copied());
        if let (true, Some(cell), Some(RuleOutput { id, .. })) = (is_written, source, made.first()) {
            if let Some(name) = names.first() {
                self.compare_with_stated(node, name, *id)?;
            }
            let written = self.cells.write_cell(&mut self.emit, cell, *id);
            written.or_else(|refusal| self.refuse_node(node, refusal))?;
            for name in names {
                self.bind_name(name, cell)?;
            }
            return Ok(());
        }
        let mut made = made.into_iter();
        for name in names {
            let Some(RuleOutput { id, window }) = made.next() else {
                let cell = self.cells.add_cell(Slot::Unmade);
                self.bind_name(name, cell)?;
                continue;
            };
            self.compare_with_stated(node, name, id)?;
            if id.0 >= first_new.0 {
                self.emit.builder.rename_value(id, &format!("{}{name}", self.prefix));
            }
            let cell = self.cells.add_result(id, window, source);
            self.bind_name(name, cell)?;
        }
        Ok(())
    }

    fn compare_with_stated(&self, node: &Node, name: &str, id: ValueId) -> Result<()> {
        let found = self.emit.builder.value_type(id)?;
        let most = GraphLimits::default().tensor_bytes;
        if found.size_bytes().is_none_or(|bytes| bytes > most) {
            return Err(
                self.malformed(node_place(node), format!("the result {found} exceeds the limit of {most} bytes"))
            );
        }
        let Some(meta) = self.value_meta(name) else { return Ok(()) };
        let Ok(stated) = type_of(meta) else { return Ok(()) };
        let is_resized = !self.options.shapes.is_empty() || !meta.is_static();
        if stated.dtype == found.dtype && (is_resized || stated == *found) {
            return Ok(());
        }
        let reason = format!("the file states {stated} for `{name}`, but inputs and attributes give {found}");
        Err(self.malformed(node_place(node), reason))
    }

    pub(super) fn refuse_node(&mut self, node: &'a Node, refusal: Refusal) -> Result<()> {
        match refusal {
            Refusal::Malformed(reason) => Err(self.malformed(node_place(node), reason)),
            Refusal::Unsupported(reason) if self.options.skip_unsupported => self.skip_node(node, reason),
            Refusal::Unsupported(reason) => Err(self.unsupported(node_place(node), reason)),
        }
    }

    /// Leaves a node out: its inputs become graph outputs, its outputs of known type become graph inputs.
    fn skip_node(&mut self, node: &'a Node, reason: String) -> Result<()> {
        let operator = node.target.strip_prefix("torch.ops.").unwrap_or(&node.target).to_owned();
        self.skipped.push(Skipped { place: node_label(node), operator, reason });
        for name in node.inputs.iter().flat_map(|input| names_of(&input.arg)) {
            if let Some(Slot::Value(id)) = self.cell_of.get(name).map(|&cell| self.cells.cell_slot(cell)) {
                self.loose_ends.push(id);
            }
        }
        for name in node.outputs.iter().flat_map(names_of).collect::<Vec<_>>() {
            if self.cell_of.contains_key(name) {
                continue;
            }
            let slot = match self.value_meta(name).map(type_of) {
                Some(Ok(ty)) => Slot::Value(self.emit.builder.add_input(name, ty)?),
                _ => Slot::Skipped,
            };
            let cell = self.cells.add_cell(slot);
            self.bind_name(name, cell)?;
        }
        Ok(())
    }

    fn finish_import(self) -> Result<(Graph, Vec<Skipped>, Vec<String>)> {
        let mut outputs = Vec::new();
        for name in self.program.graph_module.graph.outputs.iter().flat_map(names_of) {
            let place = || format!("output `{}`", shorten_text(name));
            match self.cell_of.get(name).map(|&cell| self.cells.cell_slot(cell)) {
                Some(Slot::Value(id)) => outputs.push(id),
                Some(Slot::Skipped) => {}
                Some(Slot::Stale) => return Err(self.unsupported(place(), STALE.to_owned())),
                Some(Slot::Unmade) => {
                    return Err(self.unsupported(place(), "the output is only needed for training".to_owned()));
                }
                None => return Err(self.malformed(place(), "no node produces it".to_owned())),
            }
        }
        let graph = finish_graph(self.emit.builder, self.file, outputs, &self.loose_ends)?;
        Ok((graph, self.skipped, self.notes))
    }

    fn malformed(&self, place: String, reason: String) -> Error {
        Error::Malformed { file: self.file.to_owned(), place, reason }
    }

    fn unsupported(&self, place: String, reason: String) -> Error {
        Error::Unsupported { file: self.file.to_owned(), place, reason }
    }
}

enum Results {
    Tensors { made: Vec<RuleOutput>, is_written: bool },
    Number(i64),
}

fn count_without_rule(graph: &schema::Graph, counts: &mut BTreeMap<String, usize>) {
    for node in &graph.nodes {
        let target = node.target.strip_prefix("torch.ops.").unwrap_or(&node.target);
        if !rules::is_known(target) && !is_loop(target) {
            *counts.entry(shorten_text(target)).or_default() += 1;
        }
        node.parts.iter().for_each(|part| count_without_rule(part, counts));
    }
}

fn collect_read_names<'a>(graph: &'a schema::Graph, read: &mut HashSet<&'a str>) {
    let inputs = graph.nodes.iter().flat_map(|node| &node.inputs).map(|input| &input.arg);
    read.extend(inputs.chain(&graph.outputs).flat_map(names_of));
    graph.nodes.iter().flat_map(|node| &node.parts).for_each(|part| collect_read_names(part, read));
}

fn number_name(union: &Union) -> Option<&str> {
    let kinds = ["as_sym_int", "as_sym_bool", "as_sym_float"];
    kinds.iter().find_map(|kind| union.value_of(kind))?.get("as_name")?.as_str()
}

fn scope_of(node: &Node) -> String {
    let stack = node.metadata.nn_module_stack.text();
    let last = stack.rsplit(';').next().unwrap_or("");
    // `key,path,type`; the path of the model itself is empty.
    let mut parts = last.split(',');
    let _ = parts.next();
    let path = parts.next().unwrap_or("");
    path.strip_prefix("L['self'].").unwrap_or(path).to_owned()
}

/// Returns the label of a node: the name of its first output.
pub(super) fn node_label(node: &Node) -> String {
    node.outputs.iter().flat_map(names_of).next().unwrap_or("").to_owned()
}

fn node_place(node: &Node) -> String {
    let target = node.target.strip_prefix("torch.ops.").unwrap_or(&node.target);
    format!("node `{}` (`{}`)", shorten_text(&node_label(node)), shorten_text(target))
}
