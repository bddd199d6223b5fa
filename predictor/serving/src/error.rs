//! Errors of kernel texts, devices, models and learned files.

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("cannot read kernel `{text}`: {problem}")]
    Text {
        text: String,
        /// What is wrong, with the nearest known name if a name is unknown.
        problem: String,
    },
    #[error("{0}")]
    Device(String),
    #[error("{device} does not support {dtype} products; supported: {known}")]
    NoPeak { device: String, dtype: &'static str, known: String },
    #[error("cannot use model `{model}`: {problem}")]
    Model {
        model: String,
        /// What is wrong, with the nearest known name if a name is unknown.
        problem: String,
    },
    #[error("cannot divide model `{model}`: {problem}")]
    Parallelism {
        model: String,
        /// Why the model cannot be divided among these numbers of GPUs.
        problem: String,
    },
    #[error("{0}")]
    Data(String),
}

pub type Result<T> = std::result::Result<T, Error>;
