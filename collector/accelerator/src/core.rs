//! Configuration of an accelerator core (block sizes, index widths, buffers), and the supported boards.

use serde::{Deserialize, Serialize};

pub(crate) const MICRO_OP_BYTES: u64 = 4;

/// Configuration of an accelerator core. Data and weights have 8 bits, sums 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// Rows of data (images or matrix rows) per buffer element.
    pub batch: u32,
    /// Channels per buffer element of data and results.
    pub block: u32,
    pub micro_ops: u32,
    /// Capacity of the data buffer in elements; `weights` has the same unit.
    pub data: u32,
    pub weights: u32,
    /// Capacity of the sum buffer in elements; the result buffer has the same capacity.
    pub sums: u32,
    /// Minimum number of steps between products into the same sum, due to the pipeline's read-after-write hazard.
    pub distance: u32,
}

/// On-chip buffers of the accelerator, in the order of their instruction codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Buffer {
    MicroOps,
    Weights,
    Data,
    Sums,
    Results,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a valid core: {1}")]
pub struct CoreError(pub String, pub String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FabricBoard {
    pub name: &'static str,
    pub chip: &'static str,
    pub clock_mhz: u32,
    pub port_bits: u32,
    pub cores: &'static [&'static str],
    pub timing: &'static str,
    /// Address of the first block of registers.
    pub registers: u64,
}

pub fn fabric_boards() -> &'static [FabricBoard] {
    const ZYNQ: FabricBoard = FabricBoard {
        name: "pynq-z1",
        chip: "xc7z020",
        clock_mhz: 100,
        port_bits: 64,
        cores: &["1x16", "4x8"],
        timing: "pynq-hls-100",
        registers: 0x43C0_0000,
    };
    const ULTRASCALE: FabricBoard = FabricBoard {
        name: "ultra96",
        chip: "xczu3eg",
        clock_mhz: 333,
        port_bits: 128,
        cores: &["1x16"],
        timing: "ultra96-hls-333",
        registers: 0xA000_0000,
    };
    &[
        ZYNQ,
        FabricBoard { name: "pynq-z2", ..ZYNQ },
        ULTRASCALE,
        FabricBoard { name: "zcu104", chip: "xczu7ev", ..ULTRASCALE },
    ]
}

impl Core {
    pub const NAMES: [&str; 2] = ["1x16", "4x8"];

    pub fn find_published(name: &str) -> Result<Core, CoreError> {
        let core = Core { batch: 1, block: 16, micro_ops: 8192, data: 2048, weights: 1024, sums: 2048, distance: 3 };
        match name {
            "1x16" => Ok(core),
            "4x8" => Ok(Core { batch: 4, block: 8, ..core }),
            _ => Err(CoreError(
                name.to_owned(),
                format!("known are {}", Core::NAMES.map(|n| format!("`{n}`")).join(", ")),
            )),
        }
    }

    pub fn check_encodable(&self) -> Result<(), CoreError> {
        let refuse = |why: String| Err(CoreError(format!("{}x{}", self.batch, self.block), why));
        for (name, number) in [
            ("batch", self.batch),
            ("block", self.block),
            ("micro_ops", self.micro_ops),
            ("data", self.data),
            ("weights", self.weights),
            ("sums", self.sums),
        ] {
            if !number.is_power_of_two() || number > 1 << 16 {
                return refuse(format!("`{name}` is {number}, but must be a power of two of at most 65536"));
            }
        }
        let [micro_op, sum, data, weight] = [self.micro_ops, self.sums, self.data, self.weights].map(index_width);
        let words = [
            (8 + micro_op + micro_op + 1 + 28, 64, "the loops of an instruction"),
            (2 * (sum + data + weight), 64, "the factors of a product"),
            (4 * sum + 20, 64, "the factors of an operation on sums"),
            (sum + data + weight, 32, "a micro-operation"),
        ];
        match words.into_iter().find(|(bits, room, _)| bits > room) {
            Some((bits, room, what)) => refuse(format!("{what} would need {bits} bits, but the encoding has {room}")),
            None => Ok(()),
        }
    }

    pub fn buffer_capacity(&self, buffer: Buffer) -> u32 {
        match buffer {
            Buffer::MicroOps => self.micro_ops,
            Buffer::Weights => self.weights,
            Buffer::Data => self.data,
            Buffer::Sums | Buffer::Results => self.sums,
        }
    }

    pub fn element_bytes(&self, buffer: Buffer) -> u64 {
        let (batch, block) = (u64::from(self.batch), u64::from(self.block));
        match buffer {
            Buffer::MicroOps => MICRO_OP_BYTES,
            Buffer::Weights => block * block,
            Buffer::Data | Buffer::Results => batch * block,
            Buffer::Sums => 4 * batch * block,
        }
    }

    pub fn macs_per_cycle(&self) -> u64 {
        u64::from(self.batch) * u64::from(self.block) * u64::from(self.block)
    }

    /// Returns the widths in bits of the indices of micro-operations, sums, data and weights.
    pub(crate) fn index_bits(&self) -> [u32; 4] {
        [self.micro_ops, self.sums, self.data, self.weights].map(index_width)
    }
}

fn index_width(depth: u32) -> u32 {
    depth.trailing_zeros()
}

impl Buffer {
    pub const ALL: [Buffer; 5] = [Buffer::MicroOps, Buffer::Weights, Buffer::Data, Buffer::Sums, Buffer::Results];

    pub fn name(self) -> &'static str {
        match self {
            Buffer::MicroOps => "micro-operations",
            Buffer::Weights => "weights",
            Buffer::Data => "data",
            Buffer::Sums => "sums",
            Buffer::Results => "results",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_cores_are_valid_and_others_are_rejected() {
        for name in Core::NAMES {
            let core = Core::find_published(name).unwrap();
            core.check_encodable().unwrap();
            assert_eq!(core.macs_per_cycle(), 256);
        }
        assert_eq!(
            Core::find_published("2x2").unwrap_err().to_string(),
            "`2x2` is not a valid core: known are `1x16`, `4x8`"
        );
        let wide = Core { micro_ops: 1 << 16, ..Core::find_published("1x16").unwrap() };
        assert!(wide.check_encodable().unwrap_err().to_string().contains("would need 69 bits"));
        let odd = Core { data: 1000, ..Core::find_published("1x16").unwrap() };
        assert!(odd.check_encodable().unwrap_err().to_string().contains("`data` is 1000"));
    }

    #[test]
    fn boards_have_published_cores() {
        for board in fabric_boards() {
            assert!(board.cores.iter().all(|name| Core::find_published(name).is_ok()), "{}", board.name);
        }
    }
}
