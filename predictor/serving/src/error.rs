//! What can go wrong between a kernel's text and its time.

/// What can go wrong.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// A kernel's text is wrong.
    #[error("cannot read kernel `{text}`: {problem}")]
    Text {
        /// The text as given.
        text: String,
        /// What is wrong, with the nearest name where a name is wrong.
        problem: String,
    },
    /// No device has the name.
    #[error("{0}")]
    Device(String),
    /// The device does not multiply numbers of this type.
    #[error("{device} has no peak rate for {dtype}; it multiplies {known}")]
    NoPeak {
        /// The device.
        device: String,
        /// The type of the products.
        dtype: &'static str,
        /// Types that the device multiplies.
        known: String,
    },
    /// No model has the name, or its configuration cannot be used.
    #[error("cannot use model `{model}`: {problem}")]
    Model {
        /// The model as asked for.
        model: String,
        /// What is wrong, with the nearest name where the name is wrong.
        problem: String,
    },
    /// A model cannot be divided among GPUs as asked.
    #[error("cannot divide model `{model}`: {problem}")]
    Parallelism {
        /// The model.
        model: String,
        /// What does not fit, with sizes that do.
        problem: String,
    },
    /// A table or a learned file cannot be used.
    #[error("{0}")]
    Data(String),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
