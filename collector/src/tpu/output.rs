//! Files that appear whole or not at all: written beside their place and renamed into it.

use super::{Error, Result};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Size of the pieces in which files are written.
const BUFFER_BYTES: usize = 1 << 16;

/// Writes a file through `fill`.
pub fn write(path: &Path, fill: impl FnOnce(&mut BufWriter<std::fs::File>) -> std::io::Result<()>) -> Result<()> {
    let failed = |source| Error::Write { path: path.to_owned(), source };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory).map_err(failed)?;
    // The mode of an ordinary new file; the process's mask still applies.
    let mode = std::fs::Permissions::from_mode(0o666);
    let temporary =
        tempfile::Builder::new().prefix(".part-").permissions(mode).tempfile_in(directory).map_err(failed)?;
    let (file, temporary) = temporary.into_parts();
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, file);
    fill(&mut writer).and_then(|()| writer.flush()).map_err(failed)?;
    temporary.persist(path).map_err(|error| failed(error.error))
}
