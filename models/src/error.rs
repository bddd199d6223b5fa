//! Errors of this crate, with messages for the user who supplied the model.

use thiserror::Error;

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Rejection of a graph, a task or a text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum Error {
    /// An operator does not fit its input tensors.
    #[error("`{op}` does not fit its inputs ({inputs}): {reason}")]
    Infer { op: &'static str, inputs: String, reason: String },
    /// A graph is invalid.
    #[error("graph `{graph}`, {place}: {reason}")]
    Graph { graph: String, place: String, reason: String },
    /// A pass failed or produced an invalid graph.
    #[error("pass `{pass}` failed")]
    Pass {
        pass: &'static str,
        #[source]
        source: Box<Error>,
    },
    /// A task is invalid.
    #[error("task `{task}`: {reason}")]
    Task { task: String, reason: String },
    /// The model name is unknown.
    #[error("unknown model `{name}`; {hint}")]
    UnknownModel { name: String, hint: String },
    /// A model cannot have the requested size.
    #[error("model `{model}`: {reason}")]
    Model { model: String, reason: String },
    /// The text of a graph does not parse.
    #[error("graph text, line {line}: {reason}")]
    Text { line: usize, reason: String },
    /// The text of a simple operator does not parse.
    #[error("simple operator `{text}`: {reason}")]
    Simple { text: String, reason: String },
    /// A tensor does not fit its type or its use.
    #[error("tensor {ty}: {reason}")]
    Tensor { ty: String, reason: String },
    /// A file cannot be opened or read.
    #[error("cannot read `{file}`: {reason}")]
    Unreadable { file: String, reason: String },
    /// A model file is malformed.
    #[error("`{file}`{}: {reason}", after_comma(.place))]
    Malformed {
        file: String,
        /// The node, tensor or input; empty if the reason concerns the whole file.
        place: String,
        reason: String,
    },
    /// A valid model file contains a feature that this version cannot represent.
    #[error("`{file}`{}: not supported: {reason}", after_comma(.place))]
    Unsupported {
        file: String,
        /// The node with its operator, the tensor or the input; empty if the reason concerns the whole file.
        place: String,
        reason: String,
    },
    /// A count was requested for a shape with symbolic dimensions.
    #[error("`{ty}` has a symbolic dimension, so {what} cannot be counted; bind its symbols first")]
    Symbolic { ty: String, what: &'static str },
}

fn after_comma(place: &str) -> String {
    if place.is_empty() { String::new() } else { format!(", {place}") }
}
