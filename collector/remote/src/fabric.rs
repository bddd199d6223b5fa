//! RPC functions that control an accelerator core on a board's FPGA fabric.
//!
//! Integers are 64-bit, byte strings are raw bytes, and composite values are JSON.

use serde::{Deserialize, Serialize};

/// Selects the core on the fabric. The argument is either the name of a core that is already loaded (`1x16`), or the
/// content of a bitstream file, which starts with that name and is then loaded.
pub const PROGRAM: &str = "pynq.fpga.program";
/// Returns [`Fabric`].
pub const INFO: &str = "pynq.fpga.info";
/// Allocates a zeroed block of the given number of bytes that the core can access, and returns its handle.
pub const ALLOCATE: &str = "pynq.fpga.alloc";
/// Returns the physical address of the block with the given handle.
pub const ADDRESS: &str = "pynq.fpga.phys";
/// Writes bytes into a block: handle, offset, bytes.
pub const WRITE: &str = "pynq.fpga.write";
/// Reads bytes from a block: handle, offset, number of bytes.
pub const READ: &str = "pynq.fpga.read";
/// Runs the instructions at the start of a block and returns [`Ran`]. The arguments are the handle, the number of
/// instructions and the time limit in microseconds.
pub const RUN: &str = "pynq.fpga.run";
/// Frees the block with the given handle.
pub const FREE: &str = "pynq.fpga.free";

/// Maximum time limit of a run in microseconds.
pub const RUN_US_MAX: i64 = 60_000_000;

/// Implementation behind the functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FabricKind {
    /// Registers and memory of a board.
    Devmem,
    /// Functional simulator of a core. Its times mean nothing.
    Simulated,
}

/// An agent's description of its fabric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fabric {
    pub kind: FabricKind,
    /// Core on the fabric, if known.
    pub core: Option<String>,
    /// Bytes of memory that the core can access.
    pub memory_bytes: u64,
}

/// Result of a run: status, and microseconds from the first register write to the end. Serialized as a list of two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ran(pub FabricStatus, pub f64);

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum FabricStatus {
    /// The core reported completion.
    Done = 0,
    /// The core did not finish in time. Only loading a bitstream recovers it.
    TimedOut = 1,
    /// The core reported completion before it was started. Only loading a bitstream recovers it.
    StaleDone = 2,
}

impl From<FabricStatus> for u8 {
    fn from(status: FabricStatus) -> u8 {
        status as u8
    }
}

impl TryFrom<u8> for FabricStatus {
    type Error = String;

    fn try_from(number: u8) -> Result<FabricStatus, String> {
        let known = [FabricStatus::Done, FabricStatus::TimedOut, FabricStatus::StaleDone].into_iter();
        known.into_iter().find(|status| *status as u8 == number).ok_or_else(|| format!("no run ends with {number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{FabricStatus, Ran};

    #[test]
    fn a_run_is_a_list_of_two_numbers() {
        let text = serde_json::to_string(&Ran(FabricStatus::TimedOut, 2.5)).expect("numbers");
        assert_eq!(text, "[1,2.5]");
        assert_eq!(serde_json::from_str::<Ran>(&text).expect("what was written"), Ran(FabricStatus::TimedOut, 2.5));
        for wrong in ["[3,1.0]", "[0]", "[]", "{}", "[0,1,2]"] {
            assert!(serde_json::from_str::<Ran>(wrong).is_err(), "{wrong}");
        }
    }
}
