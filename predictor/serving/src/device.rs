//! GPUs by their data sheets.

use crate::error::{Error, Result};
use crate::scheme::Dtype;
use models::{Choice, names};
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// What a data sheet says of a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuFacts {
    /// Name as the driver reports it.
    pub name: String,
    /// Short name in public tables, such as `h100_sxm`.
    pub system: String,
    /// Architecture, such as `hopper`.
    pub family: String,
    /// Compute capability; for other vendors a number that orders generations.
    pub generation: f64,
    /// Streaming multiprocessors, or cores of other vendors.
    pub units: f64,
    /// Shared last-level cache in bytes.
    pub l2_bytes: f64,
    /// Memory in bytes.
    pub memory_bytes: f64,
    /// Memory bandwidth in bytes per second.
    pub bandwidth_bytes_per_s: f64,
    /// Dense operations per second on bf16.
    pub bf16_flops: f64,
    /// Dense operations per second on fp8, where the device multiplies it.
    pub fp8_flops: Option<f64>,
    /// Dense operations per second on fp4, where the device multiplies it.
    pub fp4_flops: Option<f64>,
    /// Dense operations per second on int8, where the device multiplies it.
    pub int8_flops: Option<f64>,
    /// Power limit of the board in watts.
    pub power_limit_w: f64,
    /// Bandwidth to other GPUs of the same host in one direction, in bytes per second.
    pub link_bytes_per_s: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    device: Vec<GpuFacts>,
}

static DEVICES: LazyLock<Vec<GpuFacts>> = LazyLock::new(|| {
    let table: Table = toml::from_str(include_str!("devices.toml")).expect("the table of devices is valid");
    table.device
});

/// Returns the devices that this program knows by their data sheets.
pub fn all() -> &'static [GpuFacts] {
    &DEVICES
}

/// Returns the device that a name means: its own in any spelling, its short name, or words that no other device has.
pub fn find(name: &str) -> Result<&'static GpuFacts> {
    if let Some(short) = all().iter().find(|device| names::bare(&device.system) == names::bare(name)) {
        return Ok(short);
    }
    let known = names::resolve_device(all().iter().map(|device| device.name.as_str()), name).map_err(Error::Device)?;
    Ok(all().iter().find(|device| device.name == known).expect("a name of the table"))
}

/// Returns the vendor in a device's name: its first word.
pub fn vendor(name: &str) -> &str {
    name.split([' ', '(']).next().unwrap_or_default()
}

impl GpuFacts {
    /// The vendor.
    pub fn vendor(&self) -> &str {
        vendor(&self.name)
    }

    /// Returns whether all figures are positive numbers.
    pub fn is_sound(&self) -> bool {
        let optional = [self.fp8_flops, self.fp4_flops, self.int8_flops].into_iter().flatten();
        let sizes = [self.units, self.l2_bytes, self.memory_bytes, self.bandwidth_bytes_per_s, self.bf16_flops];
        let rest = [self.power_limit_w, self.link_bytes_per_s, self.generation];
        sizes.into_iter().chain(rest).chain(optional).all(|figure| figure.is_finite() && figure > 0.0)
    }

    /// Returns whether both are of one generation of one family: siblings differ in memory, power or units.
    pub fn is_sibling(&self, other: &GpuFacts) -> bool {
        self.family == other.family && self.generation.floor() == other.generation.floor()
    }

    /// Returns the dense operations per second on numbers of a type.
    pub fn peak(&self, dtype: Dtype) -> Result<f64> {
        self.peak_or_none(dtype).ok_or_else(|| {
            let known = Dtype::ALL.iter().filter(|dtype| self.peak_or_none(**dtype).is_some());
            Error::NoPeak {
                device: self.name.clone(),
                dtype: dtype.name(),
                known: known.map(|dtype| dtype.name()).collect::<Vec<_>>().join(", "),
            }
        })
    }

    fn peak_or_none(&self, dtype: Dtype) -> Option<f64> {
        match dtype {
            Dtype::Bf16 => Some(self.bf16_flops),
            Dtype::Fp8 => self.fp8_flops,
            Dtype::Fp4 => self.fp4_flops,
            Dtype::Int8 => self.int8_flops,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_has_sound_figures() {
        all().iter().for_each(|device| assert!(device.is_sound(), "{device:?}"));
    }

    #[test]
    fn names_are_found_in_any_spelling() {
        for name in ["NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3", "h100_sxm", "H100 HBM3"] {
            assert_eq!(find(name).map(|device| device.system.as_str()), Ok("h100_sxm"), "{name}");
        }
        assert!(find("H100").expect_err("two of them").to_string().contains("may be any of"));
        let near = find("NVIDIA H201").expect_err("no such device").to_string();
        assert!(near.contains("did you mean `NVIDIA H200`"), "{near}");
    }
}
