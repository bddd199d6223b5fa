//! The 128-bit key of an experiment.

use crate::error::RowError;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A 128-bit key: the first 16 bytes of a hash over identifying values.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub [u8; 16]);

impl Key {
    /// Hashes bytes to a key.
    pub fn of_bytes(bytes: &[u8]) -> Key {
        let mut key = [0; 16];
        key.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
        Key(key)
    }

    /// Returns the key as 32 lower-case hexadecimal digits.
    pub fn to_hex(&self) -> String {
        let mut digits = [0; 32];
        String::from(self.write_hex(&mut digits))
    }

    pub(crate) fn write_hex<'a>(&self, digits: &'a mut [u8; 32]) -> &'a str {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        std::str::from_utf8(digits).expect("hexadecimal digits are ASCII")
    }
}

impl FromStr for Key {
    type Err = RowError;

    fn from_str(text: &str) -> Result<Key, RowError> {
        let digits = text.as_bytes();
        let wrong = || RowError::new(format!("`{}` is not a key of 32 hexadecimal digits", excerpt(text)));
        if digits.len() != 32 {
            return Err(wrong());
        }
        let mut key = [0; 16];
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16).ok_or_else(wrong)?;
            let low = char::from(pair[1]).to_digit(16).ok_or_else(wrong)?;
            *byte = (high * 16 + low) as u8;
        }
        Ok(Key(key))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.write_hex(&mut [0; 32]))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.write_hex(&mut [0; 32]))
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(|error: RowError| serde::de::Error::custom(error.problem))
    }
}

/// Returns the first 40 characters of untrusted text for messages.
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
