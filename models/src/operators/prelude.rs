//! What the files of operators import.

pub(super) use super::counts::{Work, bytes_of, contraction, elements, extent, flops, pointwise, product};
pub(super) use super::declaration::{Class, Facts, Operator};
pub(super) use super::line::{attribute, flag, join, list};
pub(super) use crate::error::Result;
pub(super) use crate::shapes::{
    Rule, accumulator, along, along_all, ascending, axis_of, broadcast, element_count, finite_positive, floating,
    front, index, is_number, known, normalised, numbers_from, numeric, same_dtype, span, vectors, without,
};
pub(super) use crate::types::{DType, Dim, TensorType};
pub(super) use serde::{Deserialize, Serialize};
