//! Errors of running a model in another runtime.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum RuntimeError {
    #[error("{runtime}'s library is not installed: found no `{file}` in {folders}")]
    Missing { runtime: &'static str, file: &'static str, folders: String },
    #[error("cannot use {runtime}'s library `{file}`: {why}")]
    Unusable { runtime: &'static str, file: String, why: String },
    #[error("{runtime} cannot {doing}: {why}")]
    Refused { runtime: &'static str, doing: &'static str, why: String },
    #[error("port `{name}` of the model {why}")]
    Port { name: String, why: String },
    #[error("the model's inputs have {wanted} bytes, but the input data has {found}")]
    Length { wanted: usize, found: usize },
}

pub(crate) type Result<T> = std::result::Result<T, RuntimeError>;
