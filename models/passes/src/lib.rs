//! Graph passes, which run in the order of [`PASSES`]. A pass takes a checked graph and builds a new one through the
//! builder, which checks it, or none if nothing changes. So no pass can leave a type that disagrees with its operator.

#![forbid(unsafe_code)]

pub mod batch;
mod common;
mod constants;
mod dead;
pub mod fold;
mod fold_batch_norm;
mod identities;
mod layout;
mod lookup;
pub mod partition;
mod parts;
pub mod pattern;
pub mod quantise;
mod quantised;
mod rebuild;
mod recognise;
mod rewrite;
mod sign;
mod split_attention;
mod taps;
#[cfg(test)]
mod tests;

pub use dead::drop_dead_code;
pub use split_attention::split_attention;

use models::error::{Error, Result};
use models::graph::Graph;
use std::borrow::Cow;

/// A pass may return None instead of an unchanged graph.
pub type Pass = fn(&Graph) -> Result<Option<Graph>>;

pub const PASSES: &[(&str, Pass)] = &[
    ("fold constants", constants::fold_constants),
    ("drop identities", identities::drop_identities),
    ("move pads after transposes", layout::pads_after_transposes),
    ("convert to channels first", layout::channels_first),
    ("recognise attention", recognise::recognise_attention),
    ("remove mask repetition", recognise::masks_unexpanded),
    ("drop softmax guard", recognise::drop_softmax_guard),
    ("recognise normalisations", recognise::recognise_normalisations),
    ("absorb scales", recognise::absorb_scales),
    ("absorb shifts", recognise::absorb_shifts),
    ("recognise activations", recognise::recognise_activations),
    ("replace matrix products by dense layers", recognise::mat_mul_to_dense),
    ("replace sums by biases", recognise::sums_to_biases),
    ("move scales past data movement", quantised::slide_movement),
    ("absorb pads", recognise::absorb_pads),
    ("replace scaled floats by integers", quantised::recognise_integer_layers),
    ("drop clips", quantised::drop_clips),
    ("merge pads into integer convolutions", quantised::merge_pads),
    ("drop outer taps", taps::drop_outer_taps),
    ("convert unsigned bytes to signed", sign::bytes_with_a_sign),
    ("replace means by global pools", recognise::global_pools),
    ("fold batch norm", fold_batch_norm::fold_batch_norm),
    ("share common subexpressions", common::share_common_subexpressions),
    ("replace repeated slices by look-ups", parts::slices_to_look_ups),
    ("join many tensors in groups", parts::join_in_groups),
    ("drop new identities", identities::drop_identities),
    ("drop dead code", drop_dead_code),
];

pub fn simplify_graph(graph: &Graph) -> Result<Graph> {
    graph.check_default()?;
    let mut graph = Cow::Borrowed(graph);
    for (name, pass) in PASSES {
        if let Some(after) = pass(&graph).map_err(|source| Error::Pass { pass: name, source: Box::new(source) })? {
            graph = Cow::Owned(after);
        }
    }
    Ok(graph.into_owned())
}
