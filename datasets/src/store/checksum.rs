//! Checksums of journal lines. A checksum is the last member of the line's JSON object, so the line remains valid JSON.

use crate::error::RowError;

const BEFORE: &[u8] = b",\"checksum\":\"";
const AFTER: &[u8] = b"\"}";

const DIGITS: usize = 16;

const TAIL: usize = BEFORE.len() + DIGITS + AFTER.len();

/// Adds a checksum to a line that contains a nonempty JSON object.
pub(super) fn append_checksum(line: &mut Vec<u8>) {
    line.truncate(line.trim_ascii_end().len());
    line.pop();
    let digits = checksum_digits(line);
    line.extend_from_slice(BEFORE);
    line.extend_from_slice(digits.as_bytes());
    line.extend_from_slice(AFTER);
    line.push(b'\n');
}

/// Verifies the checksum at the end of a line and removes it. Returns false if the line has no checksum.
pub(super) fn take_checksum(line: &mut Vec<u8>) -> Result<bool, RowError> {
    let Some(end) = line.len().checked_sub(TAIL) else { return Ok(false) };
    let tail = &line[end..];
    if !tail.starts_with(BEFORE) || !tail.ends_with(AFTER) {
        return Ok(false);
    }
    if checksum_digits(&line[..end]).as_bytes() != &tail[BEFORE.len()..BEFORE.len() + DIGITS] {
        return Err(RowError::new("the content does not match its checksum"));
    }
    line.truncate(end);
    line.push(b'}');
    Ok(true)
}

pub(super) fn missing_checksum() -> RowError {
    RowError::new("the checksum is missing")
}

fn checksum_digits(content: &[u8]) -> String {
    blake3::hash(content).to_hex()[..DIGITS].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_back_and_no_other_byte_does() {
        let plain = b"{\"schema_version\":2,\"n\":1}";
        let mut line = [&plain[..], b"\n"].concat();
        append_checksum(&mut line);
        assert!(serde_json::from_slice::<serde_json::Value>(&line).is_ok());
        assert_eq!(line.pop(), Some(b'\n'));
        let mut back = line.clone();
        assert_eq!(take_checksum(&mut back), Ok(true));
        assert_eq!(back, plain);
        for place in 0..line.len() {
            for bit in 0..8 {
                let mut damaged = line.clone();
                damaged[place] ^= 1 << bit;
                let text = String::from_utf8_lossy(&damaged).into_owned();
                assert_ne!(take_checksum(&mut damaged), Ok(true), "{text}");
            }
        }
    }

    #[test]
    fn lines_without_one_stay_as_they_are() {
        for text in ["", "{}", "{\"n\":1}", "{\"checksum\":\"0123456789abcdef\"}"] {
            let mut line = text.as_bytes().to_vec();
            assert_eq!(take_checksum(&mut line), Ok(false));
            assert_eq!(line, text.as_bytes());
        }
    }
}
