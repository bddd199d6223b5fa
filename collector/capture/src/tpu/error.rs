//! Why a capture cannot be read or shown at all.

use super::chip::Chip;
use std::path::PathBuf;

/// What went wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that must be there cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// An output cannot be written.
    #[error("cannot write `{}`: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The capture does not say which chip it comes from.
    #[error("`{}` has no line `arch = …`; it is not the global.profile of a TPU capture", path.display())]
    NoArch {
        /// The file.
        path: PathBuf,
    },
    /// The chip is none of those we know.
    #[error("`{}` names the chip `{name}`; known are {}", path.display(), Chip::list())]
    UnknownArch {
        /// The file.
        path: PathBuf,
        /// What it says.
        name: String,
    },
    /// A clock that no chip has.
    #[error("a TIU clock of {mhz} MHz is not possible; give one from 1 to 100000 MHz")]
    Frequency {
        /// The clock.
        mhz: f64,
    },
    /// No file with records.
    #[error("`{}` holds no record that can be read; a capture has files such as `cdmlib0_0.profile`{losses}", path.display())]
    Nothing {
        /// The folder.
        path: PathBuf,
        /// What was skipped.
        losses: String,
    },
    /// A host trace that cannot be merged.
    #[error("cannot read the host trace `{}`: {problem}", path.display())]
    HostTrace {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: String,
    },
}
