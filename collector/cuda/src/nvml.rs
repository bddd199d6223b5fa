//! NVML, the library of the NVIDIA driver that tells how a GPU fares: clocks, power, temperature, and what holds its clocks
//! back. It is part of the driver, and opened at run time.

use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::{Device, Nvml as Library};
use std::sync::OnceLock;

/// Why NVML tells nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum NvmlError {
    #[error("there is no NVML: {0}")]
    NotFound(String),
    #[error("`{call}` of NVML failed: {why}")]
    Failed { call: &'static str, why: String },
}

type Result<T> = std::result::Result<T, NvmlError>;

/// One device of NVML.
pub struct Nvml {
    device: Device<'static>,
}

/// How a device fares at a moment; each figure where the device tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fares {
    /// Clock of the multiprocessors.
    pub sm_clock_mhz: Result<u32>,
    /// Clock of the memory.
    pub memory_clock_mhz: Result<u32>,
    /// Power the board draws.
    pub power_mw: Result<u32>,
    /// Temperature of the chip.
    pub temperature_celsius: Result<u32>,
    /// What holds clocks back, a bit each; see [`throttle_names`].
    pub throttle: Result<u64>,
}

/// What holds clocks back, in words.
pub fn throttle_names(reasons: u64) -> Vec<&'static str> {
    const NAMES: [(u64, &str); 9] = [
        (0x1, "idle"),
        (0x2, "clocks set by the user"),
        (0x4, "power cap"),
        (0x8, "hardware slowdown"),
        (0x10, "sync boost"),
        (0x20, "software thermal slowdown"),
        (0x40, "hardware thermal slowdown"),
        (0x80, "power brake"),
        (0x100, "display clocks"),
    ];
    NAMES.into_iter().filter(|(bit, _)| reasons & bit != 0).map(|(_, name)| name).collect()
}

impl Nvml {
    /// Opens the device with this address on the PCI bus, such as `0000:01:00.0`.
    pub fn open(pci_bus_id: &str) -> Result<Nvml> {
        let device = library()?.device_by_pci_bus_id(pci_bus_id);
        Ok(Nvml { device: device.map_err(failed("nvmlDeviceGetHandleByPciBusId"))? })
    }

    /// How the device fares now.
    pub fn fares(&self) -> Fares {
        let device = &self.device;
        let clock = |kind| device.clock_info(kind).map_err(failed("nvmlDeviceGetClockInfo"));
        let temperature = device.temperature(TemperatureSensor::Gpu);
        let throttle = device.current_throttle_reasons().map(|reasons| reasons.bits());
        Fares {
            sm_clock_mhz: clock(Clock::SM),
            memory_clock_mhz: clock(Clock::Memory),
            power_mw: device.power_usage().map_err(failed("nvmlDeviceGetPowerUsage")),
            temperature_celsius: temperature.map_err(failed("nvmlDeviceGetTemperature")),
            throttle: throttle.map_err(failed("nvmlDeviceGetCurrentClocksThrottleReasons")),
        }
    }

    /// What the board has used since the driver was loaded. It grows in steps of some ten milliseconds' use.
    pub fn energy_millijoules(&self) -> Result<u64> {
        self.device.total_energy_consumption().map_err(failed("nvmlDeviceGetTotalEnergyConsumption"))
    }
}

/// The library, opened once and for as long as the process.
fn library() -> Result<&'static Library> {
    static LIBRARY: OnceLock<Result<Library>> = OnceLock::new();
    let open = || Library::init().map_err(|error| NvmlError::NotFound(cause(&error)));
    LIBRARY.get_or_init(open).as_ref().map_err(Clone::clone)
}

fn failed(call: &'static str) -> impl Fn(nvml_wrapper::error::NvmlError) -> NvmlError {
    move |error| NvmlError::Failed { call, why: error.to_string() }
}

/// The dynamic loader keeps its reason in the innermost cause.
fn cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), cause)
}
