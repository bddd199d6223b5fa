//! Sentences.

/// Writes a line of the terminal as a sentence: with an initial capital and a full stop.
pub fn to_sentence(line: &str) -> String {
    let mut letters = line.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::to_sentence;

    #[test]
    fn sentences_start_with_a_capital_and_end_with_a_full_stop() {
        assert_eq!(
            ["none changed", "ß; 3 lines", "3 lines"].map(to_sentence),
            ["None changed.", "SS; 3 lines.", "3 lines."]
        );
    }
}
