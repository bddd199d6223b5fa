//! Replaces groups of small operators by the larger operator that they express. Each recogniser replaces the last node
//! of its pattern; operators that are unused then are dropped by the last pass.

mod activation;
mod attention;
mod contraction;
mod masks;
mod normalisation;
#[cfg(test)]
mod tests;

pub(super) use activation::{drop_softmax_guard, recognise_activations};
pub(super) use attention::recognise_attention;
pub(super) use contraction::{absorb_pads, global_pools, mat_mul_to_dense, sums_to_biases};
pub(super) use masks::masks_unexpanded;
pub(super) use normalisation::{absorb_scales, absorb_shifts, recognise_normalisations};

use super::rebuild::Rebuild;
use super::rewrite::{Part, Replacement, rewrite_nodes};
use crate::lookup::{GraphLookup, is_close};
use crate::pattern::Pattern;
