//! Titles of nights.

/// Returns the date and the time of a night, or an empty date and the end of a label that is not a point in time.
pub(super) fn shorten_label(label: &str) -> [String; 2] {
    let characters: Vec<char> = label.chars().collect();
    let text = |from: usize, to: usize| characters[from..to].iter().collect::<String>();
    // Pattern `20261122-213000`, optionally followed by a host.
    if characters.len() >= 15 && characters.iter().position(|sign| *sign == '-') == Some(8) {
        let date = format!("{}-{}-{}", text(0, 4), text(4, 6), text(6, 8));
        return [date, format!("{}:{}", text(9, 11), text(11, 13))];
    }
    [String::new(), text(characters.len().saturating_sub(10), characters.len())]
}

/// Returns the date and the time of a night as words, or its label if that is no point in time.
pub fn night_title(label: &str) -> String {
    match shorten_label(label) {
        [date, _] if date.is_empty() => label.to_owned(),
        [date, clock] => {
            let host = label.get(15..).unwrap_or_default();
            format!("{date} {clock}{host}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short() {
        let cases = [
            ("20261122-213000", ["2026-11-22", "21:30"]),
            ("20261122-213000 host-9", ["2026-11-22", "21:30"]),
            ("2026-11-22", ["", "2026-11-22"]),
            ("é", ["", "é"]),
        ];
        assert_eq!(
            ["20261122-213000", "20261122-213000 host-9", "2026-11-22"].map(night_title),
            ["2026-11-22 21:30", "2026-11-22 21:30 host-9", "2026-11-22"]
        );
        cases.iter().for_each(|(label, expected)| assert_eq!(shorten_label(label), *expected));
    }
}
