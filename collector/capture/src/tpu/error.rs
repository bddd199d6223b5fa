//! Errors that prevent reading or showing a capture.

use super::chip::Chip;
use std::path::PathBuf;

/// Why a capture cannot be read or shown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A required file cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Read {
        path: PathBuf,
        /// Reason given by the operating system.
        source: std::io::Error,
    },
    /// An output cannot be written.
    #[error("cannot write `{}`: {source}", path.display())]
    Write {
        path: PathBuf,
        /// Reason given by the operating system.
        source: std::io::Error,
    },
    /// The capture does not name its chip.
    #[error("`{}` has no line `arch = …`; it is not the global.profile of a TPU capture", path.display())]
    NoArch { path: PathBuf },
    /// The chip is not supported.
    #[error("`{}` names the chip `{name}`; known are {}", path.display(), Chip::list())]
    UnknownArch { path: PathBuf, name: String },
    /// The clock frequency is implausible.
    #[error("a TIU clock of {mhz} MHz is not possible; give one from 1 to 100000 MHz")]
    Frequency { mhz: f64 },
    /// The capture contains no records.
    #[error("`{}` holds no record that can be read; a capture has files such as `cdmlib0_0.profile`{losses}", path.display())]
    Nothing {
        path: PathBuf,
        /// Description of skipped parts.
        losses: String,
    },
    /// The host trace cannot be merged.
    #[error("cannot read the host trace `{}`: {problem}", path.display())]
    HostTrace { path: PathBuf, problem: String },
}
