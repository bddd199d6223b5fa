//! What can go wrong between a kernel's text and its time.

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("cannot read kernel `{text}`: {problem}")]
    Text {
        text: String,
        /// Includes the nearest name for an unknown one.
        problem: String,
    },
    #[error("{0}")]
    Device(String),
    /// The device does not support this type.
    #[error("{device} has no peak rate for {dtype}; it multiplies {known}")]
    NoPeak { device: String, dtype: &'static str, known: String },
    /// Unknown model, or unusable configuration.
    #[error("cannot use model `{model}`: {problem}")]
    Model {
        model: String,
        /// Includes the nearest name for an unknown one.
        problem: String,
    },
    /// A model cannot be divided among GPUs this way.
    #[error("cannot divide model `{model}`: {problem}")]
    Parallelism {
        model: String,
        /// Includes sizes that fit.
        problem: String,
    },
    /// Unusable table or learned file.
    #[error("{0}")]
    Data(String),
}

pub type Result<T> = std::result::Result<T, Error>;
