//! Output files of a capture, which are written atomically.

use super::{Error, Result};
use datasets::output::Output;
use std::io::BufWriter;
use std::path::Path;

const BUFFER_BYTES: usize = 1 << 16;

/// Writes a file with the content that `fill` produces, and creates its folder if necessary.
pub fn write_file(path: &Path, fill: impl FnOnce(&mut BufWriter<Output>) -> std::io::Result<()>) -> Result<()> {
    let failed = |source| Error::Output(datasets::Error::unwritten(path, source));
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory).map_err(failed)?;
    let output = Output::create(path)?;
    let mut writer = BufWriter::with_capacity(BUFFER_BYTES, output);
    fill(&mut writer).map_err(failed)?;
    let output = writer.into_inner().map_err(|error| failed(error.into_error()))?;
    Ok(output.keep()?)
}
