//! Tensors of a TorchScript program: loads weights on first use and adds operators to the graph.

use super::dtypes;
use super::heap::{Heap, NamedTensor, Value, is_tensor};
use super::layouts::Layouts;
use super::signatures::{self, Returns, Signature, assign_arguments, convert_argument};
use crate::archive::Archive;
use crate::torch::call::{Argument, Call};
use crate::torch::memory::{Cells, STALE, Slot};
use crate::torch::rules::{self, RuleOutput};
use crate::{Emit, Options, Outcome, Refusal, Skipped, escape_name, malformed, unsupported};
use models::check::GraphLimits;
use models::graph::{Origin, ValueId};
use models::types::{DType, TensorType};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

const MAX_CALLS: usize = 1 << 17;

pub(super) struct Tensors<'a> {
    pub emit: Emit<'a>,
    archive: &'a Archive,
    options: &'a Options,
    cells: Cells,
    /// Memory cells of the file's tensors that were used, by their index in the heap; `shared` has them by content.
    loaded: HashMap<usize, usize>,
    shared: HashMap<String, usize>,
    signatures: HashMap<String, Rc<Vec<Signature>>>,
    complex: HashSet<usize>,
    layouts: Layouts,
    /// Whether the results of the current operator may not be row-major.
    is_reordered: bool,
    /// Constants that represent Python numbers, which do not affect the result type.
    numbers: HashSet<ValueId>,
    /// Path of the module that is being interpreted; `target` is the variable to which the current result is assigned.
    pub scope: Rc<str>,
    pub target: &'a str,
    pub refused: Option<String>,
    pub skipped: Vec<Skipped>,
    pub loose_ends: Vec<ValueId>,
    calls: usize,
}

impl<'a> Tensors<'a> {
    pub fn new(file: &str, archive: &'a Archive, options: &'a Options) -> Tensors<'a> {
        Tensors {
            emit: Emit::new(file, None),
            archive,
            options,
            cells: Cells::default(),
            loaded: HashMap::new(),
            shared: HashMap::new(),
            signatures: HashMap::new(),
            complex: HashSet::new(),
            layouts: Layouts::default(),
            is_reordered: false,
            numbers: HashSet::new(),
            scope: "".into(),
            target: "",
            refused: None,
            skipped: Vec::new(),
            loose_ends: Vec::new(),
            calls: 0,
        }
    }

    pub fn add_tensor(&mut self, id: ValueId) -> Value {
        Value::Tensor(self.cells.add_cell(Slot::Value(id)))
    }

    /// Returns the memory cell of a tensor. A tensor of the file is added to the graph as a constant on first use.
    fn tensor_cell(&mut self, value: Value, heap: &Heap) -> Outcome<usize> {
        match value {
            Value::Tensor(cell) => Ok(cell),
            Value::Stored(at) => match self.loaded.get(&at) {
                Some(&cell) => Ok(cell),
                None => {
                    let cell = self.load_stored(&heap.stored[at])?;
                    self.loaded.insert(at, cell);
                    Ok(cell)
                }
            },
            _ => malformed("a value is not a tensor"),
        }
    }

    fn load_stored(&mut self, stored: &NamedTensor) -> Outcome<usize> {
        let (ty, data, same) = match stored.tensor.load_contents(self.archive) {
            Ok(found) => found,
            Err(reason) => {
                self.refused = Some(format!("tensor `{}`", escape_name(&stored.name)));
                return malformed(reason);
            }
        };
        if let Some(&cell) = self.shared.get(&same) {
            return Ok(cell);
        }
        let id = self.emit.builder.add_constant(&stored.name, ty, data)?;
        let cell = self.cells.add_cell(Slot::Value(id));
        if stored.name.starts_with("CONSTANTS.") && stored.tensor.extents.is_empty() {
            self.numbers.insert(id);
        }
        if stored.tensor.is_complex {
            self.complex.insert(cell);
        }
        if !stored.tensor.is_row_major() {
            self.layouts.mark_unordered(cell);
        }
        self.shared.insert(same, cell);
        Ok(cell)
    }

    pub fn value_id(&mut self, value: Value, heap: &Heap) -> Outcome<ValueId> {
        let cell = self.tensor_cell(value, heap)?;
        match self.cells.cell_slot(cell) {
            Slot::Value(id) => Ok(id),
            Slot::Stale => unsupported(format!("an input is stale: {STALE}")),
            Slot::Skipped => unsupported("an input is an output of a skipped operator"),
            Slot::Unmade => unsupported("an input is an output that is not supported"),
        }
    }

    /// Returns the extents as PyTorch sees them: the added dimension of complex numbers is left out.
    pub fn tensor_extents(&mut self, value: Value, heap: &Heap) -> Outcome<Vec<i64>> {
        let id = self.value_id(value, heap)?;
        let mut extents = self.emit.extents(id)?;
        let cell = self.tensor_cell(value, heap)?;
        if self.complex.contains(&cell) {
            extents.pop();
        }
        Ok(extents)
    }

    pub fn tensor_dtype(&mut self, value: Value, heap: &Heap) -> Outcome<DType> {
        let id = self.value_id(value, heap)?;
        self.emit.dtype(id)
    }

    pub fn is_complex(&mut self, value: Value, heap: &Heap) -> Outcome<bool> {
        let cell = self.tensor_cell(value, heap)?;
        Ok(self.complex.contains(&cell))
    }

    /// Returns whether a value is a complex tensor, or a list with one.
    fn holds_complex(&mut self, value: Value, heap: &Heap) -> Outcome<bool> {
        let items = heap.sequence_items(value).unwrap_or(std::slice::from_ref(&value));
        for item in items.iter().copied().filter(|item| is_tensor(*item)) {
            if self.is_complex(item, heap)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the only element of a tensor, or None if the tensor is not constant.
    pub fn known_number(&mut self, value: Value, heap: &Heap) -> Outcome<Option<f64>> {
        let id = self.value_id(value, heap)?;
        match self.emit.ty(id)?.element_count() {
            Some(1) => Ok(self.emit.known_numbers(id)?.and_then(|numbers| numbers.first().copied())),
            _ => malformed("a tensor of several elements is not a number"),
        }
    }

    pub fn call_operator(
        &mut self,
        name: &str,
        given: &[Value],
        keywords: &[(&str, Value)],
        heap: &mut Heap,
    ) -> Outcome<Value> {
        self.calls += 1;
        if self.calls > MAX_CALLS {
            return unsupported(format!("the program calls more than {MAX_CALLS} operators"));
        }
        let target = if name.contains('.') { format!("{name}.default") } else { format!("aten.{name}") };
        let operator = target.trim_end_matches(".default").to_owned();
        if rules::is_dropped(&target) {
            return Ok(Value::None);
        }
        self.emit.builder.set_origin(Origin { source_op: operator.clone(), scope: self.scope.to_string() });
        let all: Vec<Value> = given.iter().copied().chain(keywords.iter().map(|(_, value)| *value)).collect();
        let result = match self.reads_missing(&all, heap) {
            true => unsupported("an input is an output of a skipped operator"),
            false => self.apply_rule(&target, given, keywords, heap),
        };
        match result {
            Err(Refusal::Unsupported(reason)) if self.options.skip_unsupported => {
                self.skipped.push(Skipped { place: self.local_name(), operator, reason });
                self.add_loose_ends(&all, heap);
                Ok(Value::Missing)
            }
            Err(refusal) => {
                let place = self.operator_place(&operator);
                self.refused.get_or_insert(place);
                Err(refusal)
            }
            made => made,
        }
    }

    /// Names a call by the variable of its result or, within an expression, by the module.
    fn operator_place(&self, operator: &str) -> String {
        let operator = escape_name(operator);
        match (self.target.is_empty(), self.scope.is_empty()) {
            (false, _) => format!("node `{}` (`{operator}`)", escape_name(&self.local_name())),
            (true, false) => format!("operator `{operator}` of module `{}`", escape_name(&self.scope)),
            (true, true) => format!("operator `{operator}`"),
        }
    }

    fn local_name(&self) -> String {
        match self.scope.is_empty() {
            true => self.target.to_owned(),
            false => format!("{}.{}", self.scope, self.target),
        }
    }

    fn reads_missing(&self, all: &[Value], heap: &Heap) -> bool {
        let is_missing = |value: &Value| *value == Value::Missing;
        all.iter()
            .any(|value| is_missing(value) || heap.sequence_items(*value).unwrap_or_default().iter().any(is_missing))
    }

    fn add_loose_ends(&mut self, all: &[Value], heap: &Heap) {
        let nested = all.iter().flat_map(|value| heap.sequence_items(*value).unwrap_or(std::slice::from_ref(value)));
        for value in nested.copied().collect::<Vec<_>>() {
            if let (true, Ok(id)) = (is_tensor(value), self.value_id(value, heap)) {
                self.loose_ends.push(id);
            }
        }
    }

    fn apply_rule(
        &mut self,
        target: &str,
        given: &[Value],
        keywords: &[(&str, Value)],
        heap: &mut Heap,
    ) -> Outcome<Value> {
        let Some((operator, is_written)) = rules::split_target(target) else {
            return unsupported("this version has no rule for the operator");
        };
        if let Some(reason) = rules::refusal_reason(operator) {
            return unsupported(reason);
        }
        let known = self.signatures.entry(operator.to_owned());
        let signatures = Rc::clone(known.or_insert_with(|| Rc::new(signatures::operator_signatures(operator))));
        if signatures.is_empty() {
            return unsupported("this version has no rule for the operator; export the model with `torch.export.save`");
        }
        let Some(assigned) = assign_arguments(&signatures, given, keywords, heap) else {
            return malformed("the arguments fit no overload of the operator");
        };
        let (mut arguments, mut complex, mut requested) = (HashMap::new(), Vec::new(), None);
        for (formal, value) in &assigned.arguments {
            if let (true, Value::Int(code)) = (matches!(formal.name, "dtype" | "out_dtype"), *value) {
                requested = Some(dtypes::requested_dtype(code)?);
            }
            if self.holds_complex(*value, heap)? {
                complex.push(formal.name);
            }
            if matches!(formal.name, "index" | "indices")
                && is_tensor(*value)
                && self.tensor_dtype(*value, heap)?.is_float()
            {
                return malformed("the indices are not integers; `--shape NAME:i64=EXTENTS` sets the type of an input");
            }
            let heap: &Heap = heap;
            let argument = convert_argument(formal, *value, heap, &mut |value| self.value_id(value, heap))?;
            arguments.insert(formal.name, argument);
        }
        let makes_complex = |(formal, value): &(&signatures::Formal, Value)| {
            formal.name == "dtype" && matches!(value, Value::Int(code) if dtypes::COMPLEX.contains(code))
        };
        let asks_for_complex = assigned.arguments.iter().any(makes_complex);
        let is_zeros = matches!(operator, "zeros" | "zeros_like" | "new_zeros" | "empty" | "full");
        if complex.is_empty() && asks_for_complex && !is_zeros {
            return unsupported("converting real numbers to complex ones");
        }
        if !complex.is_empty() {
            self.write_numbers(&mut arguments)?;
        }
        let is_complex = !complex.is_empty() && !MAKES_REAL.contains(&operator)
            || MAKES_COMPLEX.contains(&operator)
            || is_zeros && asks_for_complex
            || matches!((operator, arguments.get("return_complex")), ("stft", Some(Argument::Bool(true))));
        let rule = match complex.is_empty() && !is_complex {
            true => rules::find_rule(operator),
            false => rules::complex::find_rule(operator),
        };
        let Some(rule) = rule else { return unsupported("this version has no rule for the operator") };
        let dtype = dtypes::result_dtype(operator, &arguments, requested, (&self.emit, &self.numbers))?;
        let stated = vec![Some(TensorType::new(dtype, &[]))];
        let first_new = self.emit.builder.next_id();
        let first = assigned.arguments.first().map(|(_, value)| *value).filter(|value| is_tensor(*value));
        let source = first.map(|value| self.tensor_cell(value, heap)).transpose()?;
        let operand = first.map(|value| self.value_id(value, heap)).transpose()?;
        let rank = operand.map(|id| self.emit.rank(id)).transpose()?.unwrap_or(0);
        let memory_order = source.filter(|cell| self.layouts.is_row_major(*cell)).map(|_| (0..rank).collect());
        let emit = &mut self.emit;
        let mut call = Call { emit, operator, arguments, complex, stated, wanted: usize::MAX, memory_order };
        let made = rules::apply_rule(rule, &mut call)?;
        let operands = self.operand_cells(&assigned.arguments, heap)?;
        self.is_reordered = self.layouts.is_reordered(operator, &operands, &made, operand);
        let written = if is_written { source } else { None };
        self.bind_results(made, assigned.signature.returns, (source, written), first_new, is_complex, heap)
    }

    fn operand_cells(&mut self, arguments: &[(&signatures::Formal, Value)], heap: &Heap) -> Outcome<Vec<usize>> {
        let mut cells = Vec::new();
        for (_, value) in arguments {
            let items = heap.sequence_items(*value).unwrap_or(std::slice::from_ref(value));
            for item in items.iter().copied().filter(|item| is_tensor(*item)) {
                cells.push(self.tensor_cell(item, heap)?);
            }
        }
        Ok(cells)
    }

    /// Replaces constants that represent Python numbers by plain numbers, because complex operands have another type.
    fn write_numbers(&mut self, arguments: &mut HashMap<&str, Argument>) -> Outcome<()> {
        for argument in arguments.values_mut() {
            if let Argument::Tensor(id) = argument
                && self.numbers.contains(id)
                && let Some([number]) = self.emit.known_numbers(*id)?.as_deref()
            {
                *argument = Argument::Float(*number);
            }
        }
        Ok(())
    }

    fn bind_results(
        &mut self,
        made: Vec<RuleOutput>,
        returns: Returns,
        (source, written): (Option<usize>, Option<usize>),
        first_new: ValueId,
        is_complex: bool,
        heap: &mut Heap,
    ) -> Outcome<Value> {
        let most = GraphLimits::default().tensor_bytes;
        let name = self.local_name();
        let mut values = Vec::new();
        for RuleOutput { id, window } in made {
            let found = self.emit.builder.value_type(id)?;
            if found.size_bytes().is_none_or(|bytes| bytes > most) {
                return malformed(format!("the result {found} exceeds the limit of {most} bytes"));
            }
            if let Some(cell) = written {
                self.cells.write_cell(&mut self.emit, cell, id)?;
                if self.is_reordered {
                    self.layouts.mark_unordered(cell);
                }
                return Ok(Value::Tensor(cell));
            }
            if id.0 >= first_new.0 {
                self.emit.builder.rename_value(id, &name);
            }
            let cell = self.cells.add_result(id, window, source);
            if is_complex {
                self.complex.insert(cell);
            }
            if self.is_reordered {
                self.layouts.mark_unordered(cell);
            }
            values.push(Value::Tensor(cell));
        }
        match (returns, values.first()) {
            (Returns::Tensor, Some(&value)) => Ok(value),
            (Returns::Tensor, None) => malformed("the operator has no result"),
            (Returns::List, _) => heap.add_list(values),
            (Returns::Tuple(count), _) => {
                values.resize_with(count, || Value::Tensor(self.cells.add_cell(Slot::Unmade)));
                heap.add_tuple(values)
            }
        }
    }
}

const MAKES_REAL: &[&str] =
    &["abs", "angle", "fft_irfft", "fft_irfft2", "fft_irfftn", "imag", "istft", "real", "view_as_real", "_fft_c2r"];

const MAKES_COMPLEX: &[&str] = &[
    "_fft_r2c",
    "complex",
    "fft_fft",
    "fft_fft2",
    "fft_fftn",
    "fft_ifft",
    "fft_ifft2",
    "fft_ifftn",
    "fft_rfft",
    "fft_rfft2",
    "fft_rfftn",
    "polar",
    "view_as_complex",
];

#[cfg(test)]
mod tests {
    use crate::torch::rules;

    #[test]
    fn operators_of_complex_numbers_have_a_rule() {
        let all = super::MAKES_REAL.iter().chain(super::MAKES_COMPLEX);
        let without: Vec<_> = all.filter(|name| rules::complex::find_rule(name).is_none()).collect();
        assert!(without.is_empty(), "{without:?}");
    }
}
