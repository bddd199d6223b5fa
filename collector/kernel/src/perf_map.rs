//! Symbol file of generated code for `perf` and other readers of perf maps: a file in /tmp with one line per function.

use crate::tvm::network::PlacedFunction;
use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Result, Write};
use std::path::PathBuf;

/// Writes this process's symbol file, which is kept for `perf report`; `scope` returns the scope of a code's first use.
pub fn write_symbols(functions: &[PlacedFunction], scope: impl Fn(usize) -> String) -> Result<PathBuf> {
    let path = PathBuf::from(format!("/tmp/perf-{}.map", std::process::id()));
    // An existing file belongs to an ended process with the same number. The new file is only writable by this user.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = BufWriter::new(OpenOptions::new().write(true).create_new(true).open(&path)?);
    for function in functions {
        let name = format!("opcollect:{}:{}", scope(function.code), function.name);
        // A name ends at the end of the line.
        let name: String = name.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
        writeln!(file, "{:x} {:x} {name}", function.start, function.end - function.start)?;
    }
    file.flush()?;
    Ok(path)
}
