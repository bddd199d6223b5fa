//! Names of built code for `perf` and whoever else reads its maps: a file in /tmp with a line for each function.

use crate::tvm::network::PlacedFunction;
use std::fs::{self, OpenOptions};
use std::io::{BufWriter, Result, Write};
use std::path::PathBuf;

/// Writes the map of this process. `scope` says where in the model a code is called first. Whoever looks at what `perf`
/// recorded reads it later, so it stays.
pub fn write(functions: &[PlacedFunction], scope: impl Fn(usize) -> String) -> Result<PathBuf> {
    let path = PathBuf::from(format!("/tmp/perf-{}.map", std::process::id()));
    // What lies there is of a process that ended; a new file is nobody else's.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = BufWriter::new(OpenOptions::new().write(true).create_new(true).open(&path)?);
    for function in functions {
        let name = format!("opcollect:{}:{}", scope(function.code), function.name);
        // A name ends with its line.
        let name: String = name.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
        writeln!(file, "{:x} {:x} {name}", function.start, function.end - function.start)?;
    }
    file.flush()?;
    Ok(path)
}
