//! Finds operators that a file spells out in smaller ones.
//!
//! Each recogniser looks at one node, taken as the last of its pattern, and says what computes the same from values
//! further up. The operators in between are left alone; those that nothing else reads are dead then and dropped at the end.

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
use crate::look::{Look, is_close};
use crate::pattern::Pattern;
