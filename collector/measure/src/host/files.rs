//! Text files of procfs and sysfs, under the root of this machine or of a test machine.

use crate::affinity::parse_cpu_list;
use std::{fs, path::Path};

#[derive(Clone, Copy)]
pub struct Files<'a> {
    pub root: &'a Path,
}

impl Files<'_> {
    /// Returns the trimmed text of a file, or None if the file is empty or unreadable.
    pub fn read_text(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path)).ok()?;
        let text = text.trim_matches(['\0', '\n', ' ', '\t']);
        (!text.is_empty()).then(|| text.to_string())
    }

    pub fn cpu_list(&self, path: &str) -> Option<Vec<usize>> {
        parse_cpu_list(&self.read_text(path)?)
    }
}

/// Parses a size such as `32K`, `260 MB` or `24674240 kB`; all units are powers of two.
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let factor = match text[digits..].trim_start().bytes().next() {
        None => 1,
        Some(b'k' | b'K') => 1 << 10,
        Some(b'm' | b'M') => 1 << 20,
        Some(b'g' | b'G') => 1 << 30,
        Some(_) => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn sizes_are_read_or_refused() {
        let table = [("32K", Some(32 << 10)), ("260 MB", Some(260 << 20)), ("7", Some(7)), ("", None), ("3x", None)];
        for (text, expected) in table {
            assert_eq!(parse_size(text), expected, "{text:?}");
        }
        assert_eq!(parse_size("99999999999999999999K"), None);
    }
}
