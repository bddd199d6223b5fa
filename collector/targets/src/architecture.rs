//! Names of GPU architectures, and resources of their multiprocessors, as listed in the CUDA programming guide.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A GPU architecture: a compute capability, as in `sm_90`, and a suffix for specific features, as in `sm_90a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Architecture {
    /// Ten times the compute capability.
    pub number: u32,
    suffix: Suffix,
}

/// Range of devices that code runs on. Code for fewer devices may use features beyond those of the capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Suffix {
    /// Devices of the same major capability, from this capability on.
    None,
    Family,
    Exact,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a GPU architecture; write it like `sm_90`")]
pub struct UnknownArchitecture(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiprocessor {
    pub threads: u32,
    pub blocks: u32,
    pub registers: u32,
    pub shared_bytes: u32,
    /// Shared memory that the system reserves for each block, in bytes.
    pub reserved_shared_bytes: u32,
    /// Largest dynamic shared memory of a block after an explicit request, in bytes.
    pub block_shared_bytes: u32,
}

pub const BLOCK_THREADS: u32 = 1024;
/// Largest shared memory of a block without an explicit request, on every architecture.
pub const STATIC_SHARED_BYTES: u32 = 48 << 10;
pub const BLOCK_REGISTERS: u32 = 64 << 10;

impl Architecture {
    /// Parses a name such as `sm_90` or `sm_100a`.
    pub fn parse_name(name: &str) -> Result<Architecture, UnknownArchitecture> {
        let unknown = || UnknownArchitecture(name.to_owned());
        let text = name.strip_prefix("sm_").ok_or_else(unknown)?;
        let (digits, suffix) = match text.as_bytes().last() {
            Some(b'a') => (&text[..text.len() - 1], Suffix::Exact),
            Some(b'f') => (&text[..text.len() - 1], Suffix::Family),
            _ => (text, Suffix::None),
        };
        let is_plain = (2..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = if is_plain { digits.parse().ok() } else { None };
        number.map(|number| Architecture { number, suffix }).ok_or_else(unknown)
    }

    pub fn runs_on(self, device: u32) -> bool {
        match self.suffix {
            Suffix::Exact => device == self.number,
            Suffix::None | Suffix::Family => device / 10 == self.number / 10 && device >= self.number,
        }
    }

    /// Returns the resources of a multiprocessor; for unknown newer architectures, the minimum since Ampere.
    pub fn multiprocessor(self) -> Multiprocessor {
        const KIB: u32 = 1 << 10;
        let (threads, blocks, shared, reserved, block) = match self.number {
            ..80 => (1024, 16, 64, 0, 64),
            80 => (2048, 32, 164, 1, 163),
            87 => (1536, 16, 164, 1, 163),
            89 | 120..=129 => (1536, 24, 100, 1, 99),
            90 | 100 | 103 => (2048, 32, 228, 1, 227),
            101 | 110 => (1536, 24, 228, 1, 227),
            _ => (1536, 16, 100, 1, 99),
        };
        Multiprocessor {
            threads,
            blocks,
            registers: 64 * KIB,
            shared_bytes: shared * KIB,
            reserved_shared_bytes: reserved * KIB,
            block_shared_bytes: block * KIB,
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = match self.suffix {
            Suffix::None => "",
            Suffix::Family => "f",
            Suffix::Exact => "a",
        };
        write!(f, "sm_{}{suffix}", self.number)
    }
}

impl TryFrom<String> for Architecture {
    type Error = UnknownArchitecture;

    fn try_from(name: String) -> Result<Architecture, UnknownArchitecture> {
        Architecture::parse_name(&name)
    }
}

impl From<Architecture> for String {
    fn from(architecture: Architecture) -> String {
        architecture.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::Architecture;

    #[test]
    fn names_survive_a_round_trip() {
        for name in ["sm_75", "sm_80", "sm_90", "sm_90a", "sm_100f", "sm_121"] {
            assert_eq!(Architecture::parse_name(name).unwrap().to_string(), name);
        }
        for name in ["", "90", "sm_", "sm_9", "sm_90b", "sm_+90", "sm_1000", "compute_90", "sm_é"] {
            assert!(Architecture::parse_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn code_runs_on_its_own_and_later_devices_of_the_same_major_capability() {
        let runs = |name: &str, device| Architecture::parse_name(name).unwrap().runs_on(device);
        assert!(runs("sm_80", 80) && runs("sm_80", 86) && !runs("sm_86", 80) && !runs("sm_80", 90));
        assert!(runs("sm_90a", 90) && !runs("sm_100a", 103) && runs("sm_100f", 103));
    }
}
