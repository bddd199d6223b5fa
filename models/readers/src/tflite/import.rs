//! Imports the operators of a TFLite file in order, each by the rule of its code.

use super::call::Call;
use super::rules;
use super::schema::{Model, Operator, Tensor};
use super::stored;
use crate::{Emit, Options, Outcome, Refusal, Skipped, finish_graph, malformed, unsupported};
use bytes::Bytes;

use models::check::GraphLimits;
use models::contents::Contents;
use models::error::{Error, Result};
use models::graph::{Const, Graph, Origin, ValueId};
use models::types::TensorType;
use std::borrow::Cow;
use std::collections::BTreeMap;

#[derive(Clone, Copy)]
enum TfliteSlot {
    Unmade,
    Value(ValueId),
    Skipped,
}

struct TfliteImporter<'a> {
    file: &'a str,
    model: &'a Model<'a>,
    options: &'a Options,
    emit: Emit<'a>,
    slots: Vec<TfliteSlot>,
    skipped: Vec<Skipped>,
    /// Inputs of skipped operators, which become outputs of the remaining graph.
    loose_ends: Vec<ValueId>,
}

pub(super) fn import_model(model: &Model<'_>, file: &str, options: &Options) -> Result<(Graph, Vec<Skipped>)> {
    let name = if model.name.is_empty() || model.name == "main" { file } else { &model.name };
    let mut importer = TfliteImporter {
        file,
        model,
        options,
        emit: Emit::new(name, None),
        slots: vec![TfliteSlot::Unmade; model.tensors.len()],
        skipped: Vec::new(),
        loose_ends: Vec::new(),
    };
    if model.operators.len() > GraphLimits::default().nodes {
        return Err(
            importer.malformed(String::new(), format!("the model has too many operators: {}", model.operators.len()))
        );
    }
    importer.add_constants()?;
    importer.add_inputs()?;
    for operator in &model.operators {
        importer.import_operator(operator)?;
    }
    importer.finish_import()
}

impl<'a> TfliteImporter<'a> {
    fn add_constants(&mut self) -> Result<()> {
        // Several tensors may share a buffer, so the sum is bounded, too.
        let mut unpacked_bytes = 0usize;
        for (index, tensor) in self.model.tensors.iter().enumerate() {
            let Some(range) = &tensor.data else { continue };
            let place = || format!("tensor `{}`", tensor.name);
            // A constant of an unsupported type is an error only if it is read.
            let packed = tensor.packed_format();
            let Some(dtype) = packed.map(|(_, dtype)| dtype).or(tensor.dtype().ok()) else { continue };
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
                unpacked_bytes = unpacked_bytes.saturating_add(bytes.len());
                if unpacked_bytes > self.model.file_length().saturating_add(64).saturating_mul(stored::MAX_GROWTH) {
                    return Err(
                        self.malformed(place(), "the unpacked constants are too large for the file size".to_owned())
                    );
                }
            }
            if ty.size_bytes() != Some(bytes.len() as u64) {
                let reason = format!("data of {} bytes does not fit {ty}", bytes.len());
                return Err(self.malformed(place(), reason));
            }
            let data = Const::Bytes(Contents::new(bytes));
            self.slots[index] = TfliteSlot::Value(self.emit.builder.add_constant(&tensor.name, ty, data)?);
        }
        Ok(())
    }

    fn add_inputs(&mut self) -> Result<()> {
        let given = self.model.inputs.iter().map(|&index| self.find_tensor(index)).collect::<Result<Vec<_>>>()?;
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
                self.slots[index] = TfliteSlot::Value(id);
                continue;
            }
            let extents = self.options.shapes.get(&tensor.name).cloned().unwrap_or_else(|| self.input_extents(tensor));
            let id = self.emit.builder.add_input(&tensor.name, TensorType::new(dtype, &extents))?;
            self.slots[index] = TfliteSlot::Value(id);
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

    fn import_operator(&mut self, operator: &'a Operator<'a>) -> Result<()> {
        let mut inputs = Vec::with_capacity(operator.inputs.len());
        for &index in &operator.inputs {
            if index < 0 {
                inputs.push(None);
                continue;
            }
            let (slot, tensor) = self.find_tensor(index)?;
            match self.slots[slot] {
                TfliteSlot::Value(id) => inputs.push(Some(id)),
                TfliteSlot::Skipped => {
                    return self
                        .skip_operator(operator, format!("input `{}` is an output of a skipped node", tensor.name));
                }
                TfliteSlot::Unmade => {
                    let refusal = match tensor.dtype() {
                        Err(reason) => Refusal::Unsupported(format!("input `{}`: {reason}", tensor.name)),
                        Ok(_) if tensor.is_variable => Refusal::Unsupported(format!(
                            "input `{}` is a state that is kept between runs",
                            tensor.name
                        )),
                        Ok(_) => {
                            Refusal::Malformed(format!("input `{}` is not computed by any earlier node", tensor.name))
                        }
                    };
                    return self.refuse_operator(operator, refusal);
                }
            }
        }
        self.emit.builder.set_origin(Origin {
            source_op: rules::operator_name(operator).into_owned(),
            scope: self.operator_label(operator).to_owned(),
        });
        let first_new = self.emit.builder.next_id();
        let mut call = Call { emit: &mut self.emit, operator, tensors: &self.model.tensors, inputs };
        let made = rules::find_rule(operator).and_then(|rule| {
            let Some(rule) = rule else { return unsupported(without_rule(self.model)) };
            let values = rule(&mut call)?;
            if values.len() < operator.outputs.len() {
                return malformed(format!("the operator has {} outputs", operator.outputs.len()));
            }
            let stored = values.into_iter().zip(0..operator.outputs.len());
            stored.map(|(value, index)| call.store_output(value, index)).collect::<Outcome<Vec<_>>>()
        });
        match made {
            Ok(outputs) => self.bind_outputs(operator, &outputs, first_new),
            Err(refusal) => self.refuse_operator(operator, refusal),
        }
    }

    /// Assigns an operator's results to its output tensors; values from `first_new` on are renamed accordingly.
    fn bind_outputs(&mut self, operator: &Operator<'_>, outputs: &[ValueId], first_new: ValueId) -> Result<()> {
        for (&index, &id) in operator.outputs.iter().zip(outputs) {
            let (slot, tensor) = self.find_tensor(index)?;
            if !matches!(self.slots[slot], TfliteSlot::Unmade) {
                return Err(self.malformed(format!("tensor `{}`", tensor.name), "several nodes produce it".to_owned()));
            }
            self.compare_with_stated(operator, tensor, id)?;
            if id.0 >= first_new.0 {
                self.emit.builder.rename_value(id, &tensor.name);
            }
            self.slots[slot] = TfliteSlot::Value(id);
        }
        Ok(())
    }

    fn compare_with_stated(&self, operator: &Operator<'_>, tensor: &Tensor, id: ValueId) -> Result<()> {
        let found = self.emit.builder.value_type(id)?;
        let is_open = tensor.shape.is_empty() || tensor.signature.contains(&-1);
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
        let tensors = self.model.inputs.iter().filter_map(|&index| self.find_tensor(index).ok());
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
        let (place, name) = (self.operator_label(operator).to_owned(), rules::operator_name(operator).into_owned());
        self.skipped.push(Skipped { place, operator: name, reason });
        for &index in operator.inputs.iter().filter(|&&index| index >= 0) {
            if let TfliteSlot::Value(id) = self.slots[self.find_tensor(index)?.0] {
                self.loose_ends.push(id);
            }
        }
        for &index in &operator.outputs {
            let (slot, tensor) = self.find_tensor(index)?;
            let is_known = !tensor.shape.is_empty() && tensor.shape.iter().all(|&extent| extent >= 0);
            self.slots[slot] = match tensor.dtype() {
                Ok(dtype) if is_known && matches!(self.slots[slot], TfliteSlot::Unmade) => {
                    let ty = TensorType::new(dtype, &known_extents(&tensor.shape));
                    TfliteSlot::Value(self.emit.builder.add_input(&tensor.name, ty)?)
                }
                _ => TfliteSlot::Skipped,
            };
        }
        Ok(())
    }

    fn finish_import(self) -> Result<(Graph, Vec<Skipped>)> {
        let mut outputs = Vec::new();
        for &index in &self.model.outputs {
            let (slot, tensor) = self.find_tensor(index)?;
            match self.slots[slot] {
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

    fn find_tensor(&self, index: i32) -> Result<(usize, &'a Tensor)> {
        let found = usize::try_from(index).ok().and_then(|index| Some((index, self.model.tensors.get(index)?)));
        found.ok_or_else(|| self.malformed(String::new(), format!("tensor {index} does not exist")))
    }

    fn operator_label(&self, operator: &Operator<'_>) -> &'a str {
        let output = operator.outputs.first().and_then(|&index| self.find_tensor(index).ok());
        // Converters join the names of everything they fused.
        output.map_or("", |(_, tensor)| tensor.name.split(';').next().unwrap_or(""))
    }

    fn operator_place(&self, operator: &Operator<'_>) -> String {
        format!("node `{}` (`{}`)", self.operator_label(operator), rules::operator_name(operator))
    }

    fn malformed(&self, place: String, reason: String) -> Error {
        Error::Malformed { file: self.file.to_owned(), place, reason }
    }

    fn unsupported(&self, place: String, reason: String) -> Error {
        Error::Unsupported { file: self.file.to_owned(), place, reason }
    }
}

fn without_rule(model: &Model<'_>) -> String {
    let mut counts: BTreeMap<Cow<'_, str>, usize> = BTreeMap::new();
    for operator in model.operators.iter().filter(|operator| matches!(rules::find_rule(operator), Ok(None))) {
        *counts.entry(rules::operator_name(operator)).or_default() += 1;
    }
    let listed: Vec<String> = counts.iter().take(16).map(|(name, count)| format!("`{name}` ({count})")).collect();
    format!("this version has no rule for {}; leave them out with `--skip-unsupported`", listed.join(", "))
}

fn known_extents(shape: &[i32]) -> Vec<i64> {
    shape.iter().map(|&extent| i64::from(extent)).collect()
}
