//! Element types of results. TorchScript does not state them, so they follow from PyTorch's rules of promotion.

use crate::torch::call::Argument;
use crate::{Emit, Outcome};
use models::graph::ValueId;
use models::types::DType;
use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

/// Functions of elements that make floating-point numbers of integers.
const FLOATING: [&str; 41] = [
    "acos",
    "acosh",
    "angle",
    "arccos",
    "arcsin",
    "arctan",
    "arctan2",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "linalg_vector_norm",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logit",
    "logsumexp",
    "mean",
    "norm",
    "reciprocal",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinh",
    "special_erf",
    "special_expit",
    "sqrt",
    "tan",
    "tanh",
    "true_divide",
    "var",
];

/// Arguments whose types meet in the type of a result.
const OPERANDS: [&str; 12] =
    ["self", "input", "other", "exponent", "min", "max", "end", "tensor1", "tensor2", "values", "tensors", "x1"];

/// PyTorch's numbers of complex types, in the order of those of their parts.
pub(super) const COMPLEX: RangeInclusive<i64> = 8..=10;

/// The element type of PyTorch's number for it; that of the parts of a complex type.
pub(super) fn dtype_of_code(code: i64) -> Option<DType> {
    Some(match code {
        0 => DType::U8,
        1 => DType::I8,
        2 => DType::I16,
        3 => DType::I32,
        4 => DType::I64,
        5 | 8 => DType::F16,
        6 | 9 => DType::F32,
        7 | 10 => DType::F64,
        11 => DType::Bool,
        15 => DType::BF16,
        27 => DType::U16,
        28 => DType::U32,
        29 => DType::U64,
        _ => return None,
    })
}

/// PyTorch's number of an element type.
pub(super) fn code_of_dtype(dtype: DType) -> i64 {
    (0..30).filter(|code| !COMPLEX.contains(code)).find(|&code| dtype_of_code(code) == Some(dtype)).unwrap_or(6)
}

/// The graph, and its constants that stand for numbers of Python.
type Known<'e, 'b> = (&'e Emit<'b>, &'e HashSet<ValueId>);

/// Returns the element type of an operator's first result. `asked` is the type that the call asks for.
pub(super) fn result(
    operator: &str,
    arguments: &HashMap<&str, Argument>,
    asked: Option<DType>,
    known: Known<'_, '_>,
) -> Outcome<DType> {
    if let Some(dtype) = asked {
        return Ok(dtype);
    }
    let is_integer = |name: &str| matches!(arguments.get(name), None | Some(Argument::Int(_) | Argument::Bool(_)));
    let default = DType::F32;
    Ok(match operator {
        "arange" if ["start", "end", "step"].iter().all(|name| is_integer(name)) => DType::I64,
        "full" => match arguments.get("fill_value") {
            Some(Argument::Bool(_)) => DType::Bool,
            Some(Argument::Int(_)) => DType::I64,
            _ => default,
        },
        "arange" | "zeros" | "ones" | "empty" | "empty_strided" | "empty_permuted" | "linspace" | "eye"
        | "scalar_tensor" | "hann_window" | "hamming_window" | "blackman_window" => default,
        "tril_indices" | "triu_indices" => DType::I64,
        "bucketize" | "searchsorted" => match arguments.get("out_int32") {
            Some(Argument::Bool(true)) => DType::I32,
            _ => DType::I64,
        },
        "to" | "type_as" | "copy" => match (arguments.get("other"), arguments.get("self")) {
            (Some(Argument::Tensor(id)), _) | (_, Some(Argument::Tensor(id))) => known.0.dtype(*id)?,
            _ => default,
        },
        "sum" | "prod" | "cumsum" | "cumprod" => match promoted(arguments, &["self"], known)? {
            dtype if dtype.is_float() => dtype,
            _ => DType::I64,
        },
        "histc" | "new_zeros" | "new_ones" | "new_full" | "new_empty" | "zeros_like" | "ones_like" | "full_like"
        | "empty_like" | "new_empty_strided" => promoted(arguments, &["self"], known)?,
        "div" | "divide" if matches!(arguments.get("rounding_mode"), Some(Argument::Text(_))) => {
            promoted(arguments, &OPERANDS, known)?
        }
        operator => match promoted(arguments, &OPERANDS, known)? {
            dtype if !dtype.is_float() && (FLOATING.contains(&operator) || matches!(operator, "div" | "divide")) => {
                default
            }
            dtype => dtype,
        },
    })
}

/// The order of the kinds of types: flags, integers, floating-point numbers.
fn kind(dtype: DType) -> u8 {
    match dtype {
        DType::Bool => 0,
        dtype if dtype.is_float() => 2,
        _ => 1,
    }
}

/// The type in which operands meet. Tensors with dimensions count before those without, and these before numbers, unless a later
/// one is of a higher kind.
fn promoted(arguments: &HashMap<&str, Argument>, names: &[&str], (emit, numbers): Known<'_, '_>) -> Outcome<DType> {
    let mut found: [Option<DType>; 3] = [None; 3];
    let mut add = |place: usize, dtype: DType| {
        found[place] = Some(found[place].map_or(dtype, |other| joined(other, dtype)));
    };
    for name in names {
        match arguments.get(name) {
            Some(Argument::Tensor(id)) if numbers.contains(id) => add(
                2,
                match kind(emit.dtype(*id)?) {
                    0 => DType::Bool,
                    1 => DType::I64,
                    _ => DType::F32,
                },
            ),
            Some(Argument::Tensor(id)) => add(usize::from(emit.rank(*id)? == 0), emit.dtype(*id)?),
            Some(Argument::Tensors(ids)) => {
                for id in ids.iter().flatten() {
                    add(usize::from(emit.rank(*id)? == 0), emit.dtype(*id)?);
                }
            }
            Some(Argument::Int(_)) => add(2, DType::I64),
            Some(Argument::Float(_)) => add(2, DType::F32),
            Some(Argument::Bool(_)) => add(2, DType::Bool),
            _ => {}
        }
    }
    let meets = |first: DType, next: DType| if kind(next) > kind(first) { next } else { first };
    Ok(found.into_iter().flatten().reduce(meets).unwrap_or(DType::F32))
}

/// The smallest type that holds the numbers of both.
fn joined(a: DType, b: DType) -> DType {
    let is_unsigned = |dtype: DType| matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64);
    match (kind(a), kind(b)) {
        _ if a == b => a,
        (x, y) if x != y => {
            if x > y {
                a
            } else {
                b
            }
        }
        (2, _) if a.bytes() == b.bytes() => DType::F32,
        (1, _) if is_unsigned(a) != is_unsigned(b) => {
            let (signed, unsigned) = if is_unsigned(a) { (b, a) } else { (a, b) };
            match unsigned.bytes() {
                bytes if signed.bytes() > bytes => signed,
                1 => DType::I16,
                2 => DType::I32,
                _ => DType::I64,
            }
        }
        _ => {
            if a.bytes() >= b.bytes() {
                a
            } else {
                b
            }
        }
    }
}
