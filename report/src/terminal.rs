//! Prints results, JSON documents and notes. If the reader of standard output is closed, as with `head`, the rest of
//! the output is dropped without an error.
#![allow(clippy::print_stderr)]

use crate::paper::Paper;
use crate::untrusted::{note_lines, tame};
use serde::Serialize;
use std::io::{self, ErrorKind, IsTerminal, Write};

/// Returns the medium of standard output.
pub fn paper() -> Paper {
    Paper::of(&io::stdout(), |name| std::env::var_os(name))
}

/// Prints a result and a line break. On a terminal, control characters from file names are replaced.
pub fn print(text: &str) -> io::Result<()> {
    let is_terminal = io::stdout().is_terminal();
    let text = if is_terminal { tame(text) } else { text.into() };
    write_line(&mut io::stdout().lock(), &text)
}

/// Prints one JSON document on one line.
pub fn print_json(value: &impl Serialize) -> io::Result<()> {
    print(&serde_json::to_string(value)?)
}

/// Prints notes of one kind, such as `note` or `warning`, on standard error.
pub fn print_notes<Note: ToString>(kind: &str, notes: impl IntoIterator<Item = Note>) {
    eprint!("{}", note_lines(kind, notes));
}

fn write_line(out: &mut impl Write, text: &str) -> io::Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing(ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_a_closed_pipe_is_an_ordinary_end() {
        let mut written = Vec::new();
        write_line(&mut written, "a\x07").expect("memory takes it");
        assert_eq!(written, b"a\x07\n");
        assert!(write_line(&mut Failing(ErrorKind::BrokenPipe), "a").is_ok());
        assert!(write_line(&mut Failing(ErrorKind::StorageFull), "a").is_err());
    }
}
