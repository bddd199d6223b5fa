//! Element types, dimensions and tensor types. A dimension is a number or a symbol; code for one size needs numbers,
//! which `TensorType::extents` returns. Element counts are computed with overflow checks, because shapes come from
//! untrusted files.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The type of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum DType {
    F32,
    F16,
    BF16,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
}

impl DType {
    /// Every element type, in the order of the enum.
    pub const ALL: &[DType] = &[
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::F64,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::Bool,
    ];

    /// Returns the short name in texts, records and hashes, such as `f32`.
    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F64 => "f64",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::Bool => "bool",
        }
    }

    /// Returns the element type with this short name.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.iter().copied().find(|dtype| dtype.name() == name)
    }

    /// Returns the size of one element in bytes.
    pub fn size_bytes(self) -> u64 {
        match self {
            DType::I8 | DType::U8 | DType::Bool => 1,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 2,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F64 | DType::I64 | DType::U64 => 8,
        }
    }

    /// Returns DLPack's type code and number of bits, which TVM and its RPC protocol use.
    pub fn dlpack_code(self) -> (u8, u8) {
        match self {
            DType::I8 => (0, 8),
            DType::I16 => (0, 16),
            DType::I32 => (0, 32),
            DType::I64 => (0, 64),
            DType::U8 => (1, 8),
            DType::U16 => (1, 16),
            DType::U32 => (1, 32),
            DType::U64 => (1, 64),
            DType::F16 => (2, 16),
            DType::F32 => (2, 32),
            DType::F64 => (2, 64),
            DType::BF16 => (4, 16),
            DType::Bool => (6, 8),
        }
    }

    /// Returns the smallest and largest number of an integer type of up to 32 bits.
    pub fn integer_range(self) -> Option<(i64, i64)> {
        match self {
            DType::I8 => Some((i8::MIN.into(), i8::MAX.into())),
            DType::I16 => Some((i16::MIN.into(), i16::MAX.into())),
            DType::I32 => Some((i32::MIN.into(), i32::MAX.into())),
            DType::U8 => Some((0, u8::MAX.into())),
            DType::U16 => Some((0, u16::MAX.into())),
            DType::U32 => Some((0, u32::MAX.into())),
            DType::F32 | DType::F16 | DType::BF16 | DType::F64 | DType::I64 | DType::U64 | DType::Bool => None,
        }
    }

    /// Returns whether the type is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::BF16 | DType::F64)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One dimension.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Dim {
    /// Number, at least zero.
    Known(i64),
    /// Symbolic dimension, whose number is supplied later, by name. The name is empty where a model file states none.
    Symbol(String),
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dim::Known(extent) => write!(f, "{extent}"),
            Dim::Symbol(name) if name.is_empty() => f.write_str("?"),
            Dim::Symbol(name) => f.write_str(name),
        }
    }
}

/// Element type and shape of one tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Dimensions, outermost first; empty for a scalar.
    pub shape: Vec<Dim>,
}

impl TensorType {
    /// Creates a type with known dimensions.
    pub fn new(dtype: DType, extents: &[i64]) -> TensorType {
        TensorType { dtype, shape: extents.iter().map(|&extent| Dim::Known(extent)).collect() }
    }

    /// Creates a 32-bit float type with known dimensions.
    pub fn f32(extents: &[i64]) -> TensorType {
        TensorType::new(DType::F32, extents)
    }

    /// Returns the dimensions as numbers, or None if one is a symbol.
    pub fn extents(&self) -> Option<Vec<i64>> {
        self.shape
            .iter()
            .map(|dim| match dim {
                Dim::Known(extent) => Some(*extent),
                Dim::Symbol(_) => None,
            })
            .collect()
    }

    /// Returns the number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Returns the number of elements; None if a dimension is a symbol or negative, or on overflow.
    pub fn element_count(&self) -> Option<u64> {
        self.shape.iter().try_fold(1u64, |count, dim| match dim {
            Dim::Known(extent) => count.checked_mul(u64::try_from(*extent).ok()?),
            Dim::Symbol(_) => None,
        })
    }

    /// Returns the size in bytes; None if the element count or the size is unknown or overflows.
    pub fn size_bytes(&self) -> Option<u64> {
        self.element_count()?.checked_mul(self.dtype.size_bytes())
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.dtype.name())?;
        f.write_str("[")?;
        for (index, dim) in self.shape.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "," })?;
            dim.fmt(f)?;
        }
        f.write_str("]")
    }
}

/// Error for a text that is not a tensor type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a tensor type such as `f32[1,3,224,224]`")]
pub struct NotAType(String);

impl std::str::FromStr for TensorType {
    type Err = NotAType;

    /// Parses the output of `Display`.
    fn from_str(text: &str) -> Result<TensorType, NotAType> {
        let parts = text.strip_suffix(']').and_then(|text| text.split_once('['));
        let ty = parts.and_then(|(dtype, dims)| {
            let dims = if dims.is_empty() { vec![] } else { dims.split(',').collect() };
            let shape = dims.into_iter().map(dim_from_text).collect::<Option<Vec<Dim>>>()?;
            Some(TensorType { dtype: DType::from_name(dtype)?, shape })
        });
        ty.ok_or_else(|| NotAType(text.to_owned()))
    }
}

fn dim_from_text(text: &str) -> Option<Dim> {
    if is_identifier(text) {
        return Some(Dim::Symbol(text.to_owned()));
    }
    text.parse().ok().filter(|extent| *extent >= 0).map(Dim::Known)
}

pub(crate) fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_read_what_they_write() {
        for text in ["f32[1,3,224,224]", "i8[]", "bf16[batch,0]", "bool[n_1]"] {
            assert_eq!(text.parse::<TensorType>().map(|ty| ty.to_string()).as_deref(), Ok(text));
        }
        for text in ["", "f32", "f32[", "f31[1]", "f32[1,]", "f32[-1]", "f32[1][2]", "f32[9223372036854775808]"] {
            assert!(text.parse::<TensorType>().is_err(), "{text}");
        }
    }

    #[test]
    fn dimensions_without_a_name_are_question_marks() {
        let shape = vec![Dim::Symbol(String::new()), Dim::Known(3), Dim::Symbol("n".to_owned())];
        assert_eq!(TensorType { dtype: DType::F32, shape }.to_string(), "f32[?,3,n]");
    }
}
