//! Formats the parts of a task's one-line description.

use std::fmt::{Display, Write};

pub(super) fn append_attribute(line: &mut String, key: &str, value: impl Display, is_shown: bool) {
    if is_shown {
        let _ = write!(line, " {key}={value}");
    }
}

pub(super) fn append_flag(line: &mut String, name: &str, is_set: bool) {
    if is_set {
        let _ = write!(line, " {name}");
    }
}

/// Formats numbers as a list, or as a single number if all are equal.
pub(super) fn format_list(numbers: &[i64]) -> String {
    match numbers {
        [first, rest @ ..] if rest.iter().all(|number| number == first) => first.to_string(),
        _ => join_items(numbers, "x"),
    }
}

pub fn join_items<T: Display>(items: &[T], separator: &str) -> String {
    let mut text = String::new();
    for (index, item) in items.iter().enumerate() {
        let _ = write!(text, "{}{item}", if index == 0 { "" } else { separator });
    }
    text
}
