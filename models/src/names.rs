//! Names of models as people type them: spelling is forgiven, and a mistake gets the nearest names.

/// The index of the entry that has this name or alias; else a hint. Case, `-`, `_` and `.` never matter.
pub(crate) fn find<'a>(
    name: &str,
    entries: impl Iterator<Item = (&'a str, &'a [&'a str])> + Clone,
) -> Result<usize, String> {
    let wanted = bare(name);
    let is_wanted =
        |(name, aliases): (&str, &[&str])| spellings(name, aliases).any(|spelling| bare(spelling) == wanted);
    entries.clone().position(is_wanted).ok_or_else(|| hint(&wanted, entries))
}

/// A name and its aliases.
pub(crate) fn spellings<'a>(name: &'a str, aliases: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    std::iter::once(name).chain(aliases.iter().copied())
}

/// A name without what people spell differently.
pub(crate) fn bare(name: &str) -> String {
    // No name is longer than this; what follows would only slow the search for the nearest.
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).take(64).collect()
}

fn hint<'a>(wanted: &str, entries: impl Iterator<Item = (&'a str, &'a [&'a str])>) -> String {
    let mut near: Vec<(usize, &str)> = entries
        .filter_map(|(name, aliases)| {
            let distance = spellings(name, aliases).map(|spelling| edits(wanted, &bare(spelling))).min()?;
            (distance <= 1 + wanted.len() / 3).then_some((distance, name))
        })
        .collect();
    near.sort();
    match near.as_slice() {
        [] => "`opcollect list` shows all names".to_owned(),
        near => {
            let names: Vec<String> = near.iter().take(3).map(|(_, name)| format!("`{name}`")).collect();
            format!("the nearest are {}", names.join(", "))
        }
    }
}

/// Letters to insert, delete or replace to make one text of the other.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, other) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
