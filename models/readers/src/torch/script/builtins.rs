//! Built-in operators on values known during interpretation: numbers, strings, lists, shapes and types of tensors.

use super::dtypes;
use super::heap::{Heap, Value, is_tensor, number_of};
use super::interpreter::Interpreter;
use super::lists;
use super::numbers::{as_kind, eval_numbers};
use crate::torch::call::exact_float;
use crate::{Outcome, malformed, unsupported};
use models::types::{DType, TensorType};
use reference::Tensor;
use std::rc::Rc;

/// Evaluates an operator on known values; None if the operator must be added to the graph.
pub(super) fn call_builtin(
    interpreter: &mut Interpreter<'_>,
    name: &str,
    given: &[Value],
    keywords: &[(&str, Value)],
) -> Outcome<Option<Value>> {
    let name = name.strip_prefix("prim.").unwrap_or(name);
    if given.contains(&Value::Missing) && !matches!(name, "__is__" | "__isnot__" | "list") {
        return Ok(None);
    }
    if let Some(value) = eval_tensor(interpreter, name, given, keywords)? {
        return Ok(Some(value));
    }
    if let Some(value) = eval_container(interpreter, name, given)? {
        return Ok(Some(value));
    }
    if given.iter().any(|&value| is_tensor(value)) {
        return Ok(None);
    }
    if let Some(value) = eval_text(interpreter, name, given)? {
        return Ok(Some(value));
    }
    eval_numbers(&mut interpreter.heap, name, given)
}

/// Evaluates operators that read shapes and types of tensors or create tensors from numbers; None for all others.
fn eval_tensor(
    interpreter: &mut Interpreter<'_>,
    name: &str,
    given: &[Value],
    keywords: &[(&str, Value)],
) -> Outcome<Option<Value>> {
    let (heap, tensors) = (&mut interpreter.heap, &mut interpreter.tensors);
    let first = given.first().copied().unwrap_or(Value::None);
    Ok(Some(match (name, given) {
        ("NumToTensor", [value]) => {
            let (dtype, number) = typed_number(*value)?;
            let id = tensors.emit.add_scalar(dtype, number)?;
            tensors.add_tensor(id)
        }
        ("tensor" | "as_tensor", [value, rest @ ..]) if !is_tensor(*value) => {
            let requested = keywords.iter().find(|(name, _)| *name == "dtype").map(|(_, value)| *value);
            let requested = requested.or(rest.first().copied());
            nested_tensor(interpreter, *value, requested)?
        }
        _ if !is_tensor(first) => return Ok(None),
        ("size" | "shape", [x]) => {
            let extents = tensors.tensor_extents(*x, heap)?;
            heap.add_list(extents.into_iter().map(Value::Int).collect())?
        }
        ("size", [x, Value::Int(axis)]) => {
            let extents = tensors.tensor_extents(*x, heap)?;
            let axis = tensors.emit.resolve_axis(*axis, extents.len())?;
            Value::Int(extents[axis])
        }
        ("dim" | "ndim" | "ndimension", [x]) => Value::Int(tensors.tensor_extents(*x, heap)?.len() as i64),
        ("numel", [x]) => Value::Int(tensors.tensor_extents(*x, heap)?.iter().product()),
        ("len", [x]) => match tensors.tensor_extents(*x, heap)?.first() {
            Some(&extent) => Value::Int(extent),
            None => return malformed("a scalar has no length"),
        },
        ("dtype", [x]) => {
            let code = dtypes::code_of_dtype(tensors.tensor_dtype(*x, heap)?);
            // In PyTorch, the code of a complex type is three above the code of its parts.
            Value::Int(if tensors.is_complex(*x, heap)? { code + 3 } else { code })
        }
        ("device", [_]) => Value::Device,
        ("layout", [_]) => Value::Int(0),
        ("is_floating_point", [x]) => {
            Value::Bool(tensors.tensor_dtype(*x, heap)?.is_float() && !tensors.is_complex(*x, heap)?)
        }
        ("is_complex", [x]) => Value::Bool(tensors.is_complex(*x, heap)?),
        ("is_contiguous", _) => Value::Bool(true),
        (
            "is_cuda" | "is_quantized" | "requires_grad" | "is_sparse" | "is_mkldnn" | "is_meta" | "is_nested"
            | "is_mps",
            [_],
        ) => Value::Bool(false),
        ("data" | "requires_grad_", _) => first,
        ("__is__" | "__isnot__", [_, other]) => Value::Bool((first == *other) == (name == "__is__")),
        (
            "int" | "Int" | "IntImplicit" | "float" | "Float" | "FloatImplicit" | "bool" | "Bool" | "item"
            | "ScalarImplicit",
            [x],
        ) => to_number(interpreter, name, *x)?,
        ("__getitem__", _) => return unsupported("indexing a tensor as a list"),
        _ => return Ok(None),
    }))
}

fn to_number(interpreter: &mut Interpreter<'_>, name: &str, x: Value) -> Outcome<Value> {
    let (heap, tensors) = (&interpreter.heap, &mut interpreter.tensors);
    let Some(number) = tensors.known_number(x, heap)? else {
        return unsupported("a Python number whose value depends on input data");
    };
    Ok(as_kind(name, number, tensors.tensor_dtype(x, heap)?))
}

fn typed_number(value: Value) -> Outcome<(DType, f64)> {
    Ok(match value {
        Value::Int(number) => (DType::I64, exact_float(number)?),
        Value::Float(number) => (DType::F32, number),
        Value::Bool(flag) => (DType::Bool, f64::from(u8::from(flag))),
        _ => return malformed("a tensor is created from a value that is not a number"),
    })
}

fn nested_tensor(interpreter: &mut Interpreter<'_>, value: Value, requested: Option<Value>) -> Outcome<Value> {
    let (mut extents, mut numbers, mut dtype) = (Vec::new(), Vec::new(), None);
    collect_numbers(&mut interpreter.heap, value, 0, (&mut extents, &mut numbers, &mut dtype))?;
    if extents.iter().product::<i64>() != numbers.len() as i64 {
        return malformed("a tensor is created from lists of different lengths");
    }
    let requested = match requested {
        Some(Value::Int(code)) if dtypes::COMPLEX.contains(&code) => return unsupported("creating complex numbers"),
        Some(Value::Int(code)) => Some(dtypes::requested_dtype(code)?),
        _ => None,
    };
    let ty = TensorType::new(requested.or(dtype).unwrap_or(DType::F32), &extents);
    let id = interpreter.tensors.emit.constant_of(&Tensor::from_numbers(ty, &numbers)?)?;
    Ok(interpreter.tensors.add_tensor(id))
}

type Collected<'c> = (&'c mut Vec<i64>, &'c mut Vec<f64>, &'c mut Option<DType>);

fn collect_numbers(
    heap: &mut Heap,
    value: Value,
    depth: usize,
    (extents, numbers, dtype): Collected<'_>,
) -> Outcome<()> {
    heap.charge_units(1)?;
    let Some(items) = heap.sequence_items(value).map(<[Value]>::to_vec) else {
        let (found, number) = typed_number(value)?;
        *dtype = match *dtype {
            Some(before) if before.is_float() || before == found => Some(before),
            Some(_) if found.is_float() => Some(found),
            Some(_) => Some(DType::I64),
            None => Some(found),
        };
        numbers.push(number);
        return Ok(());
    };
    if depth >= 16 {
        return unsupported("a tensor is created from lists that are nested too deeply");
    }
    match extents.get(depth) {
        None => extents.push(items.len() as i64),
        Some(&extent) if extent == items.len() as i64 => {}
        Some(_) => return malformed("a tensor is created from lists of different lengths"),
    }
    items.into_iter().try_for_each(|item| collect_numbers(heap, item, depth + 1, (extents, numbers, dtype)))
}

fn eval_container(interpreter: &mut Interpreter<'_>, name: &str, given: &[Value]) -> Outcome<Option<Value>> {
    let heap = &mut interpreter.heap;
    Ok(Some(match (name, given) {
        ("range", [..]) => lists::range_list(heap, given)?,
        ("__range_length", &[Value::Int(start), Value::Int(end), Value::Int(step)]) => {
            Value::Int(lists::range_length(start, end, step)?)
        }
        ("__derive_index", &[Value::Int(index), Value::Int(start), Value::Int(step)]) => {
            Value::Int(start.wrapping_add(index.wrapping_mul(step)))
        }
        ("len", &[Value::List(at) | Value::Tuple(at)]) => Value::Int(heap.sequences[at].items.len() as i64),
        ("len", &[Value::Dict(at)]) => Value::Int(heap.dicts[at].len() as i64),
        ("append" | "extend" | "insert" | "pop" | "clear" | "reverse", [Value::List(at), rest @ ..]) => {
            return lists::change_list(heap, name, *at, rest).map(Some);
        }
        ("list" | "copy", [Value::List(_) | Value::Tuple(_)]) => {
            let items = heap.sequence_items(given[0]).unwrap_or_default().to_vec();
            heap.add_list(items)?
        }
        ("add" | "add_", [Value::List(_), Value::List(_)]) => {
            let items =
                [heap.sequence_items(given[0]).unwrap_or_default(), heap.sequence_items(given[1]).unwrap_or_default()]
                    .concat();
            heap.add_list(items)?
        }
        ("mul", &[list @ Value::List(_), Value::Int(count)]) => lists::repeat_list(heap, list, count)?,
        ("slice", [list @ (Value::List(_) | Value::Tuple(_)), rest @ ..]) => lists::slice_list(heap, *list, rest)?,
        ("__getitem__", &[base, index]) => interpreter.get_item(base, index)?,
        ("_set_item" | "__setitem__", [container, key, value]) => {
            lists::set_item(heap, *container, *key, *value)?;
            Value::None
        }
        ("keys" | "values" | "items", &[Value::Dict(at)]) => {
            let entries = heap.dicts[at].clone();
            let mut all = Vec::new();
            for (key, value) in entries {
                all.push(match name {
                    "keys" => key,
                    "values" => value,
                    _ => heap.add_tuple(vec![key, value])?,
                });
            }
            heap.add_list(all)?
        }
        ("__contains__", &[container, key]) => Value::Bool(lists::contains_key(heap, container, key)?),
        ("sum" | "max" | "min", &[Value::List(at)]) => lists::eval_list(name, &heap.sequences[at].items)?,
        ("any" | "all", &[Value::List(at)]) => {
            let mut flags =
                heap.sequences[at].items.iter().map(|&item| number_of(item).is_some_and(|number| number != 0.0));
            Value::Bool(if name == "any" { flags.any(|flag| flag) } else { flags.all(|flag| flag) })
        }
        ("eq" | "ne", &[a @ (Value::List(_) | Value::Tuple(_)), b]) => {
            Value::Bool(heap.values_equal(a, b, 0)? == (name == "eq"))
        }
        _ => return Ok(None),
    }))
}

impl Interpreter<'_> {
    pub(super) fn get_item(&mut self, base: Value, index: Value) -> Outcome<Value> {
        if base == Value::Missing {
            return Ok(Value::Missing);
        }
        if let Value::Dict(at) = base {
            return match lists::find_key(&mut self.heap, at, index)? {
                Some(place) => Ok(self.heap.dicts[at][place].1),
                None => malformed("a key is missing in a dictionary"),
            };
        }
        let (Some(items), Value::Int(index)) = (self.heap.sequence_items(base), index) else {
            return unsupported("indexing a value that is not a list");
        };
        let place = if index < 0 { index + items.len() as i64 } else { index };
        match usize::try_from(place).ok().and_then(|place| items.get(place)) {
            Some(&item) => Ok(item),
            None => malformed(format!("index {index} is out of range for a list of {} elements", items.len())),
        }
    }
}

fn eval_text(interpreter: &mut Interpreter<'_>, name: &str, given: &[Value]) -> Outcome<Option<Value>> {
    let texts: Vec<Option<Rc<str>>> = given.iter().map(|&value| interpreter.heap.text_of(value)).collect();
    let heap = &mut interpreter.heap;
    Ok(Some(match (name, given) {
        ("RaiseException", _) => {
            let message = texts.first().cloned().flatten().unwrap_or_default();
            return Err(interpreter.raise_error(&message));
        }
        ("warn" | "set_grad_enabled" | "print" | "Print" | "_assert" | "manual_seed", _) => Value::None,
        ("is_grad_enabled" | "is_autocast_enabled" | "is_autocast_cpu_enabled" | "is_scripting" | "is_tracing", _) => {
            Value::Bool(name == "is_scripting")
        }
        ("device", _) => Value::Device,
        ("type", [Value::Device]) => heap.add_text("cpu")?,
        ("unchecked_unwrap_optional" | "_unwrap_optional" | "unchecked_cast", [value]) => *value,
        ("format", [_, rest @ ..]) => {
            let text = format_text(heap, &texts[0].clone().unwrap_or_default(), rest)?;
            heap.add_text(&text)?
        }
        ("str", [value]) => {
            let text = shown_value(heap, *value);
            heap.add_text(&text)?
        }
        ("add", [Value::Text(_), Value::Text(_)]) => {
            let text: String = texts.into_iter().flatten().map(|text| text.to_string()).collect();
            heap.add_text(&text)?
        }
        ("startswith" | "endswith", [Value::Text(_), Value::Text(_)]) => {
            let (text, part) = (texts[0].clone().unwrap_or_default(), texts[1].clone().unwrap_or_default());
            Value::Bool(if name == "startswith" { text.starts_with(&*part) } else { text.ends_with(&*part) })
        }
        ("len", [Value::Text(_)]) => Value::Int(texts[0].as_ref().map_or(0, |text| text.chars().count()) as i64),
        _ => return Ok(None),
    }))
}

fn format_text(heap: &mut Heap, text: &str, values: &[Value]) -> Outcome<String> {
    let mut parts = text.split("{}");
    let mut made = parts.next().unwrap_or_default().to_owned();
    let mut values = values.iter();
    for part in parts {
        let shown = values.next().map_or_else(String::new, |value| shown_value(heap, *value));
        heap.charge_units((shown.len() + part.len()) / 16)?;
        made.push_str(&shown);
        made.push_str(part);
    }
    Ok(made)
}

fn shown_value(heap: &Heap, value: Value) -> String {
    match value {
        Value::None => "None".to_owned(),
        Value::Bool(flag) => if flag { "True" } else { "False" }.to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Text(at) => heap.texts[at].to_string(),
        Value::List(_) | Value::Tuple(_) => {
            let items = heap.sequence_items(value).unwrap_or_default();
            let shown = items.iter().take(16).map(|item| match item {
                Value::Int(number) => number.to_string(),
                _ => "…".to_owned(),
            });
            format!("[{}]", shown.collect::<Vec<_>>().join(", "))
        }
        _ => "…".to_owned(),
    }
}
