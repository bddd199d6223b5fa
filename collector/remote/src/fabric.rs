//! A core on a board's fabric, as a session has it: names of functions, and what they answer.
//!
//! Numbers are given and answered as 64-bit numbers, bytes as bytes, and what is more than one thing as JSON.

use serde::{Deserialize, Serialize};

/// Says which core is on the fabric: the name of one, `1x16`, that is there already, or the file of its bitstream, which begins
/// with that name and is brought onto the fabric.
pub const PROGRAM: &str = "pynq.fpga.program";
/// Answers with [`Fabric`].
pub const INFO: &str = "pynq.fpga.info";
/// Asked with a number of bytes, answers with the handle of a block of memory that the core can reach, all zero.
pub const ALLOCATE: &str = "pynq.fpga.alloc";
/// Asked with a handle, answers with the address of the block's first byte.
pub const ADDRESS: &str = "pynq.fpga.phys";
/// Asked with a handle, a place and bytes, writes them.
pub const WRITE: &str = "pynq.fpga.write";
/// Asked with a handle, a place and a number of bytes, answers with them.
pub const READ: &str = "pynq.fpga.read";
/// Asked with the handle of a block that begins with instructions, their number and how many microseconds they may take,
/// answers with [`Ran`].
pub const RUN: &str = "pynq.fpga.run";
/// Asked with a handle, gives the block back.
pub const FREE: &str = "pynq.fpga.free";

/// A run may take so long at most, in microseconds.
pub const RUN_US_MAX: i64 = 60_000_000;

/// What is behind the functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FabricKind {
    /// A board's registers and memory.
    Devmem,
    /// A simulator of a core, whose times are none.
    Simulated,
}

/// What an agent says of its fabric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fabric {
    /// What it is.
    pub kind: FabricKind,
    /// The core on it, as far as somebody said.
    pub core: Option<String>,
    /// Bytes of memory that the core can reach.
    pub memory_bytes: u64,
}

/// How a run ended, and the microseconds from the first register to its end, as a list of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ran(pub Status, pub f64);

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum Status {
    /// The core said that it is done.
    Done = 0,
    /// It did not within the time. Only another bitstream helps.
    TimedOut = 1,
    /// It said so before it began. Only another bitstream helps.
    StaleDone = 2,
}

impl From<Status> for u8 {
    fn from(status: Status) -> u8 {
        status as u8
    }
}

impl TryFrom<u8> for Status {
    type Error = String;

    fn try_from(number: u8) -> Result<Status, String> {
        let known = [Status::Done, Status::TimedOut, Status::StaleDone].into_iter();
        known.into_iter().find(|status| *status as u8 == number).ok_or_else(|| format!("no run ends with {number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Ran, Status};

    #[test]
    fn a_run_is_a_list_of_two_numbers() {
        let text = serde_json::to_string(&Ran(Status::TimedOut, 2.5)).expect("numbers");
        assert_eq!(text, "[1,2.5]");
        assert_eq!(serde_json::from_str::<Ran>(&text).expect("what was written"), Ran(Status::TimedOut, 2.5));
        for wrong in ["[3,1.0]", "[0]", "[]", "{}", "[0,1,2]"] {
            assert!(serde_json::from_str::<Ran>(wrong).is_err(), "{wrong}");
        }
    }
}
