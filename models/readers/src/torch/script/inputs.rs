//! Builds the arguments of a program: tensors with shapes that the caller gives, or with those of the traced call.

use super::heap::{Value, is_tensor};
use super::interpreter::Interpreter;
use super::syntax::{Expr, Function, Parameter};
use crate::{Options, Outcome, escape_name, malformed, unsupported};
use models::types::{DType, TensorType};
use std::collections::BTreeSet;

/// Maximum number of tensors in one list argument.
const MAX_ELEMENTS: usize = 64;

/// A shape that the caller gives: name or number of the input, an optional element type, and the extents.
struct Stated<'o> {
    key: &'o str,
    name: &'o str,
    dtype: Option<DType>,
    extents: &'o [i64],
}

struct Inputs<'i, 'a, 'o> {
    interpreter: &'i mut Interpreter<'a>,
    options: &'o Options,
    stated: Vec<Stated<'o>>,
    used: BTreeSet<&'o str>,
    /// Names of all tensor inputs; `missing` contains those for which neither caller nor traced call gives a shape.
    names: Vec<String>,
    missing: Vec<String>,
}

pub(super) fn build_arguments<'a>(
    interpreter: &mut Interpreter<'a>,
    method: &Function<'a>,
    examples: &[Value],
    options: &Options,
) -> Outcome<Vec<Value>> {
    let stated = options.shapes.iter().map(|(key, extents)| parse_stated(key, extents)).collect::<Outcome<_>>()?;
    let (names, missing) = (Vec::new(), Vec::new());
    let mut inputs = Inputs { interpreter, options, stated, used: BTreeSet::new(), names, missing };
    let mut values = Vec::new();
    for (index, parameter) in method.parameters.iter().skip(1).enumerate() {
        values.push(inputs.build_argument(parameter, index, examples.get(index).copied())?);
    }
    inputs.check_shapes()?;
    Ok(values)
}

fn parse_stated<'o>(key: &'o str, extents: &'o [i64]) -> Outcome<Stated<'o>> {
    let (name, dtype) = match key.rsplit_once(':') {
        None => (key, None),
        Some((name, dtype)) => match DType::from_name(dtype) {
            Some(dtype) => (name, Some(dtype)),
            None => return malformed(format!("`{}` is not an element type", escape_name(dtype))),
        },
    };
    Ok(Stated { key, name, dtype, extents })
}

impl Inputs<'_, '_, '_> {
    fn check_shapes(&mut self) -> Outcome<()> {
        let names = self.names.join(", ");
        let bound = self.options.bindings.keys().map(String::as_str);
        let unknown = self.stated.iter().map(|stated| stated.key).chain(bound).find(|key| !self.used.contains(key));
        if let Some(key) = unknown {
            self.interpreter.tensors.refused = Some(format!("input `{}`", escape_name(key)));
            return malformed(format!("the model has no such input; the inputs are {names}"));
        }
        let Some(first) = self.missing.first() else { return Ok(()) };
        self.interpreter.tensors.refused = Some(format!("input `{}`", escape_name(first)));
        let first = escape_name(first);
        unsupported(format!(
            "TorchScript does not state shapes; give those of {} with `--shape`, such as `--shape {first}=1x3x224x224`, or \
             `--shape {first}:i64=1x128` for integers",
            self.missing.join(", ")
        ))
    }

    fn build_argument(&mut self, parameter: &Parameter<'_>, index: usize, example: Option<Value>) -> Outcome<Value> {
        let name = parameter.name;
        let number = index.to_string();
        if let Some(value) = self.stated_tensor(name, Some(&number), example)? {
            return Ok(value);
        }
        if let Some(elements) = self.list_elements(name, example)? {
            let is_tuple = matches!(&parameter.ty, Some(Expr::Index(base, _)) if matches!(**base, Expr::Name("Tuple")));
            let heap = &mut self.interpreter.heap;
            return if is_tuple { heap.add_tuple(elements) } else { heap.add_list(elements) };
        }
        match (&parameter.ty, &parameter.default, example) {
            (_, _, Some(value)) if !is_tensor(value) => Ok(value),
            (_, Some(Expr::None), _) => Ok(Value::None),
            (_, Some(Expr::Bool(flag)), _) => Ok(Value::Bool(*flag)),
            (_, Some(Expr::Int(number)), _) => Ok(Value::Int(*number)),
            (_, Some(Expr::Float(number)), _) => Ok(Value::Float(*number)),
            (_, Some(Expr::Text(text)), _) => self.interpreter.heap.add_text(text),
            (Some(Expr::Index(base, _)), ..) if matches!(**base, Expr::Name("Optional")) => Ok(Value::None),
            (Some(Expr::Name("Tensor")) | None, ..) => {
                self.names.push(name.to_owned());
                self.missing.push(name.to_owned());
                Ok(Value::None)
            }
            (Some(Expr::Name(ty @ ("int" | "float" | "bool" | "str"))), ..) => {
                self.interpreter.tensors.refused = Some(format!("input `{}`", escape_name(name)));
                unsupported(format!(
                    "an argument of type `{ty}`, whose value the file does not state; trace the model with this value"
                ))
            }
            (Some(Expr::Index(base, _)), ..) if matches!(**base, Expr::Name("List" | "Tuple")) => {
                self.names.push(format!("{name}.0"));
                self.missing.push(format!("{name}.0"));
                Ok(Value::None)
            }
            _ => {
                self.interpreter.tensors.refused = Some(format!("input `{}`", escape_name(name)));
                unsupported("an argument that is neither a tensor nor a list of tensors")
            }
        }
    }

    /// Builds the elements of a list of tensors; each is named by its index.
    fn list_elements(&mut self, name: &str, example: Option<Value>) -> Outcome<Option<Vec<Value>>> {
        let items =
            example.and_then(|example| self.interpreter.heap.sequence_items(example)).unwrap_or_default().to_vec();
        let mut elements = Vec::new();
        for index in 0..MAX_ELEMENTS {
            match self.stated_tensor(&format!("{name}.{index}"), None, items.get(index).copied())? {
                Some(value) => elements.push(value),
                None => break,
            }
        }
        Ok((!elements.is_empty()).then_some(elements))
    }

    /// Builds a tensor with the shape that the caller gives, or else with that of an example.
    fn stated_tensor(&mut self, name: &str, number: Option<&str>, example: Option<Value>) -> Outcome<Option<Value>> {
        let example = match example {
            Some(Value::Stored(at)) => Some(self.interpreter.heap.stored[at].tensor.clone()),
            _ => None,
        };
        let find = |wanted: &str| self.stated.iter().position(|stated| stated.name == wanted);
        let found = find(name).or_else(|| number.and_then(find));
        let ty = match (found, &example) {
            (Some(at), example) => {
                let stated = &self.stated[at];
                self.used.insert(stated.key);
                let dtype = stated.dtype.or(example.as_ref().map(|example| example.dtype));
                TensorType::new(dtype.unwrap_or(DType::F32), stated.extents)
            }
            (None, Some(example)) => TensorType::new(example.dtype, &example.extents),
            (None, None) => match self.options.bindings.get(name) {
                Some(bound) => bound.tensor_type().clone(),
                None => return Ok(None),
            },
        };
        self.names.push(name.to_owned());
        let tensors = &mut self.interpreter.tensors;
        if example.is_some_and(|example| example.is_complex) {
            tensors.refused = Some(format!("input `{}`", escape_name(name)));
            return unsupported("a complex tensor as input");
        }
        let id = match self.options.bindings.get_key_value(name) {
            Some((key, bound)) => {
                self.used.insert(key);
                tensors.emit.builder.add_constant(
                    name,
                    bound.tensor_type().clone(),
                    passes::fold::contents_of(bound),
                )?
            }
            None => tensors.emit.builder.add_input(name, ty)?,
        };
        Ok(Some(tensors.add_tensor(id)))
    }
}
