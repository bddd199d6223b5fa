//! Counts of operations and bytes, and what counts of several operators share.

use crate::error::{Error, Result};
use crate::types::TensorType;
use serde::{Deserialize, Serialize};

/// Work of one operator or task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Arithmetic operations, with two per multiply-add and one per transcendental function.
    pub flops: u64,
    /// Multiply-adds of contractions.
    pub macs: u64,
    /// Transcendental functions.
    pub exps: u64,
    /// Bytes of the activations read, each tensor once; of a table that is looked into only what is found, of keys and
    /// values only the places that a query sees.
    pub bytes_in: u64,
    /// Bytes of the result.
    pub bytes_out: u64,
    /// Bytes of the constants read, counted alike.
    pub bytes_weights: u64,
}

impl Work {
    /// Bytes moved, of activations, results and constants.
    pub fn bytes(&self) -> u64 {
        self.bytes_in.saturating_add(self.bytes_out).saturating_add(self.bytes_weights)
    }

    /// Sums saturate: checked graphs cannot reach the end.
    pub(crate) fn plus(self, other: Work) -> Work {
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

/// Returns the work of `flops` operations.
pub(super) fn flops(flops: u64) -> Work {
    Work { flops, ..Work::default() }
}

/// Returns the work of `each` operations per element of the output.
pub(super) fn pointwise(output: &TensorType, each: u64) -> Result<Work> {
    Ok(flops(elements(output)?.saturating_mul(each)))
}

/// Returns the work of `macs` multiply-adds.
pub(super) fn contraction(macs: u64) -> Work {
    Work { macs, ..flops(macs.saturating_mul(2)) }
}

/// The number of elements.
pub fn elements(ty: &TensorType) -> Result<u64> {
    ty.elements().ok_or_else(|| Error::Symbolic { ty: ty.to_string(), what: "work" })
}

/// The number of bytes.
pub fn bytes_of(ty: &TensorType) -> Result<u64> {
    ty.bytes().ok_or_else(|| Error::Symbolic { ty: ty.to_string(), what: "bytes" })
}

pub(super) fn extent(ty: &TensorType, axis: usize) -> Result<u64> {
    let extent = ty.extents().and_then(|extents| extents.get(axis).copied());
    let extent = extent.and_then(|extent| u64::try_from(extent).ok());
    extent.ok_or_else(|| Error::Symbolic { ty: ty.to_string(), what: "work" })
}

pub(super) fn product(extents: &[u64]) -> u64 {
    extents.iter().fold(1, |product, extent| product.saturating_mul(*extent))
}
