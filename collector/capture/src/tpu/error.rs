//! Errors that prevent reading or showing a capture.

use super::chip::Chip;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot write `{}`: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("`{}` has no line `arch = …`; it is not the global.profile of a TPU capture", path.display())]
    NoArch { path: PathBuf },
    #[error("`{}` names the chip `{name}`; known are {}", path.display(), Chip::chip_names())]
    UnknownArch { path: PathBuf, name: String },
    #[error("a TIU clock of {mhz} MHz is not possible; give one from 1 to 100000 MHz")]
    Frequency { mhz: f64 },
    #[error("`{}` holds no record that can be read; a capture has files such as `cdmlib0_0.profile`{losses}", path.display())]
    Nothing { path: PathBuf, losses: String },
    #[error("cannot read the host trace `{}`: {problem}", path.display())]
    HostTrace { path: PathBuf, problem: String },
}
