//! The fence around NVML, the library of the NVIDIA driver that tells how a GPU fares: clocks, power, temperature, and
//! what holds its clocks back. It is part of the driver, and opened at run time.

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr::null_mut;

/// Why NVML tells nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum NvmlError {
    #[error("there is no NVML: {0}")]
    NotFound(String),
    #[error("NVML lacks `{0}`")]
    TooOld(&'static str),
    #[error("`{call}` of NVML failed: {why}")]
    Failed { call: &'static str, why: String },
}

type Result<T> = std::result::Result<T, NvmlError>;
type Status = c_int;
type Handle = *mut c_void;

const SUCCESS: Status = 0;
const ENERGY: &str = "nvmlDeviceGetTotalEnergyConsumption";

/// The functions in use, with the signatures of NVIDIA's reference of the library.
struct Functions {
    init: unsafe extern "C" fn() -> Status,
    shut_down: unsafe extern "C" fn() -> Status,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
    device: unsafe extern "C" fn(*const c_char, *mut Handle) -> Status,
    clock: unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> Status,
    power: unsafe extern "C" fn(Handle, *mut c_uint) -> Status,
    temperature: unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> Status,
    throttle: unsafe extern "C" fn(Handle, *mut c_ulonglong) -> Status,
    // Not of every release.
    energy: Option<unsafe extern "C" fn(Handle, *mut c_ulonglong) -> Status>,
}

/// NVML with one device.
pub struct Nvml {
    functions: Functions,
    device: Handle,
    // Keeps the functions' code mapped.
    _library: Library,
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
        // SAFETY: the driver's library sets up its own state when it is initialised below; it stays mapped while `Nvml` lives.
        let library = unsafe { Library::open(Some("libnvidia-ml.so.1"), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|error| {
            let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            NvmlError::NotFound(cause)
        })?;
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the field it goes to has the signature that NVIDIA's reference gives for this name.
                *unsafe { library.get($name.as_bytes()) }.map_err(|_| NvmlError::TooOld($name))?
            };
        }
        let functions = Functions {
            init: symbol!("nvmlInit_v2"),
            shut_down: symbol!("nvmlShutdown"),
            error_string: symbol!("nvmlErrorString"),
            device: symbol!("nvmlDeviceGetHandleByPciBusId_v2"),
            clock: symbol!("nvmlDeviceGetClockInfo"),
            power: symbol!("nvmlDeviceGetPowerUsage"),
            temperature: symbol!("nvmlDeviceGetTemperature"),
            throttle: symbol!("nvmlDeviceGetCurrentClocksThrottleReasons"),
            // SAFETY: as above.
            energy: unsafe { library.get(ENERGY.as_bytes()) }.ok().map(|symbol| *symbol),
        };
        // SAFETY: takes no arguments; undone when `Nvml` is dropped.
        functions.check("nvmlInit", unsafe { (functions.init)() })?;
        let mut nvml = Nvml { functions, device: null_mut(), _library: library };
        let call = "nvmlDeviceGetHandleByPciBusId";
        let bus = CString::new(pci_bus_id).map_err(|error| NvmlError::Failed { call, why: error.to_string() })?;
        // SAFETY: the text is terminated and outlives the call, which writes one handle.
        let status = unsafe { (nvml.functions.device)(bus.as_ptr(), &raw mut nvml.device) };
        nvml.functions.check(call, status)?;
        Ok(nvml)
    }

    /// How the device fares now.
    pub fn fares(&self) -> Fares {
        const SM: c_uint = 1;
        const MEMORY: c_uint = 2;
        const CHIP: c_uint = 0;
        let functions = &self.functions;
        let number = |call, get: &dyn Fn(*mut c_uint) -> Status| {
            let mut number = 0;
            functions.check(call, get(&raw mut number)).map(|()| number)
        };
        let mut throttle = 0;
        // SAFETY: the device is NVML's own, and the call writes one number to a place that outlives it.
        let throttle_status = unsafe { (functions.throttle)(self.device, &raw mut throttle) };
        Fares {
            // SAFETY: as above.
            sm_clock_mhz: number("nvmlDeviceGetClockInfo", &|to| unsafe { (functions.clock)(self.device, SM, to) }),
            // SAFETY: as above.
            memory_clock_mhz: number("nvmlDeviceGetClockInfo", &|to| unsafe {
                (functions.clock)(self.device, MEMORY, to)
            }),
            // SAFETY: as above.
            power_mw: number("nvmlDeviceGetPowerUsage", &|to| unsafe { (functions.power)(self.device, to) }),
            // SAFETY: as above.
            temperature_celsius: number("nvmlDeviceGetTemperature", &|to| unsafe {
                (functions.temperature)(self.device, CHIP, to)
            }),
            throttle: functions.check("nvmlDeviceGetCurrentClocksThrottleReasons", throttle_status).map(|()| throttle),
        }
    }

    /// What the board has used since the driver was loaded. It grows in steps of some ten milliseconds' use.
    pub fn energy_millijoules(&self) -> Result<u64> {
        let read = self.functions.energy.ok_or(NvmlError::TooOld(ENERGY))?;
        let mut energy = 0;
        // SAFETY: the device is NVML's own, and the call writes one number to a place that outlives it.
        self.functions.check(ENERGY, unsafe { read(self.device, &raw mut energy) }).map(|()| energy)
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: it was initialised once. A failure here has no one left to tell.
        unsafe { (self.functions.shut_down)() };
    }
}

impl Functions {
    fn check(&self, call: &'static str, status: Status) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: the call returns a static terminated string for any status.
        let why = unsafe { CStr::from_ptr((self.error_string)(status)) };
        Err(NvmlError::Failed { call, why: why.to_string_lossy().into_owned() })
    }
}
