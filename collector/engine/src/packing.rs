//! Large files that are written piece by piece, and packed where their name says so.

use crate::Result;
use crate::failure::Failure;
use crate::observer::Observer;
use capture::writer::sink::Written;
use datasets::output::Output;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{BufWriter, Write};

/// Size of the pieces in which files are written, in bytes.
const BUFFER_BYTES: usize = 1 << 18;

/// Writes a file through `fill`, packed with gzip if its name ends in `.gz`, and brings it to its place.
pub fn write<T>(output: Output, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<T>) -> Result<T> {
    let place = output.path().to_owned();
    let failed = |error| Failure::environment(format!("cannot write `{}`: {error}", place.display()));
    let is_packed = place.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz"));
    let mut buffered = BufWriter::with_capacity(BUFFER_BYTES, output);
    let answer = if is_packed {
        let mut packing = GzEncoder::new(&mut buffered, Compression::default());
        let answer = fill(&mut packing).map_err(failed)?;
        packing.finish().map_err(failed)?;
        answer
    } else {
        fill(&mut buffered).map_err(failed)?
    };
    let output = buffered.into_inner().map_err(|error| failed(error.into_error()))?;
    output.keep().map_err(Failure::environment)?;
    Ok(answer)
}

/// Writes a trace likewise, and notes how many events were left out because the trace has its largest size.
pub fn write_trace(
    output: Output,
    observer: &dyn Observer,
    fill: impl FnOnce(&mut dyn Write) -> std::io::Result<Written>,
) -> Result<Written> {
    let place = output.path().display().to_string();
    let written = write(output, fill)?;
    if written.left_out > 0 {
        let left_out = written.left_out;
        observer.note(format!("`{place}` is as long as `--trace-mib` allows; {left_out} events are left out"));
    }
    Ok(written)
}
