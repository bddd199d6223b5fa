//! Errors of this crate, with messages for the user who supplied the model.

use thiserror::Error;

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Rejection of a graph, a task or a text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// An operator does not fit the tensors it was given.
    #[error("`{op}` does not fit its inputs ({inputs}): {reason}")]
    Infer {
        /// Name of the operator.
        op: &'static str,
        /// Types of the inputs.
        inputs: String,
        /// Reason.
        reason: String,
    },
    /// A graph breaks one of its rules.
    #[error("graph `{graph}`, {place}: {reason}")]
    Graph {
        /// Name of the graph.
        graph: String,
        /// The node or value.
        place: String,
        /// Reason.
        reason: String,
    },
    /// A pass failed, or left a graph that breaks a rule.
    #[error("pass `{pass}` failed")]
    Pass {
        /// Name of the pass.
        pass: &'static str,
        /// Cause.
        #[source]
        source: Box<Error>,
    },
    /// A task breaks one of its rules.
    #[error("task `{task}`: {reason}")]
    Task {
        /// Name of the task.
        task: String,
        /// Reason.
        reason: String,
    },
    /// No model has that name.
    #[error("unknown model `{name}`; {hint}")]
    UnknownModel {
        /// Requested name.
        name: String,
        /// Suggestion of the nearest existing names.
        hint: String,
    },
    /// A model cannot have the requested size.
    #[error("model `{model}`: {reason}")]
    Model {
        /// Name of the model.
        model: String,
        /// Reason.
        reason: String,
    },
    /// The text of a graph does not parse.
    #[error("graph text, line {line}: {reason}")]
    Text {
        /// Line, from 1.
        line: usize,
        /// Reason.
        reason: String,
    },
    /// The text of a simple operator does not parse.
    #[error("simple operator `{text}`: {reason}")]
    Simple {
        /// The text.
        text: String,
        /// Reason.
        reason: String,
    },
    /// A tensor does not fit its type or its use.
    #[error("tensor {ty}: {reason}")]
    Tensor {
        /// Type of the tensor.
        ty: String,
        /// Reason.
        reason: String,
    },
    /// A file cannot be read at all.
    #[error("cannot read `{file}`: {reason}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why the file cannot be read.
        reason: String,
    },
    /// A model file breaks the rules of its format.
    #[error("`{file}`{}: {reason}", after_comma(.place))]
    Malformed {
        /// The file.
        file: String,
        /// The node, tensor or input; empty if the reason concerns the whole file.
        place: String,
        /// Reason.
        reason: String,
    },
    /// A valid model file contains a feature that this version cannot represent.
    #[error("`{file}`{}: not supported: {reason}", after_comma(.place))]
    Unsupported {
        /// The file.
        file: String,
        /// The node with its operator, the tensor or the input; empty if the reason concerns the whole file.
        place: String,
        /// Missing feature.
        reason: String,
    },
    /// A count was requested for a shape with symbolic dimensions.
    #[error("`{ty}` has a symbolic dimension, so {what} cannot be counted; bind its symbols first")]
    Symbolic {
        /// The type.
        ty: String,
        /// The requested count, such as `bytes`.
        what: &'static str,
    },
}

fn after_comma(place: &str) -> String {
    if place.is_empty() { String::new() } else { format!(", {place}") }
}
