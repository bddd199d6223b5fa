//! Interface to NVML, the part of the NVIDIA driver that reports a GPU's clocks, power, temperature and throttling.

use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::{Device, Nvml as Library};
use std::sync::OnceLock;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum NvmlError {
    #[error("there is no NVML: {0}")]
    NotFound(String),
    #[error("`{call}` of NVML failed: {why}")]
    Failed { call: &'static str, why: String },
}

type Result<T> = std::result::Result<T, NvmlError>;

pub struct Nvml {
    device: Device<'static>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoardState {
    pub sm_clock_mhz: Result<u32>,
    pub memory_clock_mhz: Result<u32>,
    pub power_mw: Result<u32>,
    pub temperature_celsius: Result<u32>,
    /// Reasons for throttling, one bit per reason; see [`throttle_names`].
    pub throttle: Result<u64>,
}

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
    /// Opens the device with a PCI address such as `0000:01:00.0`.
    pub fn open_device(pci_bus_id: &str) -> Result<Nvml> {
        let device = open_library()?.device_by_pci_bus_id(pci_bus_id);
        Ok(Nvml { device: device.map_err(failed_call("nvmlDeviceGetHandleByPciBusId"))? })
    }

    pub fn read_state(&self) -> BoardState {
        let device = &self.device;
        let clock = |kind| device.clock_info(kind).map_err(failed_call("nvmlDeviceGetClockInfo"));
        let temperature = device.temperature(TemperatureSensor::Gpu);
        let throttle = device.current_throttle_reasons().map(|reasons| reasons.bits());
        BoardState {
            sm_clock_mhz: clock(Clock::SM),
            memory_clock_mhz: clock(Clock::Memory),
            power_mw: device.power_usage().map_err(failed_call("nvmlDeviceGetPowerUsage")),
            temperature_celsius: temperature.map_err(failed_call("nvmlDeviceGetTemperature")),
            throttle: throttle.map_err(failed_call("nvmlDeviceGetCurrentClocksThrottleReasons")),
        }
    }

    /// Returns the energy since the driver was loaded; the counter advances every ten milliseconds or less often.
    pub fn energy_millijoules(&self) -> Result<u64> {
        self.device.total_energy_consumption().map_err(failed_call("nvmlDeviceGetTotalEnergyConsumption"))
    }
}

fn open_library() -> Result<&'static Library> {
    static LIBRARY: OnceLock<Result<Library>> = OnceLock::new();
    let open = || Library::init().map_err(|error| NvmlError::NotFound(innermost_cause(&error)));
    LIBRARY.get_or_init(open).as_ref().map_err(Clone::clone)
}

fn failed_call(call: &'static str) -> impl Fn(nvml_wrapper::error::NvmlError) -> NvmlError {
    move |error| NvmlError::Failed { call, why: error.to_string() }
}

/// Returns the innermost cause of an error, in which the dynamic loader reports its reason.
fn innermost_cause(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), innermost_cause)
}
