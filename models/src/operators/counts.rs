//! Counts of operations and bytes, with helpers that several operators use.

use crate::error::{Error, Result};
use crate::types::TensorType;
use serde::{Deserialize, Serialize};

/// Operations and bytes of one operator or task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Arithmetic operations, with two per multiply-add and one per transcendental function.
    pub flops: u64,
    /// Multiply-adds of contractions.
    pub macs: u64,
    /// Number of transcendental functions, such as exponentials.
    pub exps: u64,
    /// Bytes of activations read, each tensor once; of tables, keys and values, only rows looked up or visible.
    pub bytes_in: u64,
    /// Bytes of the result.
    pub bytes_out: u64,
    /// Bytes of the constants read, counted like `bytes_in`.
    pub bytes_weights: u64,
}

impl Work {
    /// Bytes moved, of activations, results and constants.
    pub fn total_bytes(&self) -> u64 {
        self.bytes_in.saturating_add(self.bytes_out).saturating_add(self.bytes_weights)
    }

    pub(crate) fn saturating_sum(self, other: Work) -> Work {
        Work {
            flops: self.flops.saturating_add(other.flops),
            macs: self.macs.saturating_add(other.macs),
            exps: self.exps.saturating_add(other.exps),
            bytes_in: self.bytes_in.saturating_add(other.bytes_in),
            bytes_out: self.bytes_out.saturating_add(other.bytes_out),
            bytes_weights: self.bytes_weights.saturating_add(other.bytes_weights),
        }
    }
}

pub(super) fn flops_work(flops: u64) -> Work {
    Work { flops, ..Work::default() }
}

/// Counts `each` operations per element.
pub(super) fn pointwise(output: &TensorType, each: u64) -> Result<Work> {
    Ok(flops_work(elements(output)?.saturating_mul(each)))
}

pub(super) fn contraction_work(macs: u64) -> Work {
    Work { macs, ..flops_work(macs.saturating_mul(2)) }
}

/// Returns the number of elements; an error for symbolic shapes.
pub fn elements(ty: &TensorType) -> Result<u64> {
    ty.element_count().ok_or_else(|| Error::Symbolic { ty: ty.to_string(), what: "work" })
}

/// Returns the size in bytes; an error for symbolic shapes.
pub fn bytes_of(ty: &TensorType) -> Result<u64> {
    ty.size_bytes().ok_or_else(|| Error::Symbolic { ty: ty.to_string(), what: "bytes" })
}

pub(super) fn axis_extent(ty: &TensorType, axis: usize) -> Result<u64> {
    let extent = ty.extents().and_then(|extents| extents.get(axis).copied());
    let extent = extent.and_then(|extent| u64::try_from(extent).ok());
    extent.ok_or_else(|| Error::Symbolic { ty: ty.to_string(), what: "work" })
}

pub(super) fn saturating_product(extents: &[u64]) -> u64 {
    extents.iter().fold(1, |product, extent| product.saturating_mul(*extent))
}
