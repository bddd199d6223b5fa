//! Contents of a constant as stored in its file: a shared slice, never copied. A weight can have gigabytes, so texts,
//! messages and JSON documents contain its size and hash instead of its bytes.

use bytes::Bytes;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Bytes of a tensor, little-endian and without gaps.
#[derive(Clone, PartialEq, Eq)]
pub struct Contents(Bytes);

impl Contents {
    /// Creates the contents of a constant from its bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Contents {
        Contents(bytes.into())
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns a stable hash of the bytes: 32 hexadecimal digits.
    pub fn hash(&self) -> String {
        blake3::hash(&self.0).to_hex()[..32].to_owned()
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes({}, \"{}\")", self.0.len(), self.hash())
    }
}

#[derive(Serialize)]
struct GraphSummary {
    length: usize,
    blake3: String,
}

impl Serialize for Contents {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        GraphSummary { length: self.0.len(), blake3: self.hash() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Contents {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Contents, D::Error> {
        let _ = serde::de::IgnoredAny::deserialize(deserializer)?;
        Err(D::Error::custom(LEFT_OUT))
    }
}

pub(crate) const LEFT_OUT: &str =
    "the data of this constant was omitted when the graph was written; read the original model file instead";
