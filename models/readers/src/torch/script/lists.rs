//! Methods of lists, tuples and dictionaries of an interpreted program.

use super::heap::{Heap, Value, number_of};
use crate::{Outcome, malformed, unsupported};

const MAX_ITEMS: i64 = 1 << 20;

pub(super) fn range_length(start: i64, end: i64, step: i64) -> Outcome<i64> {
    let length = match step {
        0 => return malformed("the step of a range is 0"),
        step if step > 0 => (i128::from(end) - i128::from(start) + i128::from(step) - 1).div_euclid(step.into()),
        step => (i128::from(start) - i128::from(end) - i128::from(step) - 1).div_euclid(-i128::from(step)),
    };
    match i64::try_from(length.max(0)) {
        Ok(length) if length <= MAX_ITEMS => Ok(length),
        _ => unsupported(format!("a loop of {length} iterations; at most {MAX_ITEMS} are supported")),
    }
}

pub(super) fn range_list(heap: &mut Heap, given: &[Value]) -> Outcome<Value> {
    let (start, end, step) = match *given {
        [Value::Int(end)] => (0, end, 1),
        [Value::Int(start), Value::Int(end)] => (start, end, 1),
        [Value::Int(start), Value::Int(end), Value::Int(step)] => (start, end, step),
        _ => return unsupported("a loop whose number of iterations depends on input data"),
    };
    let length = range_length(start, end, step)?;
    heap.charge_units(length as usize)?;
    heap.add_list((0..length).map(|index| Value::Int(start + index * step)).collect())
}

pub(super) fn repeat_list(heap: &mut Heap, list: Value, count: i64) -> Outcome<Value> {
    let items = heap.sequence_items(list).unwrap_or_default().to_vec();
    let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
    let length = items.len().checked_mul(count).filter(|length| *length <= MAX_ITEMS as usize);
    let Some(length) = length else { return unsupported("a list that is too long") };
    heap.charge_units(length)?;
    heap.add_list(items.repeat(count))
}

/// Resolves a position, which counts from the end if negative, and clamps it to the length.
fn bounded_position(value: Option<&Value>, default: i64, length: i64) -> Outcome<i64> {
    match value {
        None | Some(Value::None) => Ok(default),
        Some(&Value::Int(at)) if at < 0 => Ok(at.saturating_add(length).max(0)),
        Some(&Value::Int(at)) => Ok(at.min(length)),
        _ => malformed("a bound of a list slice is not an integer"),
    }
}

pub(super) fn slice_list(heap: &mut Heap, list: Value, rest: &[Value]) -> Outcome<Value> {
    let items = heap.sequence_items(list).unwrap_or_default();
    let length = items.len() as i64;
    let (start, end) = (bounded_position(rest.first(), 0, length)?, bounded_position(rest.get(1), length, length)?);
    let step = match rest.get(2) {
        None | Some(Value::None) => 1,
        Some(&Value::Int(step)) if step > 0 => step,
        _ => return unsupported("a list slice with a negative step"),
    };
    let items = (start..end).step_by(step as usize).map(|at| items[at as usize]).collect();
    match list {
        Value::Tuple(_) => heap.add_tuple(items),
        _ => heap.add_list(items),
    }
}

pub(super) fn change_list(heap: &mut Heap, name: &str, at: usize, rest: &[Value]) -> Outcome<Value> {
    heap.charge_units(2)?;
    let added = match (name, rest) {
        ("extend", &[list]) => heap.sequence_items(list).unwrap_or_default().to_vec(),
        _ => Vec::new(),
    };
    heap.charge_units(added.len())?;
    let items = &mut heap.sequences[at].items;
    let length = items.len() as i64;
    let place = |index: i64| usize::try_from(if index < 0 { index + length } else { index }).unwrap_or(usize::MAX);
    match (name, rest) {
        ("append", &[value]) => items.push(value),
        ("extend", [_]) => items.extend(added),
        ("insert", &[Value::Int(index), value]) => items.insert(place(index).min(items.len()), value),
        ("pop", rest) => {
            let index = if let Some(&Value::Int(index)) = rest.first() { place(index) } else { place(-1) };
            if index >= items.len() {
                return malformed("a list index is out of range");
            }
            return Ok(items.remove(index));
        }
        ("clear", []) => items.clear(),
        ("reverse", []) => items.reverse(),
        _ => return malformed("an unknown operation on a list"),
    }
    Ok(Value::None)
}

pub(super) fn set_item(heap: &mut Heap, container: Value, key: Value, value: Value) -> Outcome<()> {
    match (container, key) {
        (Value::List(at), Value::Int(index)) => {
            let items = &mut heap.sequences[at].items;
            let index = if index < 0 { index + items.len() as i64 } else { index };
            match usize::try_from(index).ok().and_then(|index| items.get_mut(index)) {
                Some(item) => *item = value,
                None => return malformed("a list index is out of range"),
            }
        }
        (Value::Dict(at), key) => match find_key(heap, at, key)? {
            Some(place) => heap.dicts[at][place].1 = value,
            None => {
                heap.charge_units(2)?;
                heap.dicts[at].push((key, value));
            }
        },
        _ => return malformed("setting an element of a value that is neither a list nor a dictionary"),
    }
    Ok(())
}

pub(super) fn find_key(heap: &mut Heap, dict: usize, key: Value) -> Outcome<Option<usize>> {
    for place in 0..heap.dicts[dict].len() {
        let known = heap.dicts[dict][place].0;
        if heap.values_equal(known, key, 0)? {
            return Ok(Some(place));
        }
    }
    Ok(None)
}

pub(super) fn contains_key(heap: &mut Heap, container: Value, key: Value) -> Outcome<bool> {
    if let Value::Dict(at) = container {
        return Ok(find_key(heap, at, key)?.is_some());
    }
    if let (Some(text), Some(part)) = (heap.text_of(container), heap.text_of(key)) {
        return Ok(text.contains(&*part));
    }
    for place in 0..heap.sequence_items(container).map_or(0, <[Value]>::len) {
        let item = heap.sequence_items(container).unwrap_or_default()[place];
        if heap.values_equal(item, key, 0)? {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn eval_list(name: &str, items: &[Value]) -> Outcome<Value> {
    let Some(numbers) = items.iter().map(|&item| number_of(item)).collect::<Option<Vec<f64>>>() else {
        return unsupported(format!("`{name}` of a list with elements other than numbers"));
    };
    let found = match name {
        "sum" => numbers.iter().sum(),
        "max" => numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        _ => numbers.iter().copied().fold(f64::INFINITY, f64::min),
    };
    Ok(if items.iter().any(|item| matches!(item, Value::Float(_))) {
        Value::Float(found)
    } else {
        Value::Int(found as i64)
    })
}
