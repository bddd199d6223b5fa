//! Imports that the operator files share.

pub(super) use super::counts::{
    Work, axis_extent, bytes_of, contraction_work, elements, flops_work, pointwise, saturating_product,
};
pub(super) use super::declaration::{Class, Facts, Operator};
pub(super) use super::line::{append_attribute, append_flag, format_list, join_items};
pub(super) use crate::error::Result;
pub(super) use crate::shapes::{
    Rule, accumulator_type, along_all, ascending_axes, axis_index, axis_of, broadcast_shapes, check_normalised,
    check_numeric, check_vectors, count_from_front, element_count, extent_along, finite_positive, floating, is_number,
    known_extent, known_product, numbers_from, numeric, remove_axes, same_dtype,
};
pub(super) use crate::types::{DType, Dim, TensorType};
pub(super) use serde::{Deserialize, Serialize};
