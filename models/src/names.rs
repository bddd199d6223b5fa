//! Look-up of names that users type: ignores case and separators, and suggests the nearest names after a mistake. All
//! programs use it, so that every unknown name gets the same error: `did you mean …?`, or the known names.

use std::collections::BTreeSet;
use std::path::Path;

const MAX_SUGGESTIONS: usize = 3;
/// Maximum length of a compared name. Longer names are truncated to bound the time of the nearest-name search.
const MAX_NAME_CHARS: usize = 64;
const MAX_LISTED_NAMES: usize = 256;
/// Beginning of a suggestion of the nearest names.
const SUGGESTION: &str = "did you mean";

/// Returns the index of the entry with this name or alias, ignoring case, `-`, `_` and `.`; or an error with a hint.
pub fn find_name<'a>(
    name: &str,
    entries: impl Iterator<Item = (&'a str, &'a [&'a str])> + Clone,
) -> Result<usize, String> {
    let wanted = normalise_name(name);
    let is_wanted = |(name, aliases): (&str, &[&str])| {
        name_spellings(name, aliases).any(|spelling| normalise_name(spelling) == wanted)
    };
    let list_hint = || "`opcollect list` shows all names".to_owned();
    entries
        .clone()
        .position(is_wanted)
        .ok_or_else(|| did_you_mean(&nearest_names(&wanted, entries)).unwrap_or_else(list_hint))
}

/// Lists a name and its aliases.
pub fn name_spellings<'a>(name: &'a str, aliases: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    std::iter::once(name).chain(aliases.iter().copied())
}

/// Reduces a name to its lower-case ASCII letters and digits, truncated to the maximum length.
pub fn normalise_name(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).take(MAX_NAME_CHARS).collect()
}

/// Suggests the nearest known names. Without a near one, lists all known names, or their number if there are many.
pub fn name_hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let mut seen = BTreeSet::new();
    let known: Vec<&str> = known.into_iter().filter(|name| seen.insert(*name)).collect();
    let all = || match known.len() {
        0 => "there are no known names".to_owned(),
        1..=MAX_LISTED_NAMES => format!("known: {}", quote_names(&known).join(", ")),
        more => format!("none of the {more} known names is similar"),
    };
    suggest_nearest(name, known.iter().copied()).unwrap_or_else(all)
}

/// Suggests the nearest known names, or returns None if none is near.
pub fn suggest_nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    did_you_mean(&nearest_names(&normalise_name(name), known.into_iter().map(|name| (name, [].as_slice()))))
}

/// Returns the problem with an unknown name that is written like a path, with a `/` or the ending `.json`, if there is no
/// such file or folder. `hint` is the hint for the unknown name.
pub fn missing_file(name: &str, hint: &str) -> Option<String> {
    let is_path = name.contains('/') || name.to_ascii_lowercase().ends_with(".json");
    // A misspelt `owner/model` of a published model looks like a path, so a suggestion is kept.
    let suggestion = if hint.starts_with(SUGGESTION) { format!("; {hint}") } else { String::new() };
    (is_path && !Path::new(name).exists()).then(|| format!("no such file{suggestion}"))
}

/// Finds a device by its name in any spelling, or by words that only this device's name contains, such as `T4`.
pub fn resolve_device<'a>(known: impl IntoIterator<Item = &'a str>, name: &str) -> Result<&'a str, String> {
    let known: Vec<&str> = known.into_iter().collect();
    if let Some(exact) = known.iter().find(|device| **device == name) {
        return Ok(exact);
    }
    let is_spelled = |device: &&&str| !name.is_empty() && normalise_name(device) == normalise_name(name);
    if let Some(spelled) = known.iter().find(is_spelled) {
        return Ok(spelled);
    }
    let words = name_words(name);
    let has_words = |device: &&str| !words.is_empty() && words.iter().all(|word| name_words(device).contains(word));
    match known.iter().copied().filter(has_words).collect::<Vec<_>>()[..] {
        [only] => Ok(only),
        [] => Err(format!("unknown device `{name}`; {}", name_hint(name, known))),
        ref several => Err(format!(
            "`{name}` matches several devices: {}; give one of these names",
            quote_names(several).join(", ")
        )),
    }
}

/// Returns the words of a name in lower case.
pub fn name_words(name: &str) -> Vec<String> {
    let words = name.split(|sign: char| !sign.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

/// Appends to a parser's error for an unknown name the nearest of the names that the error lists, as a suggestion.
pub fn with_hint(message: &str) -> String {
    let suggestion = || {
        let after = ["unknown field `", "unknown variant `"].iter().find_map(|start| message.split_once(start))?.1;
        let (name, rest) = after.split_once('`')?;
        let expected = rest.split_once("expected")?.1;
        let known = expected.split('`').skip(1).step_by(2);
        suggest_nearest(name, known)
    };
    suggestion().map_or_else(|| message.to_owned(), |question| format!("{}; {question}", message.trim_end()))
}

fn nearest_names<'a>(wanted: &str, entries: impl Iterator<Item = (&'a str, &'a [&'a str])>) -> Vec<&'a str> {
    let mut near: Vec<(usize, &str)> = entries
        .filter_map(|(name, aliases)| {
            let distance = |spelling: &str| strsim::damerau_levenshtein(wanted, &normalise_name(spelling));
            let distance = name_spellings(name, aliases).map(distance).min()?;
            (distance <= 1 + wanted.len() / 4).then_some((distance, name))
        })
        .collect();
    near.sort();
    near.dedup();
    near.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name).collect()
}

fn did_you_mean(near: &[&str]) -> Option<String> {
    let names = quote_names(near);
    match names.as_slice() {
        [] => None,
        [only] => Some(format!("{SUGGESTION} {only}?")),
        [first @ .., last] => Some(format!("{SUGGESTION} {} or {last}?", first.join(", "))),
    }
}

fn quote_names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("`{name}`")).collect()
}

/// Truncates a text to 80 characters for a message.
pub fn shorten_text(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    let shown: String = text.chars().take(MAX_CHARS).collect();
    if shown.len() == text.len() { shown } else { shown + "…" }
}

/// Returns whether a character is safe to print: no control character, and no change of the text direction.
pub fn is_printable(c: char) -> bool {
    c.is_ascii_graphic() || c.escape_debug().count() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_names_are_offered() {
        let known = ["n_layer", "n_head", "n_embd", "vocab_size"];
        assert_eq!(name_hint("n_layers", known), "did you mean `n_layer`?");
        assert_eq!(name_hint("nlayer", known), "did you mean `n_layer`?");
        assert_eq!(name_hint("vcoab_size", known), "did you mean `vocab_size`?");
        assert_eq!(name_hint("banana", known), "known: `n_layer`, `n_head`, `n_embd`, `vocab_size`");
        assert_eq!(name_hint("banana", []), "there are no known names");
        assert_eq!(name_hint("tile_z", ["tile_x", "tile_y"]), "did you mean `tile_x` or `tile_y`?");
        let many: Vec<String> = (0..300).map(|number| format!("counter_{number}_of_many")).collect();
        assert_eq!(name_hint("ö", many.iter().map(String::as_str)), "none of the 300 known names is similar");
    }

    #[test]
    fn paths_without_a_file_are_named_as_such() {
        for name in ["absent.json", "absent.JSON", "absent/model", "./absent"] {
            assert_eq!(
                missing_file(name, "`opcollect list` shows all names").as_deref(),
                Some("no such file"),
                "{name}"
            );
        }
        let hint = "did you mean `llama-3.1-70b`?";
        let expected = format!("no such file; {hint}");
        assert_eq!(missing_file("meta-llama/Llama-3.1-71B", hint), Some(expected));
        for name in ["resnet-19", "conv2d:k=3", env!("CARGO_MANIFEST_DIR"), "./src"] {
            assert_eq!(missing_file(name, hint), None, "{name}");
        }
    }

    #[test]
    fn what_a_parser_says_gets_the_nearest_name() {
        let message = "unknown field `schedles`, expected one of `models`, `schedules`";
        assert_eq!(with_hint(message), format!("{message}; did you mean `schedules`?"));
        let message = "unknown field `schedules_`, expected `schedules`\n";
        assert_eq!(with_hint(message), format!("{}; did you mean `schedules`?", message.trim_end()));
        for message in ["missing field `a`", "unknown field `qqqqqqqqq`, expected one of `b`, `c`", "unknown field `"] {
            assert_eq!(with_hint(message), message);
        }
    }
}
