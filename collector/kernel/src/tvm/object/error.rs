//! Why an object could not be loaded.

use std::io;
use std::path::PathBuf;

/// Why an object could not be loaded. Each message names the part of the object that is to blame.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The bytes are larger than any kernel.
    #[error("{what} is {size} bytes, more than the limit of {limit}")]
    TooLarge {
        what: &'static str,
        size: u64,
        /// The largest accepted size.
        limit: u64,
    },
    /// The bytes are no consistent ELF file.
    #[error("malformed object file: {what}")]
    Malformed { what: String },
    /// The object is for a machine whose relocations are not known here.
    #[error(
        "object files for {machine} are not supported by the in-memory loader on this machine; \
         use the shared-library route"
    )]
    UnsupportedMachine {
        /// The machine the object was compiled for.
        machine: String,
    },
    /// The object uses a part of ELF that kernels do without.
    #[error("{what} is not supported by the in-memory loader; use the shared-library route")]
    Unsupported {
        /// The part, with the section or symbol that uses it.
        what: String,
    },
    /// The object has code that would run on loading, before any call. Generated code never has, so every loader refuses it.
    #[error("the object has code that runs on loading ({what}), which no generated code has; it is not loaded")]
    RunsOnLoading {
        /// The section or symbol that would run code.
        what: String,
    },
    /// A relocation of an unknown type.
    #[error(
        "relocation type {kind} in section `{section}` at offset {offset:#x} is not supported by the in-memory \
         loader; use the shared-library route"
    )]
    UnsupportedRelocation {
        section: String,
        offset: u64,
        /// The number of the type in the x86-64 ABI.
        kind: u32,
    },
    /// A value does not fit into the field that a relocation patches.
    #[error(
        "symbol `{symbol}` is out of reach of the 32-bit field in section `{section}` at offset {offset:#x}; compile \
         position-independent code, or use the shared-library route"
    )]
    OutOfReach {
        section: String,
        offset: u64,
        /// The symbol that is too far away.
        symbol: String,
    },
    /// The object needs a symbol that no library in this process has.
    #[error("no library in this process defines `{name}`, which the object needs; open the TVM runtime before loading")]
    UnresolvedSymbol { name: String },
    /// The object does not define the function asked for.
    #[error("the object defines no function `{symbol}`")]
    MissingFunction {
        /// The symbol that was looked for.
        symbol: String,
    },
    /// The system refused memory for the code.
    #[error("cannot map {size} bytes for the object's code: {source}")]
    Map {
        /// How much was asked for.
        size: usize,
        /// The system's reason.
        source: io::Error,
    },
    /// The linker could not be started, or its files could not be written.
    #[error("cannot link the object in `{}`: {source}; install binutils (`ld`) if it is missing", path.display())]
    LinkerUnavailable {
        /// The file or program that was touched.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The linker refused the object.
    #[error("`ld -shared` failed ({status}): {message}")]
    LinkerFailed { status: String, message: String },
    /// The linked library could not be opened.
    #[error("cannot open the linked library: {message}")]
    Open {
        /// The dynamic loader's reason.
        message: String,
    },
}

impl LoadError {
    /// Whether the same object may load through [`super::load_through_linker`].
    pub fn linker_may_help(&self) -> bool {
        matches!(
            self,
            Self::UnsupportedMachine { .. }
                | Self::Unsupported { .. }
                | Self::UnsupportedRelocation { .. }
                | Self::OutOfReach { .. }
        )
    }

    /// A malformed file, with the reader's reason.
    pub(super) fn malformed(what: impl Into<String>) -> Self {
        Self::Malformed { what: what.into() }
    }
}

impl From<object::read::Error> for LoadError {
    fn from(error: object::read::Error) -> Self {
        Self::malformed(error.to_string())
    }
}
