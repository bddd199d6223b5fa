//! Makes untrusted texts safe for terminals: control characters could move the cursor or inject input.

use std::borrow::Cow;

/// Escapes control characters, such as `\u{1b}`, except colours, line breaks and tabs.
pub fn escape_controls(text: &str) -> Cow<'_, str> {
    escape_unless(text, colour_length)
}

/// Escapes all control characters except line breaks and tabs. For texts that should contain no colours.
pub fn escape_all_controls(text: &str) -> Cow<'_, str> {
    escape_unless(text, |_| None)
}

/// Escapes control characters, except where `stays` returns a number of bytes to keep.
fn escape_unless(text: &str, stays: impl Fn(&str) -> Option<usize>) -> Cow<'_, str> {
    if !text.chars().any(is_control) {
        return Cow::Borrowed(text);
    }
    let mut tamed = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let bytes = stays(rest);
        match bytes {
            None if is_control(character) => tamed.extend(character.escape_unicode()),
            _ => tamed.push_str(&rest[..bytes.unwrap_or(character.len_utf8())]),
        }
        rest = &rest[bytes.unwrap_or(character.len_utf8())..];
    }
    Cow::Owned(tamed)
}

/// Length to which each line of an error is shortened: messages of parsers may quote lines of many megabytes.
const ERROR_LINE_CHARS: usize = 1000;
const ERROR_LINES: usize = 60;

const MAX_NOTES: usize = 20;

/// Formats notes of one kind, such as `warning`, shortened like errors. Notes beyond `MAX_NOTES` are only counted.
pub fn note_lines<Note: ToString>(kind: &str, notes: impl IntoIterator<Item = Note>) -> String {
    let mut notes = notes.into_iter();
    let mut lines: String =
        notes.by_ref().take(MAX_NOTES).map(|note| format!("{kind}: {}\n", error_text(&note.to_string()))).collect();
    match notes.count() {
        0 => {}
        left => lines.push_str(&format!("{kind}: and {left} more of this kind\n")),
    }
    lines
}

/// Formats an error for a terminal, without control characters and of bounded length.
pub fn error_text(text: &str) -> String {
    let lines = escape_all_controls(text);
    let shown = lines.lines().take(ERROR_LINES).map(|line| match line.char_indices().nth(ERROR_LINE_CHARS) {
        Some((end, _)) => Cow::Owned(format!("{}…", &line[..end])),
        None => Cow::Borrowed(line),
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// Returns whether a character controls the terminal or the text direction.
fn is_control(character: char) -> bool {
    (character.is_control() && character != '\n' && character != '\t')
        || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

/// Returns the length of a colour escape sequence at the start of a text.
fn colour_length(text: &str) -> Option<usize> {
    let numbers = text.strip_prefix("\x1b[")?;
    let end = numbers.find(|character: char| !character.is_ascii_digit() && character != ';')?;
    numbers[end..].starts_with('m').then_some("\x1b[".len() + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_colours_reach_a_terminal() {
        assert_eq!(escape_controls("a\tb\nc · µs \x1b[1;31mred\x1b[0m"), "a\tb\nc · µs \x1b[1;31mred\x1b[0m");
        assert_eq!(escape_controls("\x1b]0;title\x07x"), r"\u{1b}]0;title\u{7}x");
        assert_eq!(escape_controls("\x1b[2Jx\r\u{9b}2J\x7f"), r"\u{1b}[2Jx\u{d}\u{9b}2J\u{7f}");
        assert_eq!(escape_controls("a\u{202e}b\x1b["), r"a\u{202e}b\u{1b}[");
        assert_eq!(escape_all_controls("µ\t\x1b[31mred\n"), "µ\t\\u{1b}[31mred\n");
    }

    #[test]
    fn notes_are_few_and_short() {
        assert_eq!(note_lines("note", ["a", "b\x07"]), "note: a\nnote: b\\u{7}\n");
        assert_eq!(note_lines("note", [""; 0]), "");
        let many = note_lines("warning", vec!["x".repeat(1 << 20); 1000]);
        assert!(many.ends_with("x…\nwarning: and 980 more of this kind\n") && many.len() < 64 << 10, "{}", many.len());
    }

    #[test]
    fn errors_are_short_whatever_they_quote() {
        assert_eq!(error_text("error: a\n  at b\x07\n"), "error: a\n  at b\\u{7}");
        let long = error_text(&format!("error: it is wrong\n{}\nhint: µ\n{}", "µ".repeat(1 << 20), "x\n".repeat(1000)));
        assert!(long.contains("hint: µ") && long.len() < 4000, "{}", long.len());
    }
}
