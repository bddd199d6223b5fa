//! Element types of results. TorchScript does not state them, so they are derived by PyTorch's promotion rules.

use crate::torch::call::Argument;
use crate::{Emit, Outcome, unsupported};
use models::graph::ValueId;
use models::types::DType;
use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

/// Pointwise functions that convert integers to floating point.
const FLOATING: [&str; 59] = [
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
    "copysign",
    "cos",
    "cosh",
    "deg2rad",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "ldexp",
    "linalg_vector_norm",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logaddexp2",
    "logit",
    "logsumexp",
    "mean",
    "norm",
    "rad2deg",
    "reciprocal",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinc",
    "sinh",
    "special_entr",
    "special_erf",
    "special_erfc",
    "special_exp2",
    "special_expit",
    "special_expm1",
    "special_log1p",
    "special_logit",
    "special_logsumexp",
    "special_ndtr",
    "special_sinc",
    "special_xlog1py",
    "special_xlogy",
    "sqrt",
    "tan",
    "tanh",
    "true_divide",
    "var",
    "xlogy",
];

/// Names of the arguments whose types are promoted to the result type.
const OPERANDS: [&str; 12] =
    ["self", "input", "other", "exponent", "min", "max", "end", "tensor1", "tensor2", "values", "tensors", "x1"];

/// PyTorch's type codes of complex types, in the order of the corresponding real types.
pub(super) const COMPLEX: RangeInclusive<i64> = 8..=10;

/// Returns the element type of a PyTorch type code; for a complex type, that of its real and imaginary part.
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

/// Returns the type that a program asks for by its code.
pub(super) fn requested_dtype(code: i64) -> Outcome<DType> {
    match dtype_of_code(code) {
        Some(dtype) => Ok(dtype),
        None if matches!(code, 23..=26 | 44) => unsupported("8-bit floats"),
        None => unsupported(format!("PyTorch's element type {code}")),
    }
}

pub(super) fn code_of_dtype(dtype: DType) -> i64 {
    (0..30).filter(|code| !COMPLEX.contains(code)).find(|&code| dtype_of_code(code) == Some(dtype)).unwrap_or(6)
}

/// The graph, and the constants in it that represent Python numbers.
type Known<'e, 'b> = (&'e Emit<'b>, &'e HashSet<ValueId>);

/// Returns the element type of an operator's first result. `requested` is the type that the call requests, if any.
pub(super) fn result_dtype(
    operator: &str,
    arguments: &HashMap<&str, Argument>,
    requested: Option<DType>,
    known: Known<'_, '_>,
) -> Outcome<DType> {
    if let Some(dtype) = requested {
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
        "float_power" => DType::F64,
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
        "sum" | "nansum" | "trace" | "prod" | "cumsum" | "cumprod" => {
            match promote_operands(arguments, &["self"], known)? {
                dtype if dtype.is_float() => dtype,
                _ => DType::I64,
            }
        }
        "histc" | "new_zeros" | "new_ones" | "new_full" | "new_empty" | "zeros_like" | "ones_like" | "full_like"
        | "empty_like" | "new_empty_strided" => promote_operands(arguments, &["self"], known)?,
        "div" | "divide" if matches!(arguments.get("rounding_mode"), Some(Argument::Text(_))) => {
            promote_operands(arguments, &OPERANDS, known)?
        }
        operator => match promote_operands(arguments, &OPERANDS, known)? {
            dtype if !dtype.is_float() && (FLOATING.contains(&operator) || matches!(operator, "div" | "divide")) => {
                default
            }
            dtype => dtype,
        },
    })
}

/// Ranks the kinds of types for promotion: booleans, then integers, then floating-point numbers.
fn kind_rank(dtype: DType) -> u8 {
    match dtype {
        DType::Bool => 0,
        dtype if dtype.is_float() => 2,
        _ => 1,
    }
}

/// Returns the promoted type, as in PyTorch: tensors with dimensions precede scalar tensors, and these precede numbers,
/// unless the later one has a higher kind (boolean, integer, floating point).
fn promote_operands(
    arguments: &HashMap<&str, Argument>,
    names: &[&str],
    (emit, numbers): Known<'_, '_>,
) -> Outcome<DType> {
    let mut found: [Option<DType>; 3] = [None; 3];
    let mut add = |place: usize, dtype: DType| {
        found[place] = Some(found[place].map_or(dtype, |other| join_types(other, dtype)));
    };
    for name in names {
        match arguments.get(name) {
            Some(Argument::Tensor(id)) if numbers.contains(id) => add(
                2,
                match kind_rank(emit.dtype(*id)?) {
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
    let meets = |first: DType, next: DType| if kind_rank(next) > kind_rank(first) { next } else { first };
    Ok(found.into_iter().flatten().reduce(meets).unwrap_or(DType::F32))
}

fn join_types(a: DType, b: DType) -> DType {
    let is_unsigned = |dtype: DType| matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64);
    match (kind_rank(a), kind_rank(b)) {
        _ if a == b => a,
        (x, y) if x != y => {
            if x > y {
                a
            } else {
                b
            }
        }
        (2, _) if a.size_bytes() == b.size_bytes() => DType::F32,
        (1, _) if is_unsigned(a) != is_unsigned(b) => {
            let (signed, unsigned) = if is_unsigned(a) { (b, a) } else { (a, b) };
            match unsigned.size_bytes() {
                bytes if signed.size_bytes() > bytes => signed,
                1 => DType::I16,
                2 => DType::I32,
                _ => DType::I64,
            }
        }
        _ => {
            if a.size_bytes() >= b.size_bytes() {
                a
            } else {
                b
            }
        }
    }
}
