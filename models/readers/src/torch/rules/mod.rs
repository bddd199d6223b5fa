//! Import rules, one per ATen operator for all its overloads, which differ only in the arguments that are present.

mod bags;
mod blocks;
pub(super) mod complex;
mod contraction;
mod create;
mod encoder;
mod index;
mod layout;
mod losses;
mod movement;
mod normalise;
mod pointwise;
mod pool;
mod quantised;
mod recurrent;
mod reduce;
mod sample;
mod scatter;
mod signal;
mod special;
mod table;
mod views;
mod window;

use super::call::{Argument, Call};
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::Op;
use std::collections::HashMap;

pub(super) use views::write_view;

pub(super) struct RuleOutput {
    pub id: ValueId,
    pub window: Memory,
}

#[derive(Clone, Copy)]
pub(super) enum Memory {
    Own,
    /// A view of every `step`-th element from `start` to `stop` of one dimension of the input, which is dropped if
    /// `is_row`.
    Range {
        axis: usize,
        start: i64,
        stop: i64,
        step: i64,
        is_row: bool,
    },
    /// A view of all elements of the input in the same order.
    Reshaped,
    /// A view with permuted dimensions: for each dimension of the view, that of the input.
    Permuted([u8; MAX_PERMUTED]),
    /// A view of a diagonal, along the last dimension of the view.
    Diagonal(Diagonal),
    /// A view whose position in the input's memory is unknown, or a result that may be such a view.
    Other,
}

impl Memory {
    /// Returns whether elements of a row-major input may lie in another order, or with gaps or an offset.
    pub fn is_part_or_permuted(&self) -> bool {
        matches!(self, Memory::Range { .. } | Memory::Permuted(_) | Memory::Diagonal(_))
    }
}

/// Maximum number of dimensions of a permuted view through which a write is propagated.
const MAX_PERMUTED: usize = 8;

/// Position of a diagonal in a tensor.
#[derive(Clone, Copy)]
pub(super) struct Diagonal {
    pub offset: i64,
    pub axes: (usize, usize),
}

const MAX_NUMBERS: i64 = 1 << 22;

/// Returns the product of extents; fails above the size limit of generated constants.
fn numbers_of(extents: &[i64]) -> Outcome<i64> {
    let count = extents.iter().try_fold(1i64, |all, &extent| all.checked_mul(extent));
    match count.filter(|count| (0..=MAX_NUMBERS).contains(count)) {
        Some(count) => Ok(count),
        None => unsupported(format!("constants of shape {extents:?} exceed the limit of {MAX_NUMBERS} elements")),
    }
}

type Outputs = Outcome<Vec<RuleOutput>>;
pub(super) type Rule = fn(&mut Call<'_, '_>) -> Outputs;

fn own_output(id: ValueId) -> Outputs {
    Ok(vec![RuleOutput { id, window: Memory::Own }])
}

/// Returns a view with the elements of its input in the same order.
fn reshaped_output(id: ValueId) -> Outputs {
    Ok(vec![RuleOutput { id, window: Memory::Reshaped }])
}

/// Returns a view whose dimensions are those of the input in this order.
fn permuted_output(call: &mut Call<'_, '_>, x: ValueId, order: &[usize]) -> Outputs {
    let id = call.emit.transpose(x, order)?;
    let mut axes = [0; MAX_PERMUTED];
    if order.len() > MAX_PERMUTED {
        return view_output(id);
    }
    axes.iter_mut().zip(order).for_each(|(axis, &of)| *axis = of as u8);
    Ok(vec![RuleOutput { id, window: Memory::Permuted(axes) }])
}

fn view_output(id: ValueId) -> Outputs {
    Ok(vec![RuleOutput { id, window: Memory::Other }])
}

/// Returns whether a target only checks or reports something, so that its node is left out.
pub(super) fn is_dropped(target: &str) -> bool {
    const DROPPED: &[&str] =
        &["aten._assert", "aten.sym_constrain", "aten._functional_assert", "higher_order._assert", "_assert"];
    DROPPED.iter().any(|start| target.starts_with(start))
}

/// Splits `aten.add_.Tensor` into operator and whether in place. Operators of other libraries keep their prefix.
pub(super) fn split_target(target: &str) -> Option<(&str, bool)> {
    const LIBRARIES: &[&str] = &["quantized_decomposed.", "torchvision.", "transformers."];
    if target.starts_with("higher_order.") {
        return Some((target, false));
    }
    if LIBRARIES.iter().any(|library| target.starts_with(library)) {
        return Some((target.rsplit_once('.').map_or(target, |(name, _)| name), false));
    }
    let rest = target.strip_prefix("aten.")?;
    let base = rest.split_once('.').map_or(rest, |(base, _)| base);
    if base.starts_with("__") {
        return Some((base.trim_matches('_'), base.starts_with("__i")));
    }
    Some(match base.strip_suffix('_') {
        Some(bare) => (bare, true),
        None => (base, false),
    })
}

/// Returns the integer that a node computes from shapes, or None for a node that computes tensors.
pub(super) fn shape_number(target: &str, arguments: &HashMap<&str, Argument>, emit: &Emit<'_>) -> Outcome<Option<i64>> {
    if target.starts_with("aten.sym_size") {
        let (Some(Argument::Tensor(x)), Some(Argument::Int(dim))) = (arguments.get("self"), arguments.get("dim"))
        else {
            return malformed("the tensor or the dimension is missing");
        };
        let axis = emit.resolve_axis(*dim, emit.rank(*x)?)?;
        return Ok(Some(emit.extents(*x)?[axis]));
    }
    if target.starts_with("aten.item.") || target.starts_with("aten._local_scalar_dense.") {
        let Some(Argument::Tensor(x)) = arguments.get("self") else { return malformed("the tensor is missing") };
        return match emit.known_numbers(*x)?.as_deref() {
            Some([number]) if number.fract() == 0.0 => Ok(Some(*number as i64)),
            Some([_]) => unsupported("a Python number that is not an integer"),
            _ => unsupported("a Python number whose value depends on input data"),
        };
    }
    if target.starts_with("aten.sym_numel") {
        let Some(Argument::Tensor(x)) = arguments.get("self") else { return malformed("the tensor is missing") };
        let count = emit.ty(*x)?.element_count().and_then(|count| i64::try_from(count).ok());
        return Ok(count);
    }
    if let Some(name) = target.strip_prefix("torch.sym_") {
        return symbolic_number(name, arguments).map(Some);
    }
    let Some(name) = target.strip_prefix("_operator.").or(target.strip_prefix("math.")) else { return Ok(None) };
    let operand = |names: [&str; 2]| match names.iter().find_map(|name| arguments.get(name)) {
        Some(Argument::Int(number)) => Ok(*number),
        Some(Argument::Bool(flag)) => Ok(i64::from(*flag)),
        _ => unsupported("an operand that is not an integer"),
    };
    let (a, b) = (operand(["a", ""])?, operand(["b", "a"])?);
    let result = match name {
        "add" => a.checked_add(b),
        "sub" => a.checked_sub(b),
        "mul" => a.checked_mul(b),
        "floordiv" => a.checked_div_euclid(b).filter(|_| b > 0),
        "mod" => a.checked_rem_euclid(b).filter(|_| b > 0),
        "neg" => a.checked_neg(),
        "pow" => u32::try_from(b).ok().and_then(|power| a.checked_pow(power)),
        "eq" => Some(i64::from(a == b)),
        "ne" => Some(i64::from(a != b)),
        "lt" => Some(i64::from(a < b)),
        "le" => Some(i64::from(a <= b)),
        "gt" => Some(i64::from(a > b)),
        "ge" => Some(i64::from(a >= b)),
        "and_" => Some(i64::from(a != 0 && b != 0)),
        "or_" => Some(i64::from(a != 0 || b != 0)),
        "not_" => Some(i64::from(a == 0)),
        _ => return Ok(None),
    };
    match result {
        Some(number) => Ok(Some(number)),
        None => malformed(format!("the operation is undefined or overflows for {a} and {b}")),
    }
}

fn symbolic_number(name: &str, arguments: &HashMap<&str, Argument>) -> Outcome<i64> {
    let number = |names: &[&str]| match names.iter().find_map(|name| arguments.get(name)) {
        Some(Argument::Int(number)) => Ok(*number),
        Some(Argument::Bool(flag)) => Ok(i64::from(*flag)),
        _ => unsupported("an operand that is not an integer"),
    };
    Ok(match name {
        "ite" if number(&["b"])? != 0 => number(&["t"])?,
        "ite" => number(&["f"])?,
        "max" => number(&["a"])?.max(number(&["b"])?),
        "min" => number(&["a"])?.min(number(&["b"])?),
        "not" => i64::from(number(&["a"])? == 0),
        "int" => number(&["a"])?,
        other => return unsupported(format!("this version has no rule for `sym_{other}`")),
    })
}

pub(super) fn find_rule(operator: &str) -> Option<Rule> {
    let found = table::RULES.binary_search_by(|(name, _)| name.cmp(&operator)).ok()?;
    Some(table::RULES[found].1)
}

/// Applies a rule. Results of operators that copy share no memory with their input, also if the rule makes a view.
pub(super) fn apply_rule(rule: Rule, call: &mut Call<'_, '_>) -> Outputs {
    let mut made = rule(call)?;
    if call.operator.ends_with("_copy") || call.operator == "diag" {
        made.iter_mut().for_each(|output| output.window = Memory::Own);
    }
    Ok(made)
}

#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    table::RULES.iter().map(|(name, _)| *name)
}

/// Returns whether a target has an import rule, computes a number, or has its own refusal reason.
pub(super) fn is_known(target: &str) -> bool {
    let has_rule = |target| {
        split_target(target).is_some_and(|(name, _)| {
            find_rule(name).is_some() || complex::find_rule(name).is_some() || refusal_reason(name).is_some()
        })
    };
    is_dropped(target) || is_number(target) || has_rule(target)
}

pub(super) fn is_number(target: &str) -> bool {
    const NUMBERS: &[&str] = &["aten.sym_size", "aten.sym_numel", "aten.item.", "aten._local_scalar_dense."];
    NUMBERS.iter().chain(&["_operator.", "math.", "torch.sym_"]).any(|start| target.starts_with(start))
}

/// Returns why an operator cannot be imported; None if it only lacks a rule.
pub(super) fn refusal_reason(operator: &str) -> Option<&'static str> {
    Some(match operator {
        "nonzero" | "unique" | "masked_select" | "unique2" | "_unique2" | "unique_consecutive" | "unique_dim"
        | "nonzero_numpy" | "argwhere" => {
            "the size of the result depends on input data; `--skip-unsupported` leaves the node out"
        }
        "higher_order.map_impl" | "higher_order.scan" => {
            "this version does not unroll this operator; unroll the loop before the export"
        }
        "higher_order.wrap_with_autocast" => {
            "the operator computes in another precision; export the model after `run_decompositions()`"
        }
        "torchvision.nms" => "the number of selected boxes depends on input data; export the network without this step",
        "rand" | "randn" | "rand_like" | "randn_like" | "randint" | "bernoulli" | "multinomial" | "randperm"
        | "normal" | "uniform" | "exponential" => "the result is random",
        _ => return None,
    })
}

fn push_output(call: &mut Call<'_, '_>, op: Op, inputs: &[ValueId]) -> Outputs {
    own_output(call.emit.push(op, inputs)?)
}

#[cfg(test)]
mod tests {
    use super::split_target;

    #[test]
    fn names_of_operators_lose_overload_and_mark() {
        assert_eq!(split_target("aten.add_.Tensor"), Some(("add", true)));
        assert_eq!(split_target("aten.__and__.Tensor"), Some(("and", false)));
        assert_eq!(split_target("aten._softmax.default"), Some(("_softmax", false)));
        assert_eq!(split_target("torchvision.nms.default"), Some(("torchvision.nms", false)));
        assert_eq!(split_target("prims.add.default"), None);
    }
}
