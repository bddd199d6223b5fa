//! Reasons why an object cannot be loaded.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("{what} is {size} bytes, more than the limit of {limit}")]
    TooLarge { what: &'static str, size: u64, limit: u64 },
    #[error("malformed object file: {what}")]
    Malformed { what: String },
    #[error(
        "object files for {machine} are not supported by the in-memory loader on this machine; \
         the system's linker may load them"
    )]
    UnsupportedMachine { machine: String },
    #[error("{what} is not supported by the in-memory loader; the system's linker may load it")]
    Unsupported {
        /// Description of the unsupported part, with its section or symbol.
        what: String,
    },
    #[error("the object would run code when it is loaded ({what}), which generated code never does; it is rejected")]
    RunsOnLoading {
        /// The section or symbol that contains this code.
        what: String,
    },
    #[error(
        "relocation type {kind} in section `{section}` at offset {offset:#x} is not supported by the in-memory \
         loader; the system's linker may load it"
    )]
    UnsupportedRelocation {
        section: String,
        offset: u64,
        /// Number of the relocation type in the x86-64 ABI.
        kind: u32,
    },
    #[error(
        "symbol `{symbol}` is out of reach of the 32-bit field in section `{section}` at offset {offset:#x}; compile \
         position-independent code, or load it through the system's linker"
    )]
    OutOfReach { section: String, offset: u64, symbol: String },
    #[error("no library in this process defines `{name}`, which the object needs; open the TVM runtime before loading")]
    UnresolvedSymbol { name: String },
    #[error("the object defines no function `{symbol}`")]
    MissingFunction { symbol: String },
    #[error("cannot map {size} bytes for the object's code: {source}")]
    Map { size: usize, source: io::Error },
    #[error("cannot link the object in `{}`: {source}; install binutils (`ld`) if it is missing", path.display())]
    LinkerUnavailable { path: PathBuf, source: io::Error },
    #[error("`ld -shared` failed ({status}): {message}")]
    LinkerFailed { status: String, message: String },
    #[error("cannot open the linked library: {message}")]
    Open { message: String },
}

impl LoadError {
    /// Returns whether the same object may be loadable through [`super::load_through_linker`].
    pub fn linker_may_help(&self) -> bool {
        matches!(
            self,
            Self::UnsupportedMachine { .. }
                | Self::Unsupported { .. }
                | Self::UnsupportedRelocation { .. }
                | Self::OutOfReach { .. }
        )
    }

    pub(super) fn malformed_file(what: impl Into<String>) -> Self {
        Self::Malformed { what: what.into() }
    }
}

impl From<object::read::Error> for LoadError {
    fn from(error: object::read::Error) -> Self {
        Self::malformed_file(error.to_string())
    }
}
