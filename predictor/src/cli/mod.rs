//! The command line: the only room that prints.
//!
//! Results go to standard output, notes to standard error; with `--json` the last line of standard output is one JSON
//! document. Exit codes: 0 done, 2 bad use or input, 3 the environment cannot do it.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod eval;

use crate::error::Result;
use arguments::{Arguments, Command};
use clap::Parser;
use std::process::ExitCode;

/// Runs the program.
pub fn run() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Eval(eval) => eval::run(&eval),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(if error.is_of_environment() { 3 } else { 2 })
        }
    }
}

/// Prints a result; a reader that has gone (`| head`) is no error.
fn print(text: &str) -> Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(crate::error::Error::io("write to", std::path::Path::new("standard output"), error))
        }
        _ => Ok(()),
    }
}

/// A table without walls.
fn new_table() -> comfy_table::Table {
    use comfy_table::{LineStyle, Table, TableStyle};
    const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));
    let mut table = Table::new();
    table.load_style(STYLE);
    table
}
