//! RPC functions that control an accelerator on a board's FPGA.
//!
//! Integers are 64-bit, byte strings are raw bytes, and composite values are JSON.

use serde::{Deserialize, Serialize};

/// Selects the accelerator by name, such as `1x16`, or loads a bitstream file whose name starts with the accelerator's.
pub const PROGRAM: &str = "pynq.fpga.program";
/// Returns the [`Fabric`], which describes the FPGA and its accelerator.
pub const INFO: &str = "pynq.fpga.info";
/// Allocates a zeroed block of the given number of bytes that the accelerator can access, and returns its handle.
pub const ALLOCATE: &str = "pynq.fpga.alloc";
/// Returns the physical address of the block with the given handle.
pub const ADDRESS: &str = "pynq.fpga.phys";
/// Writes bytes into a block: handle, offset, bytes.
pub const WRITE: &str = "pynq.fpga.write";
/// Reads bytes from a block: handle, offset, number of bytes.
pub const READ: &str = "pynq.fpga.read";
/// Runs the instructions at the start of a block: handle, number of instructions, time limit in microseconds. Returns
/// [`Ran`].
pub const RUN: &str = "pynq.fpga.run";
pub const FREE: &str = "pynq.fpga.free";

pub const RUN_US_MAX: i64 = 60_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FabricKind {
    Devmem,
    /// Functional simulator, whose times are meaningless.
    Simulated,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fabric {
    pub kind: FabricKind,
    pub core: Option<String>,
    pub memory_bytes: u64,
}

/// Result of a run: status, and microseconds from the first register write to the end. Serialized as a JSON list.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ran(pub FabricStatus, pub f64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum FabricStatus {
    Done = 0,
    /// The time limit expired. Only loading a bitstream recovers the accelerator.
    TimedOut = 1,
    /// Completion was reported before the start. Only loading a bitstream recovers the accelerator.
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
        known
            .into_iter()
            .find(|status| *status as u8 == number)
            .ok_or_else(|| format!("unknown status of a run: {number}"))
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
