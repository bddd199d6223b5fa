//! Properties of GPUs according to their data sheets.

use crate::error::{Error, Result};
use crate::scheme::Dtype;
use models::{Choice, names};
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuFacts {
    pub name: String,
    pub system: String,
    pub family: String,
    /// Compute capability; for other vendors, a number that orders their generations.
    pub generation: f64,
    /// Number of streaming multiprocessors, or of the corresponding cores of other vendors.
    pub units: f64,
    pub l2_bytes: f64,
    pub memory_bytes: f64,
    pub bandwidth_bytes_per_s: f64,
    /// Dense bf16 operations per second at peak.
    pub bf16_flops: f64,
    pub fp8_flops: Option<f64>,
    pub fp4_flops: Option<f64>,
    pub int8_flops: Option<f64>,
    /// Exponential functions per second at peak, as the softmax of attention needs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exponentials_per_s: Option<f64>,
    pub power_limit_w: f64,
    /// Bandwidth to GPUs of the same host, in bytes per second and direction.
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

pub fn list_devices() -> &'static [GpuFacts] {
    &DEVICES
}

/// Finds a device by its full name in any spelling, its short name, or words that occur in no other name.
pub fn find_device(name: &str) -> Result<&'static GpuFacts> {
    if let Some(short) =
        list_devices().iter().find(|device| names::normalise_name(&device.system) == names::normalise_name(name))
    {
        return Ok(short);
    }
    let names = list_devices().iter().map(|device| device.name.as_str());
    // The first table of `oppredict devices` has devices whose data sheet lacks what servers need.
    let known = names::resolve_device(names, name)
        .map_err(|problem| Error::Device(format!("{problem}; `oppredict devices` lists GPUs in its second table")))?;
    Ok(list_devices().iter().find(|device| device.name == known).expect("a name of the table"))
}

/// Returns the vendor: the first word of a device's name.
pub fn vendor_of(name: &str) -> &str {
    name.split([' ', '(']).next().unwrap_or_default()
}

impl GpuFacts {
    pub fn vendor(&self) -> &str {
        vendor_of(&self.name)
    }

    pub fn is_sound(&self) -> bool {
        let optional = [self.fp8_flops, self.fp4_flops, self.int8_flops, self.exponentials_per_s].into_iter().flatten();
        let sizes = [self.units, self.l2_bytes, self.memory_bytes, self.bandwidth_bytes_per_s, self.bf16_flops];
        let rest = [self.power_limit_w, self.link_bytes_per_s, self.generation];
        sizes.into_iter().chain(rest).chain(optional).all(|figure| figure.is_finite() && figure > 0.0)
    }

    /// Returns whether two devices have the same generation and family; memory, power and units may differ.
    pub fn is_sibling(&self, other: &GpuFacts) -> bool {
        self.family == other.family && self.generation.floor() == other.generation.floor()
    }

    pub fn peak_flops(&self, dtype: Dtype) -> Result<f64> {
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
        list_devices().iter().for_each(|device| assert!(device.is_sound(), "{device:?}"));
    }

    #[test]
    fn names_are_found_in_any_spelling() {
        for name in ["NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3", "h100_sxm", "H100 HBM3"] {
            assert_eq!(find_device(name).map(|device| device.system.as_str()), Ok("h100_sxm"), "{name}");
        }
        assert!(find_device("H100").expect_err("two of them").to_string().contains("matches several devices"));
        let near = find_device("NVIDIA H201").expect_err("no such device").to_string();
        assert!(near.contains("did you mean `NVIDIA H200`"), "{near}");
        let listed_elsewhere = find_device("T4").expect_err("no data sheet").to_string();
        assert!(
            listed_elsewhere.ends_with("; `oppredict devices` lists GPUs in its second table"),
            "{listed_elsewhere}"
        );
    }
}
