//! Tensors of a TorchScript program: weights as they are asked for, and calls that become operators of the graph.

use super::dtypes;
use super::heap::{Heap, NamedTensor, Value, is_tensor};
use super::signatures::{self, Returns, Signature, argument, assign};
use crate::archive::Archive;
use crate::torch::call::{Argument, Call};
use crate::torch::memory::{Cells, STALE, Slot};
use crate::torch::rules::{self, Made};
use crate::{Emit, Options, Outcome, Refusal, Skipped, malformed, shown, unsupported};
use models::check::GraphLimits;
use models::graph::{Origin, ValueId};
use models::types::{DType, TensorType};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// Calls of operators that compute tensors.
const MAX_CALLS: usize = 1 << 17;

/// The graph in the making, and the memory of its tensors.
pub(super) struct Tensors<'a> {
    pub emit: Emit<'a>,
    archive: &'a Archive,
    options: &'a Options,
    cells: Cells,
    /// Cells of the file's tensors that were used, by their place in the heap and by their contents.
    loaded: HashMap<usize, usize>,
    shared: HashMap<String, usize>,
    signatures: HashMap<String, Rc<Vec<Signature>>>,
    /// Cells whose elements are complex numbers.
    complex: HashSet<usize>,
    /// Constants that stand for numbers of Python, which do not decide the type of a result.
    numbers: HashSet<ValueId>,
    /// The module that runs, and the variable that takes the result.
    pub scope: Rc<str>,
    pub target: &'a str,
    /// The operator that was refused last.
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
            numbers: HashSet::new(),
            scope: "".into(),
            target: "",
            refused: None,
            skipped: Vec::new(),
            loose_ends: Vec::new(),
            calls: 0,
        }
    }

    /// Adds a tensor with memory of its own.
    pub fn add(&mut self, id: ValueId) -> Value {
        Value::Tensor(self.cells.add(Slot::Value(id)))
    }

    /// Returns the memory of a tensor. A tensor of the file becomes a constant of the graph.
    fn cell(&mut self, value: Value, heap: &Heap) -> Outcome<usize> {
        match value {
            Value::Tensor(cell) => Ok(cell),
            Value::Stored(at) => match self.loaded.get(&at) {
                Some(&cell) => Ok(cell),
                None => {
                    let cell = self.load(&heap.stored[at])?;
                    self.loaded.insert(at, cell);
                    Ok(cell)
                }
            },
            _ => malformed("a value is no tensor"),
        }
    }

    fn load(&mut self, stored: &NamedTensor) -> Outcome<usize> {
        let (ty, data, same) = match stored.tensor.contents(self.archive) {
            Ok(found) => found,
            Err(reason) => {
                self.refused = Some(format!("tensor `{}`", shown(&stored.name)));
                return malformed(reason);
            }
        };
        if let Some(&cell) = self.shared.get(&same) {
            return Ok(cell);
        }
        let id = self.emit.builder.constant(&stored.name, ty, data)?;
        let cell = self.cells.add(Slot::Value(id));
        if stored.name.starts_with("CONSTANTS.") && stored.tensor.extents.is_empty() {
            self.numbers.insert(id);
        }
        if stored.tensor.is_complex {
            self.complex.insert(cell);
        }
        self.shared.insert(same, cell);
        Ok(cell)
    }

    /// Returns what a tensor is in the graph.
    pub fn id(&mut self, value: Value, heap: &Heap) -> Outcome<ValueId> {
        let cell = self.cell(value, heap)?;
        match self.cells.slot(cell) {
            Slot::Value(id) => Ok(id),
            Slot::Stale => unsupported(format!("it reads a tensor: {STALE}")),
            Slot::Skipped => unsupported("it reads what was left out"),
            Slot::Unmade => unsupported("it reads an output that only training needs"),
        }
    }

    /// Returns the extents of a tensor. A complex number counts as one element.
    pub fn extents(&mut self, value: Value, heap: &Heap) -> Outcome<Vec<i64>> {
        let id = self.id(value, heap)?;
        let mut extents = self.emit.extents(id)?;
        let cell = self.cell(value, heap)?;
        if self.complex.contains(&cell) {
            extents.pop();
        }
        Ok(extents)
    }

    pub fn dtype(&mut self, value: Value, heap: &Heap) -> Outcome<DType> {
        let id = self.id(value, heap)?;
        self.emit.dtype(id)
    }

    pub fn is_complex(&mut self, value: Value, heap: &Heap) -> Outcome<bool> {
        let cell = self.cell(value, heap)?;
        Ok(self.complex.contains(&cell))
    }

    /// Returns the only element of a tensor; nothing if it is not known.
    pub fn number(&mut self, value: Value, heap: &Heap) -> Outcome<Option<f64>> {
        let id = self.id(value, heap)?;
        match self.emit.ty(id)?.elements() {
            Some(1) => Ok(self.emit.numbers(id)?.and_then(|numbers| numbers.first().copied())),
            _ => malformed("a tensor of several elements is no number"),
        }
    }

    /// Adds an operator to the graph.
    pub fn call(&mut self, name: &str, given: &[Value], keywords: &[(&str, Value)], heap: &mut Heap) -> Outcome<Value> {
        self.calls += 1;
        if self.calls > MAX_CALLS {
            return unsupported(format!("it calls more than {MAX_CALLS} operators"));
        }
        let target = if name.contains('.') { format!("{name}.default") } else { format!("aten.{name}") };
        let operator = target.trim_end_matches(".default").to_owned();
        if rules::is_dropped(&target) {
            return Ok(Value::None);
        }
        self.emit.builder.set_origin(Origin { source_op: operator.clone(), scope: self.scope.to_string() });
        let all: Vec<Value> = given.iter().copied().chain(keywords.iter().map(|(_, value)| *value)).collect();
        let result = match self.reads_missing(&all, heap) {
            true => unsupported("it reads what was left out"),
            false => self.apply(&target, given, keywords, heap),
        };
        match result {
            Err(Refusal::Unsupported(reason)) if self.options.skip_unsupported => {
                self.skipped.push(Skipped { place: self.local_name(), operator, reason });
                self.add_loose_ends(&all, heap);
                Ok(Value::Missing)
            }
            Err(refusal) => {
                let place = format!("node `{}` (`{}`)", shown(&self.local_name()), shown(&operator));
                self.refused.get_or_insert(place);
                Err(refusal)
            }
            made => made,
        }
    }

    /// The variable that takes the result, with its module.
    fn local_name(&self) -> String {
        match self.scope.is_empty() {
            true => self.target.to_owned(),
            false => format!("{}.{}", self.scope, self.target),
        }
    }

    fn reads_missing(&self, all: &[Value], heap: &Heap) -> bool {
        let is_missing = |value: &Value| *value == Value::Missing;
        all.iter().any(|value| is_missing(value) || heap.items(*value).unwrap_or_default().iter().any(is_missing))
    }

    /// What an operator that was left out reads becomes a result.
    fn add_loose_ends(&mut self, all: &[Value], heap: &Heap) {
        let nested = all.iter().flat_map(|value| heap.items(*value).unwrap_or(std::slice::from_ref(value)));
        for value in nested.copied().collect::<Vec<_>>() {
            if let (true, Ok(id)) = (is_tensor(value), self.id(value, heap)) {
                self.loose_ends.push(id);
            }
        }
    }

    fn apply(&mut self, target: &str, given: &[Value], keywords: &[(&str, Value)], heap: &mut Heap) -> Outcome<Value> {
        let Some((operator, is_written)) = rules::operator(target) else {
            return unsupported("there is no rule for it");
        };
        if let Some(reason) = rules::reason(operator) {
            return unsupported(reason);
        }
        let known = self.signatures.entry(operator.to_owned());
        let signatures = Rc::clone(known.or_insert_with(|| Rc::new(signatures::signatures(operator))));
        if signatures.is_empty() {
            return unsupported("this version has no rule for it; export the model with `torch.export.save`");
        }
        let Some(assigned) = assign(&signatures, given, keywords, heap) else {
            return malformed("its arguments fit none of the operator's forms");
        };
        let (mut arguments, mut complex, mut asked) = (HashMap::new(), Vec::new(), None);
        for (formal, value) in &assigned.arguments {
            if let (true, Value::Int(code)) = (matches!(formal.name, "dtype" | "out_dtype"), *value) {
                asked = dtypes::dtype_of_code(code);
            }
            if is_tensor(*value) && self.is_complex(*value, heap)? {
                complex.push(formal.name);
            }
            if matches!(formal.name, "index" | "indices") && is_tensor(*value) && self.dtype(*value, heap)?.is_float() {
                return malformed("its indices are no integers; say so of an input with `--shape NAME:i64=EXTENTS`");
            }
            let heap: &Heap = heap;
            let argument = argument(formal, *value, heap, &mut |value| self.id(value, heap))?;
            arguments.insert(formal.name, argument);
        }
        let makes_complex = |(formal, value): &(&signatures::Formal, Value)| {
            formal.name == "dtype" && matches!(value, Value::Int(code) if dtypes::COMPLEX.contains(code))
        };
        if complex.is_empty() && assigned.arguments.iter().any(makes_complex) {
            return unsupported("it makes complex numbers of real ones");
        }
        if !complex.is_empty() {
            self.write_numbers(&mut arguments)?;
        }
        let is_complex = !complex.is_empty() && !MAKES_REAL.contains(&operator)
            || MAKES_COMPLEX.contains(&operator)
            || matches!((operator, arguments.get("return_complex")), ("stft", Some(Argument::Bool(true))));
        let rule = match complex.is_empty() && !is_complex {
            true => rules::rule(operator),
            false => rules::complex::rule(operator),
        };
        let Some(rule) = rule else { return unsupported("this version has no rule for it") };
        let dtype = dtypes::result(operator, &arguments, asked, (&self.emit, &self.numbers))?;
        let stated = vec![Some(TensorType::new(dtype, &[]))];
        let first_new = self.emit.builder.next();
        let mut call = Call { emit: &mut self.emit, operator, arguments, complex, stated };
        let made = rule(&mut call)?;
        let first = assigned.arguments.first().map(|(_, value)| *value).filter(|value| is_tensor(*value));
        let source = first.map(|value| self.cell(value, heap)).transpose()?;
        let written = if is_written { source } else { None };
        self.results(made, assigned.signature.returns, (source, written), first_new, is_complex, heap)
    }

    /// Puts numbers of Python in the place of the constants that stand for them, which have another type than complex numbers.
    fn write_numbers(&mut self, arguments: &mut HashMap<&str, Argument>) -> Outcome<()> {
        for argument in arguments.values_mut() {
            if let Argument::Tensor(id) = argument
                && self.numbers.contains(id)
                && let Some([number]) = self.emit.numbers(*id)?.as_deref()
            {
                *argument = Argument::Float(*number);
            }
        }
        Ok(())
    }

    /// Gives names and memory to what a rule has made.
    fn results(
        &mut self,
        made: Vec<Made>,
        returns: Returns,
        (source, written): (Option<usize>, Option<usize>),
        first_new: ValueId,
        is_complex: bool,
        heap: &mut Heap,
    ) -> Outcome<Value> {
        let most = GraphLimits::default().tensor_bytes;
        let name = self.local_name();
        let mut values = Vec::new();
        for Made { id, window } in made {
            let found = self.emit.builder.ty(id)?;
            if found.bytes().is_none_or(|bytes| bytes > most) {
                return malformed(format!("{found} is larger than the limit of {most} bytes"));
            }
            if let Some(cell) = written {
                self.cells.write(&mut self.emit, cell, id)?;
                return Ok(Value::Tensor(cell));
            }
            if id.0 >= first_new.0 {
                self.emit.builder.rename(id, &name);
            }
            let cell = self.cells.add_result(id, window, source);
            if is_complex {
                self.complex.insert(cell);
            }
            values.push(Value::Tensor(cell));
        }
        match (returns, values.first()) {
            (Returns::Tensor, Some(&value)) => Ok(value),
            (Returns::Tensor, None) => malformed("it has no result"),
            (Returns::List, _) => heap.list(values),
            (Returns::Tuple(count), _) => {
                values.resize_with(count, || Value::Tensor(self.cells.add(Slot::Unmade)));
                heap.tuple(values)
            }
        }
    }
}

/// Operators whose result is real although they read complex numbers.
const MAKES_REAL: &[&str] = &["abs", "angle", "fft_irfft", "imag", "istft", "real", "view_as_real", "_fft_c2r"];

/// Operators that make complex numbers of real ones.
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
    "polar",
    "view_as_complex",
];

#[cfg(test)]
mod tests {
    use crate::torch::rules;

    #[test]
    fn operators_of_complex_numbers_have_a_rule() {
        let all = super::MAKES_REAL.iter().chain(super::MAKES_COMPLEX);
        let without: Vec<_> = all.filter(|name| rules::complex::rule(name).is_none()).collect();
        assert!(without.is_empty(), "{without:?}");
    }
}
