//! Errors that prevent a capture from being read or shown.

use super::chip::Chip;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Output(#[from] datasets::Error),
    #[error("cannot write into `{}`: `{}` is not a folder", folder.display(), file.display())]
    NoFolder { folder: PathBuf, file: PathBuf },
    #[error("`{}` has no line `arch = …`; it is not the global.profile of a TPU capture", path.display())]
    NoArch { path: PathBuf },
    #[error("`{}` names the unknown chip `{name}`; known chips: {}", path.display(), Chip::chip_names())]
    UnknownArch { path: PathBuf, name: String },
    #[error("the TIU clock is {mhz} MHz, but must be 1 to 100000 MHz")]
    Frequency { mhz: f64 },
    #[error(
        "`{}` contains no readable record; a capture has files such as `cdmlib0_0.profile`{losses}",
        path.display()
    )]
    Nothing { path: PathBuf, losses: String },
    #[error("cannot read the host trace `{}`: {problem}", path.display())]
    HostTrace { path: PathBuf, problem: String },
}
