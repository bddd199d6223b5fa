//! JSON documents that begin with a hash of their own text, so that any change of a byte is found. They describe the
//! folders of builds, whose other files they name by hash.

use serde::{Deserialize, Serialize};

/// Problem of a file whose hash differs from the recorded one.
pub const CHANGED: &str = "the content of the file changed: its hash differs";

const START: &str = "{\n  \"hash\": \"";
const HASH_CHARS: usize = 64;
const END: &str = "\",";
const HEADER_BYTES: usize = START.len() + HASH_CHARS + END.len();

/// Returns a JSON object as text whose first field is the hash of everything after that field.
pub fn seal_json(object: &impl Serialize) -> serde_json::Result<String> {
    let text = serde_json::to_string_pretty(object)?;
    let rest = text.strip_prefix('{').ok_or_else(|| serde::ser::Error::custom("only an object can be sealed"))?;
    Ok(format!("{START}{}{END}{rest}", blake3::hash(rest.as_bytes()).to_hex()))
}

/// The version field, which documents of all versions contain.
#[derive(Deserialize)]
struct DocumentFormat {
    format: u32,
}

/// Checks the hash and the format version of a sealed document, and returns the object without its hash. The error
/// describes what is wrong.
pub fn open_sealed(text: String, format: u32) -> Result<String, String> {
    // Documents of earlier versions have no hash.
    let is_sealed = text.starts_with(START);
    let text = if is_sealed { remove_hash(text).ok_or(CHANGED)? } else { text };
    let found: DocumentFormat = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if found.format != format {
        return Err(format!("its format version is {}, but this program reads version {format}", found.format));
    }
    if is_sealed { Ok(text) } else { Err(CHANGED.to_owned()) }
}

fn remove_hash(mut text: String) -> Option<String> {
    let hash = text.get(START.len()..START.len() + HASH_CHARS)?;
    let rest = text.get(HEADER_BYTES..)?;
    let is_intact = text[..HEADER_BYTES].ends_with(END) && blake3::hash(rest.as_bytes()).to_hex().as_str() == hash;
    if !is_intact {
        return None;
    }
    text.replace_range(..HEADER_BYTES, "{");
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_found() {
        let object = serde_json::json!({ "format": 2, "tolerance": 1e-5, "name": "résumé" });
        let sealed = seal_json(&object).expect("an object");
        let with_hash: serde_json::Value = serde_json::from_str(&sealed).expect("JSON");
        assert_eq!(with_hash["format"], 2);
        let opened = open_sealed(sealed.clone(), 2).expect("it is intact");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&opened).expect("JSON"), object);
        for bit in 0..8 * sealed.len() {
            let mut bytes = sealed.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let opened = String::from_utf8(bytes).ok().map(|text| open_sealed(text, 2));
            assert!(!matches!(opened, Some(Ok(_))), "bit {bit}");
        }
        for length in 0..sealed.len() {
            assert!(sealed.get(..length).is_none_or(|cut| open_sealed(cut.to_owned(), 2).is_err()), "{length} bytes");
        }
        assert_eq!(open_sealed(object.to_string(), 2), Err(CHANGED.to_owned()));
        let newer = "its format version is 2, but this program reads version 3".to_owned();
        assert_eq!(open_sealed(object.to_string(), 3), Err(newer.clone()));
        assert_eq!(open_sealed(sealed, 3), Err(newer));
        assert!(seal_json(&[1]).is_err());
    }
}
