//! Large files that are written piece by piece, and packed where their name says so.

use super::Result;
use datasets::output::Output;
use engine::failure::Failure;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{BufWriter, Write};

/// What is written at once.
const PIECE: usize = 1 << 18;

/// Writes a file through `fill`, packed if its name ends in `.gz`, and brings it to its place.
pub fn write<T>(output: Output, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<T>) -> Result<T> {
    let place = output.path().to_owned();
    let failed = |error| Failure::environment(format!("cannot write `{}`: {error}", place.display()));
    let is_packed = place.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz"));
    let mut buffered = BufWriter::with_capacity(PIECE, output);
    let told = if is_packed {
        let mut packing = GzEncoder::new(&mut buffered, Compression::default());
        let told = fill(&mut packing).map_err(failed)?;
        packing.finish().map_err(failed)?;
        told
    } else {
        fill(&mut buffered).map_err(failed)?
    };
    let output = buffered.into_inner().map_err(|error| failed(error.into_error()))?;
    output.keep().map_err(Failure::environment)?;
    Ok(told)
}
