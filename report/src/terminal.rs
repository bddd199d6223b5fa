//! Prints to standard output and standard error: results, JSON documents, notes and errors. If the reader of a stream
//! has closed it, as `head` does, that is not an error: the rest of the output is discarded.

use crate::activity;
use crate::advice;
use crate::paper::{ColorChoice, Paper};
use crate::untrusted::{error_text, escape_controls, note_lines};
use anstyle::{AnsiColor, Style};
use serde::Serialize;
use std::ffi::OsString;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::OnceLock;

static COLOURS: OnceLock<ColorChoice> = OnceLock::new();

/// Removes and applies `--color WHEN`, unless it follows `--`. Returns the other arguments and the choice.
pub fn take_color_flag(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<(Vec<OsString>, ColorChoice), &'static str> {
    const PROBLEM: &str = "use `--color auto`, `--color always` or `--color never`";
    let mut arguments = arguments.into_iter();
    let (mut others, mut choice) = (Vec::new(), ColorChoice::Auto);
    while let Some(argument) = arguments.next() {
        let text = argument.to_str();
        let value = match text {
            Some("--") => {
                others.push(argument);
                others.extend(arguments);
                break;
            }
            Some("--color") => Some(arguments.next().and_then(|value| value.into_string().ok()).unwrap_or_default()),
            _ => text.and_then(|text| text.strip_prefix("--color=")).map(str::to_owned),
        };
        match value {
            Some(value) => choice = ColorChoice::from_name(&value).ok_or(PROBLEM)?,
            None => others.push(argument),
        }
    }
    let choice = *COLOURS.get_or_init(|| choice);
    Ok((others, choice))
}

fn colour_choice() -> ColorChoice {
    COLOURS.get().copied().unwrap_or_default()
}

/// Returns the medium of standard output.
pub fn stdout_paper() -> Paper {
    Paper::for_stream(&io::stdout(), colour_choice(), |name| std::env::var_os(name))
}

/// Prints a text and a line end. On a terminal, control characters are replaced, because files may contain them.
pub fn print_result(text: &str) -> io::Result<()> {
    let is_terminal = io::stdout().is_terminal();
    let text = if is_terminal { escape_controls(text) } else { text.into() };
    activity::clear_line();
    write_line(&mut io::stdout().lock(), &text)
}

/// Prints one JSON document on one line.
pub fn print_json(value: &impl Serialize) -> io::Result<()> {
    print_result(&serde_json::to_string(value)?)
}

/// Prints notes of one kind, such as `note` or `warning`, on standard error.
pub fn print_notes<Note: ToString>(kind: &str, notes: impl IntoIterator<Item = Note>) {
    print_errors(&note_lines(kind, notes));
}

/// Prints an error with its hint on standard error, without control characters and of bounded length.
pub fn print_error(text: &str) {
    print_errors(&format!("{}\n", error_text(&with_advice(text))));
}

fn with_advice(text: &str) -> String {
    advice::error_hint(text).map_or_else(|| text.to_owned(), |hint| format!("{text}\nhint: {hint}"))
}

/// Prints a hint for a printed command-line error, unless the error already has one.
pub fn print_usage_advice(text: &str) {
    advice::usage_hint(text).iter().for_each(|hint| print_errors(&format!("hint: {hint}\n")));
}

/// Prints a line of progress on standard error.
pub fn print_progress(line: &str) {
    activity::clear_line();
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Prints lines on standard error; a leading word such as `error:` is coloured.
fn print_errors(lines: &str) {
    let paper = Paper::for_stream(&io::stderr(), colour_choice(), |name| std::env::var_os(name));
    let lines =
        if paper.has_colours { lines.split_inclusive('\n').map(colour_line).collect() } else { lines.to_owned() };
    activity::clear_line();
    // If standard error is closed, the error cannot be reported.
    let _ = io::stderr().lock().write_all(lines.as_bytes());
}

fn colour_line(line: &str) -> String {
    let bold = |colour: AnsiColor| Style::new().bold().fg_color(Some(colour.into()));
    let styles = [
        ("error:", bold(AnsiColor::Red)),
        ("warning:", bold(AnsiColor::Yellow)),
        ("hint:", Style::new().fg_color(Some(AnsiColor::Green.into()))),
        ("note:", Style::new().bold()),
    ];
    let found = styles.iter().find_map(|(word, style)| line.strip_prefix(word).map(|rest| (word, style, rest)));
    found.map_or_else(|| line.to_owned(), |(word, style, rest)| format!("{style}{word}{style:#}{rest}"))
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
    fn the_color_flag_is_removed_at_any_position() {
        let take = |words: &[&str]| take_color_flag(words.iter().map(OsString::from));
        let others = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(
            take(&["p", "--color", "never", "list", "--", "--color"]),
            Ok((others(&["p", "list", "--", "--color"]), ColorChoice::Never))
        );
        assert_eq!(take(&["p", "list", "--color=never"]).expect("a choice").0, others(&["p", "list"]));
        assert!(take(&["p", "--color"]).is_err() && take(&["p", "--color=red"]).is_err());
    }

    #[test]
    fn leading_words_are_coloured() {
        assert_eq!(colour_line("error: a\n"), "\x1b[1m\x1b[31merror:\x1b[0m a\n");
        assert_eq!(colour_line("  at b\n"), "  at b\n");
    }

    #[test]
    fn only_a_closed_pipe_is_ignored() {
        let mut written = Vec::new();
        write_line(&mut written, "a\x07").expect("memory takes it");
        assert_eq!(written, b"a\x07\n");
        assert!(write_line(&mut Failing(ErrorKind::BrokenPipe), "a").is_ok());
        assert!(write_line(&mut Failing(ErrorKind::StorageFull), "a").is_err());
    }
}
