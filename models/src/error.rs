//! Errors of this crate, with messages for the user who supplied the model.

use crate::names;
use thiserror::Error;

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error that rejects a graph, a task, a text or a model file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum Error {
    #[error("`{op}` does not fit its inputs ({inputs}): {reason}")]
    Infer { op: &'static str, inputs: String, reason: String },
    #[error("graph `{graph}`, {place}: {reason}")]
    Graph { graph: String, place: String, reason: String },
    #[error("pass `{pass}` failed")]
    Pass {
        pass: &'static str,
        #[source]
        source: Box<Error>,
    },
    #[error("task `{task}`: {reason}")]
    Task { task: String, reason: String },
    #[error("unknown model `{name}`; {hint}")]
    UnknownModel { name: String, hint: String },
    #[error("model `{model}`: {reason}")]
    Model { model: String, reason: String },
    #[error("graph text, line {line}: {reason}")]
    Text { line: usize, reason: String },
    #[error("simple operator `{text}`: {reason}")]
    Simple { text: String, reason: String },
    #[error("tensor {ty}: {reason}")]
    Tensor { ty: String, reason: String },
    #[error("cannot read `{file}`: {reason}")]
    Unreadable { file: String, reason: String },
    #[error("`{file}`{}: {reason}", after_comma(.place))]
    Malformed {
        file: String,
        /// Name of the node, tensor or input at fault; empty if the reason concerns the whole file.
        place: String,
        reason: String,
    },
    /// A valid model file contains a feature that this version cannot represent.
    #[error("`{file}`{}: not supported: {reason}", after_comma(.place))]
    Unsupported {
        file: String,
        /// Name of the node (with its operator), tensor or input; empty if the reason concerns the whole file.
        place: String,
        reason: String,
    },
    #[error("`{ty}` has a symbolic dimension, so {what} cannot be counted; bind its symbols first")]
    Symbolic { ty: String, what: &'static str },
}

impl Error {
    /// Creates the error for a name that no model has. A path without a file is an unreadable file.
    pub fn unknown_model(name: &str, hint: String) -> Error {
        match names::missing_file(name, &hint) {
            Some(reason) => Error::Unreadable { file: name.to_owned(), reason },
            None => Error::UnknownModel { name: name.to_owned(), hint },
        }
    }
}

fn after_comma(place: &str) -> String {
    if place.is_empty() { String::new() } else { format!(", {place}") }
}
