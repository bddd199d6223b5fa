//! Writes large files incrementally, compressed with gzip if the file name ends in `.gz`.

use crate::Result;
use crate::failure::Failure;
use crate::observer::Observer;
use capture::writer::sink::Written;
use datasets::output::Output;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{BufWriter, Write};

const BUFFER_BYTES: usize = 1 << 18;

/// Writes a file through `fill`, compressed if its name ends in `.gz`. The file appears at its path when complete.
pub fn write_packed<T>(output: Output, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<T>) -> Result<T> {
    let path = output.path().to_owned();
    let failed = |error| Failure::environment(datasets::Error::unwritten(&path, error));
    let is_compressed = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz"));
    let mut buffered = BufWriter::with_capacity(BUFFER_BYTES, output);
    let filled = if is_compressed {
        let mut encoder = GzEncoder::new(&mut buffered, Compression::default());
        let filled = fill(&mut encoder).map_err(failed)?;
        encoder.finish().map_err(failed)?;
        filled
    } else {
        fill(&mut buffered).map_err(failed)?
    };
    let output = buffered.into_inner().map_err(|error| failed(error.into_error()))?;
    output.keep().map_err(Failure::environment)?;
    Ok(filled)
}

/// Writes a trace through `fill`, and notes how many events were omitted because of its size limit.
pub fn write_trace(
    output: Output,
    observer: &dyn Observer,
    fill: impl FnOnce(&mut dyn Write) -> std::io::Result<Written>,
) -> Result<Written> {
    let place = output.path().display().to_string();
    let written = write_packed(output, fill)?;
    if written.left_out > 0 {
        let left_out = written.left_out;
        observer.note(format!("`{place}` reached the size limit of `--trace-mib`; {left_out} events were omitted"));
    }
    Ok(written)
}
