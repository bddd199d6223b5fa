//! Names and types of the arguments of ATen operators. TorchScript passes arguments by position; import rules
//! read them by name.
//! `signatures.txt` has one line per overload: the operator, then its arguments in order. An argument is a name, a
//! type, and `=` if it is optional; arguments after a lone `*` are keyword-only. Types are tensor `T`, number `N`,
//! integer `I`, float `F`, boolean `B`, string `S`, device `D`, generator `G`, and the lists `T*` of tensors, `O*` of
//! optional tensors, `I*` of integers and `F*` of floats. `I+` and `F+` are lists for which one number may be given;
//! `?` allows `None`. A line ends with `->*` if the result is a list, and with `->2` if there are two results.

use super::heap::{Heap, Value, is_tensor, number_of};
use crate::torch::call::Argument;

const SIGNATURES: &str = include_str!("signatures.txt");

#[derive(Clone, Copy, Debug)]
pub(super) struct Formal {
    pub name: &'static str,
    ty: &'static str,
    is_optional: bool,
    is_named: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Returns {
    Tensor,
    Tuple(usize),
    List,
}

#[derive(Debug)]
pub(super) struct Signature {
    formals: Vec<Formal>,
    pub returns: Returns,
}

pub(super) struct Assigned<'s> {
    pub signature: &'s Signature,
    pub arguments: Vec<(&'s Formal, Value)>,
}

/// Returns the overloads of an operator in the order in which they are tried.
pub(super) fn operator_signatures(operator: &str) -> Vec<Signature> {
    let of_operator = |line: &&'static str| line.split(' ').next() == Some(operator);
    SIGNATURES.lines().filter(of_operator).map(parse_signature).collect()
}

fn parse_signature(line: &'static str) -> Signature {
    let mut is_named = false;
    let (mut formals, mut returns) = (Vec::new(), Returns::Tensor);
    for word in line.split(' ').skip(1) {
        if let Some(count) = word.strip_prefix("->") {
            returns = count.parse().map_or(Returns::List, Returns::Tuple);
            continue;
        }
        let Some((name, ty)) = word.split_once(':') else {
            is_named = true;
            continue;
        };
        formals.push(Formal { name, ty: ty.trim_end_matches('='), is_optional: ty.ends_with('='), is_named });
    }
    Signature { formals, returns }
}

/// Assigns the arguments of a call to the first overload that matches, or returns None.
pub(super) fn assign_arguments<'s>(
    signatures: &'s [Signature],
    given: &[Value],
    keywords: &[(&str, Value)],
    heap: &Heap,
) -> Option<Assigned<'s>> {
    signatures.iter().find_map(|signature| assign_to(signature, given, keywords, heap))
}

fn assign_to<'s>(
    signature: &'s Signature,
    given: &[Value],
    keywords: &[(&str, Value)],
    heap: &Heap,
) -> Option<Assigned<'s>> {
    let formals = &signature.formals;
    let by_place = formals.iter().filter(|formal| !formal.is_named).count();
    if given.len() > by_place {
        return None;
    }
    let mut assigned: Vec<(&Formal, Value)> = formals.iter().zip(given.iter().copied()).collect();
    for &(name, value) in keywords {
        let formal = formals[given.len()..].iter().find(|formal| formal.name == name)?;
        assigned.push((formal, value));
    }
    let is_missing =
        |formal: &Formal| !formal.is_optional && !assigned.iter().any(|(assigned, _)| assigned.name == formal.name);
    let all_fit = assigned.iter().all(|(formal, value)| fits_type(formal.ty, *value, heap));
    (all_fit && !formals.iter().any(is_missing)).then_some(Assigned { signature, arguments: assigned })
}

fn fits_type(ty: &str, value: Value, heap: &Heap) -> bool {
    if value == Value::Missing {
        return true;
    }
    let (ty, is_optional) = match ty.strip_suffix('?') {
        Some(ty) => (ty, true),
        None => (ty, false),
    };
    if value == Value::None {
        return is_optional || matches!(ty, "D" | "G");
    }
    if let Some(list) = ty.strip_suffix(['*', '+']) {
        return match heap.sequence_items(value) {
            Some(items) => items.iter().all(|&item| match list {
                "O" => item == Value::None || fits_type("T", item, heap),
                list => fits_type(list, item, heap),
            }),
            None => ty.ends_with('+') && fits_type(list, value, heap),
        };
    }
    match ty {
        "T" => is_tensor(value),
        "N" => matches!(value, Value::Int(_) | Value::Float(_) | Value::Bool(_)),
        "I" => matches!(value, Value::Int(_)),
        "F" => matches!(value, Value::Float(_) | Value::Int(_)),
        "B" => matches!(value, Value::Bool(_)),
        "S" => matches!(value, Value::Text(_)),
        _ => value == Value::Device,
    }
}

/// Converts a value to an argument of an import rule; `tensor` converts tensors.
pub(super) fn convert_argument<E>(
    formal: &Formal,
    value: Value,
    heap: &Heap,
    tensor: &mut impl FnMut(Value) -> Result<models::ValueId, E>,
) -> Result<Argument, E> {
    Ok(match value {
        // Types and devices of results are inferred elsewhere.
        _ if matches!(formal.name, "dtype" | "out_dtype" | "layout" | "device" | "memory_format") => Argument::Ignored,
        Value::Int(number) => Argument::Int(number),
        Value::Float(number) => Argument::Float(number),
        Value::Bool(flag) => Argument::Bool(flag),
        Value::Text(at) => Argument::Text(heap.texts[at].to_string()),
        value if is_tensor(value) => Argument::Tensor(tensor(value)?),
        Value::List(_) | Value::Tuple(_) => {
            let items = heap.sequence_items(value).unwrap_or_default();
            match formal.ty.trim_end_matches(['?', '*', '+']) {
                "I" => Argument::Ints(items.iter().map(|&item| integer_of(item)).collect()),
                "F" => Argument::Floats(items.iter().filter_map(|&item| number_of(item)).collect()),
                _ => {
                    let each = items.iter().map(|&item| match item {
                        Value::None => Ok(None),
                        item => tensor(item).map(Some),
                    });
                    Argument::Tensors(each.collect::<Result<_, E>>()?)
                }
            }
        }
        _ => Argument::None,
    })
}

fn integer_of(value: Value) -> i64 {
    if let Value::Int(number) = value { number } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torch::rules;

    #[test]
    fn every_rule_has_a_signature() {
        const OTHERS: &[&str] = &["transformers.", "higher_order.", "quantized_decomposed."];
        let is_other = |name: &&str| OTHERS.iter().any(|library| name.starts_with(library));
        let missing: Vec<&str> =
            rules::names().filter(|name| !is_other(name) && operator_signatures(name).is_empty()).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn arguments_choose_the_overload() {
        let mut heap = Heap::new(0);
        let axes = heap.add_list(vec![Value::Int(1)]).unwrap();
        let names = |given: &[Value], keywords: &[(&str, Value)], heap: &Heap| -> Vec<&str> {
            let all = operator_signatures("sum");
            assign_arguments(&all, given, keywords, heap)
                .unwrap()
                .arguments
                .iter()
                .map(|(formal, _)| formal.name)
                .collect()
        };
        let x = Value::Tensor(0);
        assert_eq!(names(&[x], &[("dtype", Value::None)], &heap), ["self", "dtype"]);
        assert_eq!(names(&[x, axes, Value::Bool(true)], &[], &heap), ["self", "dim", "keepdim"]);
        let all = operator_signatures("add");
        let added = assign_arguments(&all, &[x, Value::Float(1.0), Value::Int(1)], &[], &heap);
        let names: Vec<&str> = added.unwrap().arguments.iter().map(|(formal, _)| formal.name).collect();
        assert_eq!(names, ["self", "other", "alpha"]);
        assert!(assign_arguments(&all, &[x, axes], &[], &heap).is_none());
    }
}
