//! The fence (all unsafe calls) around CUPTI's range profiler, which reads hardware counters while kernels run. A
//! device can read only a few at once, so the caller repeats the same work in several passes. One range covers the
//! whole work of a pass.

use super::cupti::{Cupti, CuptiError, CuptiStatus, Result, Words};
use super::driver::Device;
use super::parameters::{self as given, Functions, Handle};
pub use super::parameters::{ParameterLayout, layouts};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::offset_of;
use std::rc::Rc;

pub const USER_RANGES: c_int = 2;
pub const USER_REPLAY: c_int = 3;

pub struct Profiler {
    calls: Rc<ProfilerCalls>,
    chip: Rc<Chip>,
}

struct Chip {
    name: CString,
    /// Counters that the device can read, in CUPTI's encoding.
    availability: CounterImage,
}

pub struct Config {
    host: HostProfiler,
    names: Vec<CString>,
    image: CounterImage,
    passes: usize,
}

struct ProfilerCalls {
    functions: Functions,
    words: Words,
}

struct HostProfiler {
    calls: Rc<ProfilerCalls>,
    handle: Handle,
    // CUPTI keeps addresses of the chip's data as long as the object exists.
    _chip: Rc<Chip>,
}

struct ProfilerSession<'a> {
    calls: &'a ProfilerCalls,
    handle: Handle,
    // Keeps the context alive.
    _device: &'a Device,
}

/// A session that reads counters. CUPTI uses both images until the session ends, so the session is dropped first.
struct Counting<'a> {
    session: ProfilerSession<'a>,
    data: CounterImage,
    config: &'a mut Config,
}

/// A data buffer of CUPTI, stored as 64-bit words for alignment.
struct CounterImage {
    words: Vec<u64>,
    bytes: usize,
}

macro_rules! call {
    ($calls:expr, $function:ident, $given:ident) => {{
        let calls: &ProfilerCalls = $calls;
        // SAFETY: the structure belongs to the function and contains its own size; every address in
        // it is null or points to memory or an object that outlives the call.
        let status = unsafe { (calls.functions.$function)(&raw mut $given) };
        calls.words.check_status(given::symbols::$function, status)
    }};
}

impl Profiler {
    pub fn open(cupti: &Cupti, device: &Device) -> Result<Profiler> {
        let calls =
            ProfilerCalls { functions: Functions::look_up(cupti.loaded_library())?, words: cupti.status_words() };
        let mut begun = given::Initialize::blank();
        call!(&calls, initialize, begun)?;
        let mut asked = given::Supported { device: device.driver_ordinal(), ..given::Supported::blank() };
        // The check is only advisory: a later call reports what really prevents profiling.
        if call!(&calls, supported, asked).is_ok() {
            check_support(&asked)?;
        }
        let place = usize::try_from(device.driver_ordinal()).unwrap_or(0);
        let mut named = given::ChipName { device: place, ..given::ChipName::blank() };
        call!(&calls, chip_name, named)?;
        if named.chip.is_null() {
            return Err(CuptiError::Unsupported("CUPTI does not know the chip".to_owned()));
        }
        // SAFETY: the call returned a terminated text owned by CUPTI, which is copied at once.
        let name = unsafe { CStr::from_ptr(named.chip) }.to_owned();
        let availability = read_availability(&calls, device)?;
        Ok(Profiler { calls: Rc::new(calls), chip: Rc::new(Chip { name, availability }) })
    }

    /// Returns the name of the chip, such as `GH100`.
    pub fn chip_name(&self) -> String {
        self.chip.name.to_string_lossy().into_owned()
    }

    /// Checks the permission to read counters by beginning and ending a session.
    pub fn check_permission(&self, device: &Device) -> Result<()> {
        ProfilerSession::begin_session(&self.calls, device).map(drop)
    }

    /// Returns the names of the chip's metrics up to their first point; the rest of a name selects an aggregation.
    pub fn base_metrics(&self) -> Result<BTreeSet<String>> {
        const COUNTERS_RATIOS_THROUGHPUTS: [c_int; 3] = [0, 1, 2];
        let host = HostProfiler::create_host(self)?;
        let mut found = BTreeSet::new();
        for kind in COUNTERS_RATIOS_THROUGHPUTS {
            let mut listed = given::BaseMetrics { host: host.handle, kind, ..given::BaseMetrics::blank() };
            call!(&self.calls, base_metrics, listed)?;
            for place in 0..listed.count {
                // SAFETY: the call returned as many terminated texts as it counted, which exist as
                // long as the host object.
                let name = unsafe { CStr::from_ptr(*listed.names.add(place)) };
                found.insert(name.to_string_lossy().into_owned());
            }
        }
        Ok(found)
    }

    pub fn prepare_config(&self, metrics: &[&str]) -> Result<Config> {
        let named = |metric: &&str| {
            CString::new(*metric).map_err(|_| {
                CuptiError::Unsupported(format!("`{}` is not a valid metric name", metric.escape_default()))
            })
        };
        let names = metrics.iter().map(named).collect::<Result<Vec<_>>>()?;
        let texts = text_pointers(&names);
        let host = HostProfiler::create_host(self)?;
        let mut added = given::AddMetrics {
            host: host.handle,
            names: texts.as_ptr(),
            count: texts.len(),
            ..given::AddMetrics::blank()
        };
        call!(&self.calls, add_metrics, added)?;
        let mut size = given::ConfigSize { host: host.handle, ..given::ConfigSize::blank() };
        call!(&self.calls, config_size, size)?;
        let mut image = CounterImage::new(size.bytes)?;
        let mut whole = given::ConfigImage {
            host: host.handle,
            bytes: image.bytes,
            image: image.base_pointer(),
            ..given::ConfigImage::blank()
        };
        call!(&self.calls, config, whole)?;
        let mut counted = given::Passes { bytes: image.bytes, image: image.base_pointer(), ..given::Passes::blank() };
        call!(&self.calls, passes, counted)?;
        Ok(Config { host, names, image, passes: counted.count })
    }

    /// Returns the metrics of `work`, which runs once per pass, each time after `ready`, and must be repeatable.
    pub fn measure_metrics<E: From<CuptiError>>(
        &self,
        device: &Device,
        config: &mut Config,
        mut ready: impl FnMut() -> std::result::Result<(), E>,
        mut work: impl FnMut() -> std::result::Result<(), E>,
    ) -> std::result::Result<Vec<f64>, E> {
        /// Passes allowed beyond CUPTI's number, because some metrics need one pass per nesting level of ranges.
        const PASSES_SPARE: usize = 4;
        let mut counting = ProfilerSession::begin_session(&self.calls, device)?.start_counting(config)?;
        let passes = counting.config.passes.saturating_add(PASSES_SPARE);
        for _ in 0..passes {
            ready()?;
            if counting.session.run_pass(&mut work)? {
                counting.session.decode_counters()?;
                return Ok(counting.config.evaluate_metrics(&mut counting.data)?);
            }
        }
        Err(CuptiError::Unsupported(format!("the counters were not complete after {passes} passes")).into())
    }
}

/// Returns the available counters, encoded. Releases before 13.1 reject the field for device-wide counters.
fn read_availability(calls: &ProfilerCalls, device: &Device) -> Result<CounterImage> {
    const INVALID_PARAMETER: CuptiStatus = 1;
    let mut given =
        given::Availability { context: device.raw_context(), with_device_counters: 1, ..given::Availability::blank() };
    let first = call!(calls, availability, given);
    if first.as_ref().is_err_and(|error| error.status_code() == Some(INVALID_PARAMETER)) {
        given.size = offset_of!(given::Availability, with_device_counters);
        call!(calls, availability, given)?;
    } else {
        first?;
    }
    let mut image = CounterImage::new(given.image_bytes)?;
    given.image = image.base_pointer();
    call!(calls, availability, given)?;
    Ok(image)
}

impl Config {
    /// Returns the values of the metrics, in their order, in the session's only range.
    fn evaluate_metrics(&self, data: &mut CounterImage) -> Result<Vec<f64>> {
        let texts = text_pointers(&self.names);
        let mut values = vec![f64::NAN; texts.len()];
        let mut asked = given::Evaluate {
            host: self.host.handle,
            data: data.base_pointer(),
            data_bytes: data.bytes,
            range: 0,
            names: texts.as_ptr(),
            count: texts.len(),
            values: values.as_mut_ptr(),
            ..given::Evaluate::blank()
        };
        call!(&self.host.calls, evaluate, asked)?;
        Ok(values)
    }
}

impl HostProfiler {
    fn create_host(profiler: &Profiler) -> Result<HostProfiler> {
        const RANGE_PROFILER: c_int = 0;
        let mut made = given::MakeHost {
            kind: RANGE_PROFILER,
            chip: profiler.chip.name.as_ptr(),
            availability: profiler.chip.availability.words.as_ptr().cast(),
            ..given::MakeHost::blank()
        };
        call!(&profiler.calls, make_host, made)?;
        Ok(HostProfiler { calls: Rc::clone(&profiler.calls), handle: made.host, _chip: Rc::clone(&profiler.chip) })
    }
}

impl Drop for HostProfiler {
    fn drop(&mut self) {
        let mut ended = given::DestroyHost { host: self.handle, ..given::DestroyHost::blank() };
        // A failure here cannot be reported.
        let _ = call!(&self.calls, destroy_host, ended);
    }
}

impl<'a> ProfilerSession<'a> {
    fn begin_session(calls: &'a ProfilerCalls, device: &'a Device) -> Result<ProfilerSession<'a>> {
        let mut begun = given::Enable { context: device.raw_context(), ..given::Enable::blank() };
        call!(calls, enable, begun)?;
        Ok(ProfilerSession { calls, handle: begun.profiler, _device: device })
    }

    fn allocate_data(&self, config: &Config) -> Result<CounterImage> {
        let texts = text_pointers(&config.names);
        let mut size = given::DataSize {
            profiler: self.handle,
            names: texts.as_ptr(),
            count: texts.len(),
            ranges_max: 1,
            nodes_max: 1,
            ..given::DataSize::blank()
        };
        call!(self.calls, data_size, size)?;
        let mut data = CounterImage::new(size.bytes)?;
        let mut begun = given::BeginData {
            profiler: self.handle,
            bytes: data.bytes,
            data: data.base_pointer(),
            ..given::BeginData::blank()
        };
        call!(self.calls, begin_data, begun)?;
        Ok(data)
    }

    /// Starts to read counters, in the mode in which the caller marks the range and repeats the work.
    fn start_counting(self, config: &'a mut Config) -> Result<Counting<'a>> {
        let data = self.allocate_data(config)?;
        let mut counting = Counting { session: self, data, config };
        let Counting { session, data, config } = &mut counting;
        let mut set = given::SetConfig {
            profiler: session.handle,
            config_bytes: config.image.bytes,
            config: config.image.base_pointer(),
            data_bytes: data.bytes,
            data: data.base_pointer(),
            range: USER_RANGES,
            replay: USER_REPLAY,
            ranges_max: 1,
            levels: 1,
            first_level: 1,
            level: 1,
            ..given::SetConfig::blank()
        };
        call!(session.calls, set_config, set)?;
        Ok(counting)
    }

    /// Runs the work as one pass; returns whether no pass is left. The range excludes the wait for the end of the work.
    fn run_pass<E: From<CuptiError>>(
        &self,
        work: &mut impl FnMut() -> std::result::Result<(), E>,
    ) -> std::result::Result<bool, E> {
        const NAME: &CStr = c"work";
        let mut started = given::Start { profiler: self.handle, ..given::Start::blank() };
        call!(self.calls, start, started)?;
        let mut pushed = given::Push { profiler: self.handle, name: NAME.as_ptr(), ..given::Push::blank() };
        call!(self.calls, push, pushed)?;
        let worked = work();
        let mut popped = given::Pop { profiler: self.handle, ..given::Pop::blank() };
        let ended = call!(self.calls, pop, popped);
        let mut stopped = given::Stop { profiler: self.handle, ..given::Stop::blank() };
        let stop = call!(self.calls, stop, stopped);
        worked?;
        ended?;
        stop?;
        Ok(stopped.is_last != 0)
    }

    fn decode_counters(&self) -> Result<()> {
        let mut decoded = given::Decode { profiler: self.handle, ..given::Decode::blank() };
        call!(self.calls, decode, decoded)?;
        match decoded.dropped {
            0 => Ok(()),
            dropped => Err(CuptiError::Unsupported(format!("CUPTI dropped {dropped} ranges"))),
        }
    }
}

impl Drop for ProfilerSession<'_> {
    fn drop(&mut self) {
        let mut ended = given::Disable { profiler: self.handle, ..given::Disable::blank() };
        // A failure here cannot be reported.
        let _ = call!(self.calls, disable, ended);
    }
}

impl CounterImage {
    fn new(bytes: usize) -> Result<CounterImage> {
        const BYTES_MAX: usize = 256 << 20;
        if bytes > BYTES_MAX {
            return Err(CuptiError::Unsupported(format!("CUPTI requests a buffer of {bytes} bytes")));
        }
        Ok(CounterImage { words: vec![0; bytes.div_ceil(size_of::<u64>())], bytes })
    }

    fn base_pointer(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast()
    }
}

fn text_pointers(names: &[CString]) -> Vec<*const c_char> {
    names.iter().map(|name| name.as_ptr()).collect()
}

/// Results of CUPTI's check whether a device is supported, as number and name.
pub const SUPPORT_LEVELS: [(c_int, &str); 3] = [
    (1, "CUPTI_PROFILER_CONFIGURATION_UNSUPPORTED"),
    (2, "CUPTI_PROFILER_CONFIGURATION_DISABLED"),
    (3, "CUPTI_PROFILER_CONFIGURATION_SUPPORTED"),
];

fn check_support(asked: &given::Supported) -> Result<()> {
    let [(unsupported, _), (disabled, _), _] = SUPPORT_LEVELS;
    let is_obstacle = |level| level == unsupported || level == disabled;
    if !is_obstacle(asked.is_supported) {
        return Ok(());
    }
    let parts = [
        (asked.architecture, "its architecture is too old for the profiler"),
        (asked.sli, "it is connected to other GPUs by SLI"),
        (asked.virtual_gpu, "it is a virtual GPU without profiling"),
        (asked.confidential, "confidential computing is enabled"),
        (asked.mining, "it is a mining card"),
        (asked.wsl, "it is used through WSL"),
    ];
    let why: Vec<&str> = parts.into_iter().filter(|(level, _)| is_obstacle(*level)).map(|(_, why)| why).collect();
    let why = if why.is_empty() { "CUPTI gives no reason".to_owned() } else { why.join(", ") };
    Err(CuptiError::Unsupported(format!("the device does not support profiling: {why}")))
}

#[cfg(test)]
mod tests {
    use super::{check_support, given};

    #[test]
    fn obstacles_to_profiling_are_named() {
        let asked = |is_supported, virtual_gpu| given::Supported {
            is_supported,
            architecture: 3,
            virtual_gpu,
            ..given::Supported::blank()
        };
        assert!(check_support(&asked(3, 3)).is_ok() && check_support(&asked(0, 0)).is_ok());
        let refused = check_support(&asked(1, 2)).unwrap_err().to_string();
        assert!(
            refused.ends_with("the device does not support profiling: it is a virtual GPU without profiling"),
            "{refused}"
        );
        assert!(check_support(&asked(1, 3)).unwrap_err().to_string().ends_with("CUPTI gives no reason"));
    }
}
