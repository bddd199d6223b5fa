//! The fence around the CUDA driver: device memory, kernels, launches and events, behind safe types.
//!
//! The driver is part of what makes a GPU work, so it is there exactly where something can be launched; it is opened
//! at run time, and no toolkit or runtime library is needed. All calls belong to one thread, which `Device` keeps by
//! not being `Send`. Addresses never leave the fence.

mod lanes;

pub use lanes::{Lanes, Step};

use super::Image;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::rc::Rc;
use worker::RunnerProcess;

/// Why nothing can be launched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum DriverError {
    #[error("there is no NVIDIA driver: {0}")]
    NoDriver(String),
    #[error("the NVIDIA driver lacks `{0}`: it is older than CUDA 11.4")]
    TooOld(&'static str),
    #[error("there is no GPU: {0}")]
    NoDevice(String),
    #[error("`{call}` of the NVIDIA driver failed: {name}, {why}")]
    Failed { call: &'static str, name: String, why: String },
    #[error("kernel `{0}` cannot be named to the driver")]
    BadName(String),
    #[error("kernel `{0}` is to be launched on a grid of unknown size")]
    UnknownGrid(String),
    #[error(
        "kernel `{kernel}` is to be called with {given} arguments of up to 8 bytes, but takes some of {taken:?} bytes"
    )]
    OtherArguments { kernel: String, given: usize, taken: Vec<usize> },
}

/// What to do where nothing can be launched.
pub const HINT: &str = "install the NVIDIA driver (580 or newer for CUDA 13) on a machine with an NVIDIA GPU, and run \
                        the folder of artifacts there";

type Result<T> = std::result::Result<T, DriverError>;

type Status = c_int;
type Handle = *mut c_void;
type Address = u64;

const SUCCESS: Status = 0;

macro_rules! functions {
    ($($field:ident = $symbol:literal, ($($argument:ty),*);)*) => {
        /// The functions in use, with the signatures of `cuda.h`.
        struct Functions {
            $($field: unsafe extern "C" fn($($argument),*) -> Status,)*
            /// Offset and size of a parameter of a kernel; not of drivers before 12.4.
            parameter: Option<unsafe extern "C" fn(Handle, usize, *mut usize, *mut usize) -> Status>,
        }

        impl Functions {
            fn look_up(library: &Library) -> Result<Functions> {
                Ok(Functions {
                    $($field: {
                        // SAFETY: the field has the signature that NVIDIA's header gives for this name.
                        *unsafe { library.get($symbol.as_bytes()) }.map_err(|_| DriverError::TooOld($symbol))?
                    },)*
                    // SAFETY: as above.
                    parameter: unsafe { library.get(b"cuFuncGetParamInfo") }.ok().map(|symbol| *symbol),
                })
            }
        }
    };
}

functions! {
    init = "cuInit", (c_uint);
    version = "cuDriverGetVersion", (*mut c_int);
    count = "cuDeviceGetCount", (*mut c_int);
    device = "cuDeviceGet", (*mut c_int, c_int);
    device_name = "cuDeviceGetName", (*mut c_char, c_int, c_int);
    attribute = "cuDeviceGetAttribute", (*mut c_int, c_int, c_int);
    total_memory = "cuDeviceTotalMem_v2", (*mut usize, c_int);
    retain = "cuDevicePrimaryCtxRetain", (*mut Handle, c_int);
    release = "cuDevicePrimaryCtxRelease_v2", (c_int);
    set_current = "cuCtxSetCurrent", (Handle);
    synchronize = "cuCtxSynchronize", ();
    bus = "cuDeviceGetPCIBusId", (*mut c_char, c_int, c_int);
    memory = "cuMemGetInfo_v2", (*mut usize, *mut usize);
    make_stream = "cuStreamCreate", (*mut Handle, c_uint);
    destroy_stream = "cuStreamDestroy_v2", (Handle);
    begin_capture = "cuStreamBeginCapture_v2", (Handle, c_int);
    end_capture = "cuStreamEndCapture", (Handle, *mut Handle);
    instantiate = "cuGraphInstantiateWithFlags", (*mut Handle, Handle, u64);
    launch_graph = "cuGraphLaunch", (Handle, Handle);
    destroy_ready = "cuGraphExecDestroy", (Handle);
    destroy_graph = "cuGraphDestroy", (Handle);
    load = "cuModuleLoadData", (*mut Handle, *const c_void);
    unload = "cuModuleUnload", (Handle);
    kernel = "cuModuleGetFunction", (*mut Handle, Handle, *const c_char);
    set_attribute = "cuFuncSetAttribute", (Handle, c_int, c_int);
    allocate = "cuMemAlloc_v2", (*mut Address, usize);
    free = "cuMemFree_v2", (Address);
    to_device = "cuMemcpyHtoD_v2", (Address, *const c_void, usize);
    to_host = "cuMemcpyDtoH_v2", (*mut c_void, Address, usize);
    fill = "cuMemsetD8_v2", (Address, u8, usize);
    launch = "cuLaunchKernel",
        (Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void);
    make_event = "cuEventCreate", (*mut Handle, c_uint);
    record = "cuEventRecord", (Handle, Handle);
    hold = "cuStreamWaitEvent", (Handle, Handle, c_uint);
    wait = "cuEventSynchronize", (Handle);
    elapsed = "cuEventElapsedTime", (*mut f32, Handle, Handle);
    destroy_event = "cuEventDestroy_v2", (Handle);
    error_name = "cuGetErrorName", (Status, *mut *const c_char);
    error_text = "cuGetErrorString", (Status, *mut *const c_char);
}

/// The driver and the context of its first device.
pub struct Device {
    functions: Functions,
    ordinal: c_int,
    context: Handle,
    // Calls of a context belong to the thread that made it current.
    _not_send: PhantomData<Rc<()>>,
    // Keeps the functions' code mapped; last, so that it is dropped last.
    _library: Library,
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Its name.
    pub name: String,
    /// Ten times its compute capability.
    pub capability: u32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of the second-level cache.
    pub l2_bytes: u64,
    /// The newest CUDA the driver understands, such as `13.0`.
    pub driver_cuda: String,
}

impl Device {
    /// Opens the driver and its first device. `CUDA_VISIBLE_DEVICES` chooses which one that is.
    pub fn open() -> Result<Device> {
        // SAFETY: the driver's initialisers set up its own state; it stays mapped while `Device` lives.
        let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|error| {
            let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            DriverError::NoDriver(cause)
        })?;
        let functions = Functions::look_up(&library)?;
        // SAFETY: takes no addresses.
        let begun = functions.check("cuInit", unsafe { (functions.init)(0) });
        begun.map_err(|error| DriverError::NoDevice(error.to_string()))?;
        let mut count = 0;
        // SAFETY: writes one integer to a place that outlives the call.
        functions.check("cuDeviceGetCount", unsafe { (functions.count)(&raw mut count) })?;
        if count == 0 {
            return Err(DriverError::NoDevice("the driver counts none".to_owned()));
        }
        let (mut ordinal, mut context) = (0, null_mut());
        // SAFETY: as above; there is at least one device.
        functions.check("cuDeviceGet", unsafe { (functions.device)(&raw mut ordinal, 0) })?;
        // SAFETY: the device exists, the handle has a place.
        functions.check("cuDevicePrimaryCtxRetain", unsafe { (functions.retain)(&raw mut context, ordinal) })?;
        let device = Device { functions, ordinal, context, _not_send: PhantomData, _library: library };
        // SAFETY: the context was just retained and is released when `Device` is dropped.
        device.check("cuCtxSetCurrent", unsafe { (device.functions.set_current)(context) })?;
        Ok(device)
    }

    /// What it is.
    pub fn facts(&self) -> Result<DeviceFacts> {
        const MULTIPROCESSORS: c_int = 16;
        const L2_BYTES: c_int = 38;
        const CAPABILITY_MAJOR: c_int = 75;
        const CAPABILITY_MINOR: c_int = 76;
        let mut memory = 0usize;
        // SAFETY: writes one number to a place that outlives the call.
        self.check("cuDeviceTotalMem", unsafe { (self.functions.total_memory)(&raw mut memory, self.ordinal) })?;
        let mut version = 0;
        // SAFETY: as above.
        self.check("cuDriverGetVersion", unsafe { (self.functions.version)(&raw mut version) })?;
        Ok(DeviceFacts {
            name: self.text("cuDeviceGetName", self.functions.device_name)?,
            capability: 10 * self.attribute(CAPABILITY_MAJOR)? + self.attribute(CAPABILITY_MINOR)?,
            multiprocessors: self.attribute(MULTIPROCESSORS)?,
            memory_bytes: memory as u64,
            l2_bytes: u64::from(self.attribute(L2_BYTES)?),
            driver_cuda: format!("{}.{}", version / 1000, version % 1000 / 10),
        })
    }

    /// Its number at the driver, for the other fences.
    pub(super) fn ordinal(&self) -> c_int {
        self.ordinal
    }

    /// Its context, for the other fences: alive as long as the device.
    pub(super) fn context(&self) -> Handle {
        self.context
    }

    /// Its address on the PCI bus.
    pub fn pci_bus_id(&self) -> Result<String> {
        self.text("cuDeviceGetPCIBusId", self.functions.bus)
    }

    /// Bytes of memory that nobody has.
    pub fn free_memory_bytes(&self) -> Result<u64> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two numbers to places that outlive the call.
        self.check("cuMemGetInfo", unsafe { (self.functions.memory)(&raw mut free, &raw mut total) })?;
        Ok(free as u64)
    }

    /// A text of the device.
    fn text(
        &self,
        call: &'static str,
        get: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Status,
    ) -> Result<String> {
        let mut text = [0u8; 256];
        let room = c_int::try_from(text.len() - 1).expect("a small number");
        // SAFETY: writes at most `room` bytes, one less than the buffer, so that it stays terminated.
        self.check(call, unsafe { get(text.as_mut_ptr().cast(), room, self.ordinal) })?;
        Ok(CStr::from_bytes_until_nul(&text).map_or_else(|_| String::new(), |text| text.to_string_lossy().into()))
    }

    fn attribute(&self, number: c_int) -> Result<u32> {
        let mut value = 0;
        // SAFETY: writes one integer to a place that outlives the call.
        let status = unsafe { (self.functions.attribute)(&raw mut value, number, self.ordinal) };
        self.check("cuDeviceGetAttribute", status)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// Device memory, its content undefined.
    pub fn allocate(&self, bytes: usize) -> Result<DeviceBuffer<'_>> {
        let mut address = 0;
        // SAFETY: writes one address; the driver refuses zero bytes, hence at least one.
        self.check("cuMemAlloc", unsafe { (self.functions.allocate)(&raw mut address, bytes.max(1)) })?;
        Ok(DeviceBuffer { device: self, address, bytes })
    }

    /// Machine code, ready to be launched.
    pub fn load<'a>(&'a self, _: RunnerProcess, image: Image<'_>) -> Result<DeviceModule<'a>> {
        let mut handle = null_mut();
        let bytes = image.bytes();
        // SAFETY: the driver reads as far as the image says, which is no further than its bytes, and copies it during the
        // call; what its code does when it is launched is for a runner to survive, and the caller shows that this is one.
        self.check("cuModuleLoadData", unsafe { (self.functions.load)(&raw mut handle, bytes.as_ptr().cast()) })?;
        Ok(DeviceModule { device: self, handle })
    }

    /// A list of launches that the device is asked for at once.
    pub fn graph<'a>(&'a self, kernels: &[&'a Prepared<'a>]) -> Result<Graph<'a>> {
        self.capture(|stream| kernels.iter().try_for_each(|kernel| kernel.launch_on(stream)))
    }

    /// What `ask` asks of a stream, as one graph; what it launches has to live as long as that.
    fn capture<'a>(&'a self, ask: impl FnOnce(Handle) -> Result<()>) -> Result<Graph<'a>> {
        const DEFAULT: c_uint = 0;
        const OF_THIS_THREAD: c_int = 1;
        let functions = &self.functions;
        let mut graph =
            Graph { device: self, stream: null_mut(), listed: null_mut(), ready: null_mut(), _of: PhantomData };
        // SAFETY: writes one handle to a place that outlives the call; `Graph` destroys it.
        self.check("cuStreamCreate", unsafe { (functions.make_stream)(&raw mut graph.stream, DEFAULT) })?;
        // SAFETY: the stream was just made.
        self.check("cuStreamBeginCapture", unsafe { (functions.begin_capture)(graph.stream, OF_THIS_THREAD) })?;
        let asked = ask(graph.stream);
        // SAFETY: the stream is being captured; writes one handle, or null, to a place that outlives the call.
        let status = unsafe { (functions.end_capture)(graph.stream, &raw mut graph.listed) };
        asked?;
        self.check("cuStreamEndCapture", status)?;
        // SAFETY: the graph is complete; writes one handle to a place that outlives the call.
        let status = unsafe { (functions.instantiate)(&raw mut graph.ready, graph.listed, 0) };
        self.check("cuGraphInstantiate", status)?;
        Ok(graph)
    }

    /// A mark on the device's time line.
    pub fn event(&self) -> Result<Event<'_>> {
        const DEFAULT: c_uint = 0;
        let mut handle = null_mut();
        // SAFETY: writes one handle to a place that outlives the call.
        self.check("cuEventCreate", unsafe { (self.functions.make_event)(&raw mut handle, DEFAULT) })?;
        Ok(Event { device: self, handle, is_recorded: Cell::new(false) })
    }

    /// Waits until everything asked for has happened; tells of any failure in it.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: takes no arguments; the context is current on this thread.
        self.check("cuCtxSynchronize", unsafe { (self.functions.synchronize)() })
    }

    fn check(&self, call: &'static str, status: Status) -> Result<()> {
        self.functions.check(call, status)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: the context was retained once. A failure here has no one left to tell.
        unsafe { (self.functions.release)(self.ordinal) };
    }
}

impl Functions {
    fn check(&self, call: &'static str, status: Status) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        let text = |get: unsafe extern "C" fn(Status, *mut *const c_char) -> Status| {
            let mut text = std::ptr::null();
            // SAFETY: writes the address of a static terminated string, or null for an unknown status.
            let known = unsafe { get(status, &raw mut text) } == SUCCESS && !text.is_null();
            if !known {
                return format!("error {status}");
            }
            // SAFETY: a terminated text, as was just checked.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(DriverError::Failed { call, name: text(self.error_name), why: text(self.error_text) })
    }
}

/// Memory of the device.
pub struct DeviceBuffer<'a> {
    device: &'a Device,
    address: Address,
    bytes: usize,
}

impl DeviceBuffer<'_> {
    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets all bytes.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        assert_eq!(bytes.len(), self.bytes, "a buffer is written whole");
        // SAFETY: the buffer has as many bytes as the slice.
        let status = unsafe { (self.device.functions.to_device)(self.address, bytes.as_ptr().cast(), self.bytes) };
        self.device.check("cuMemcpyHtoD", status)
    }

    /// All bytes, after everything asked for before has happened.
    pub fn read(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0u8; self.bytes];
        // SAFETY: the vector has as many bytes as the buffer.
        let status = unsafe { (self.device.functions.to_host)(bytes.as_mut_ptr().cast(), self.address, self.bytes) };
        self.device.check("cuMemcpyDtoH", status)?;
        Ok(bytes)
    }

    /// What begins so far inside, for a kernel; nothing where that is beyond the end.
    pub fn part(&self, offset: u64) -> Option<Given<'_>> {
        (offset <= self.bytes as u64).then_some(Given::Part(self, offset))
    }

    /// Sets every byte to the same value.
    pub fn fill(&self, byte: u8) -> Result<()> {
        // SAFETY: the buffer has that many bytes.
        let status = unsafe { (self.device.functions.fill)(self.address, byte, self.bytes) };
        self.device.check("cuMemsetD8", status)
    }
}

impl Drop for DeviceBuffer<'_> {
    fn drop(&mut self) {
        // SAFETY: the address came from `allocate` and is freed once; the driver waits for kernels that use it.
        unsafe { (self.device.functions.free)(self.address) };
    }
}

/// An argument of a kernel.
#[derive(Clone, Copy)]
pub enum Given<'a> {
    /// A buffer, by its address.
    Buffer(&'a DeviceBuffer<'a>),
    /// What begins so far inside of a buffer.
    Part(&'a DeviceBuffer<'a>, u64),
    /// A whole number.
    Number(i64),
}

impl Given<'_> {
    fn bits(&self) -> u64 {
        match self {
            Given::Buffer(buffer) => buffer.address,
            Given::Part(buffer, offset) => buffer.address.saturating_add(*offset),
            Given::Number(number) => number.cast_unsigned(),
        }
    }
}

/// Loaded machine code.
pub struct DeviceModule<'a> {
    device: &'a Device,
    handle: Handle,
}

/// A kernel of loaded machine code with all it is launched with.
pub struct Prepared<'a> {
    device: &'a Device,
    kernel: Handle,
    /// Addresses and numbers; of a number of 32 bits the kernel reads the first four bytes.
    arguments: Vec<u64>,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared_bytes: u32,
    // What the launch refers to.
    _module: &'a DeviceModule<'a>,
}

impl DeviceModule<'_> {
    /// Prepares a launch, whose numbers must be known, with these arguments, which must be as many as the kernel takes.
    ///
    /// What the kernel does with them is the promise of whoever built it; there is a module only in a runner.
    pub fn prepare<'a>(&'a self, launch: &job::device::Launch, arguments: &[Given<'a>]) -> Result<Prepared<'a>> {
        const MOST_DYNAMIC_SHARED: c_int = 8;
        const STATIC_SHARED: u32 = job::device::STATIC_SHARED_BYTES;
        let bad_name = |_| DriverError::BadName(launch.kernel.clone());
        let name = CString::new(launch.kernel.as_str()).map_err(bad_name)?;
        let functions = &self.device.functions;
        let [x, y, z] = launch.known_grid().ok_or_else(|| DriverError::UnknownGrid(launch.kernel.clone()))?;
        let mut kernel = null_mut();
        // SAFETY: the module is loaded, the name is terminated and outlives the call.
        let status = unsafe { (functions.kernel)(&raw mut kernel, self.handle, name.as_ptr()) };
        self.device.check("cuModuleGetFunction", status)?;
        self.check_arguments(&launch.kernel, kernel, arguments.len())?;
        if launch.dynamic_shared_bytes > STATIC_SHARED {
            let bytes = c_int::try_from(launch.dynamic_shared_bytes).unwrap_or(c_int::MAX);
            // SAFETY: the kernel was just found.
            let status = unsafe { (functions.set_attribute)(kernel, MOST_DYNAMIC_SHARED, bytes) };
            self.device.check("cuFuncSetAttribute", status)?;
        }
        Ok(Prepared {
            device: self.device,
            kernel,
            arguments: arguments.iter().map(Given::bits).collect(),
            // More than these bits hold is beyond every limit that was checked.
            grid: [x, y, z].map(|extent| u32::try_from(extent).unwrap_or(u32::MAX)),
            block: launch.block,
            dynamic_shared_bytes: launch.dynamic_shared_bytes,
            _module: self,
        })
    }

    /// Whether the kernel takes so many arguments of at most eight bytes: the driver reads as many as it takes. A driver
    /// that does not tell leaves that to whoever built the kernel.
    fn check_arguments(&self, name: &str, kernel: Handle, given: usize) -> Result<()> {
        let Some(parameter) = self.device.functions.parameter else { return Ok(()) };
        let bytes = |place| {
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: the kernel was just found; writes two numbers to places that outlive the call.
            let status = unsafe { parameter(kernel, place, &raw mut offset, &raw mut bytes) };
            (status == SUCCESS).then_some(bytes)
        };
        // One more than there should be shows itself, too.
        let taken: Vec<usize> = (0..=given).map_while(bytes).collect();
        if taken.len() == given && taken.iter().all(|&bytes| bytes <= size_of::<u64>()) {
            return Ok(());
        }
        Err(DriverError::OtherArguments { kernel: name.to_owned(), given, taken })
    }
}

impl Drop for DeviceModule<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from `load` and is unloaded once.
        unsafe { (self.device.functions.unload)(self.handle) };
    }
}

impl Prepared<'_> {
    /// Asks the device to run the kernel; does not wait.
    pub fn launch(&self) -> Result<()> {
        self.launch_on(null_mut())
    }

    fn launch_on(&self, stream: Handle) -> Result<()> {
        let mut arguments: Vec<*mut c_void> =
            self.arguments.iter().map(|argument| std::ptr::from_ref(argument).cast_mut().cast()).collect();
        let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) = (self.grid, self.block);
        // SAFETY: the kernel belongs to a loaded module that this borrows; each argument points to eight bytes that
        // outlive the call, which copies as many of them as the parameter has; `check_arguments` counted them.
        let status = unsafe {
            (self.device.functions.launch)(
                self.kernel,
                grid_x,
                grid_y,
                grid_z,
                block_x,
                block_y,
                block_z,
                self.dynamic_shared_bytes,
                stream,
                arguments.as_mut_ptr(),
                null_mut(),
            )
        };
        self.device.check("cuLaunchKernel", status)
    }
}

/// A list of launches that the device is asked for at once.
pub struct Graph<'a> {
    device: &'a Device,
    stream: Handle,
    listed: Handle,
    ready: Handle,
    // What the launches refer to.
    _of: PhantomData<&'a Prepared<'a>>,
}

impl Graph<'_> {
    /// Asks the device for all of it; does not wait.
    pub fn launch(&self) -> Result<()> {
        // SAFETY: the graph is ready, and its kernels, modules and buffers are borrowed.
        self.device.check("cuGraphLaunch", unsafe { (self.device.functions.launch_graph)(self.ready, null_mut()) })
    }
}

impl Drop for Graph<'_> {
    fn drop(&mut self) {
        let functions = &self.device.functions;
        let destroy = |handle: Handle, destroy: unsafe extern "C" fn(Handle) -> Status| {
            if !handle.is_null() {
                // SAFETY: the handle was made by the call of the same kind, and is destroyed once.
                unsafe { destroy(handle) };
            }
        };
        destroy(self.ready, functions.destroy_ready);
        destroy(self.listed, functions.destroy_graph);
        destroy(self.stream, functions.destroy_stream);
    }
}

/// A mark on the device's time line.
pub struct Event<'a> {
    device: &'a Device,
    handle: Handle,
    is_recorded: Cell<bool>,
}

impl Event<'_> {
    /// Puts the mark behind everything asked for so far.
    pub fn record(&self) -> Result<()> {
        self.record_on(null_mut())
    }

    /// Puts the mark behind everything that a stream was asked for so far; none is the one everything else runs on.
    fn record_on(&self, stream: Handle) -> Result<()> {
        // SAFETY: the event and the stream live.
        self.device.check("cuEventRecord", unsafe { (self.device.functions.record)(self.handle, stream) })?;
        self.is_recorded.set(true);
        Ok(())
    }

    /// Lets a stream wait for the mark with whatever it is asked for next.
    fn hold(&self, stream: Handle) -> Result<()> {
        const DEFAULT: c_uint = 0;
        // SAFETY: the event and the stream live.
        let status = unsafe { (self.device.functions.hold)(stream, self.handle, DEFAULT) };
        self.device.check("cuStreamWaitEvent", status)
    }

    /// Waits until the device has passed the mark; tells of any failure before it.
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the event lives.
        self.device.check("cuEventSynchronize", unsafe { (self.device.functions.wait)(self.handle) })
    }

    /// Time from an earlier mark to this one, both passed, in nanoseconds.
    pub fn since_ns(&self, earlier: &Event<'_>) -> Result<u64> {
        assert!(self.is_recorded.get() && earlier.is_recorded.get(), "marks are put before they are compared");
        let mut elapsed_ms = 0f32;
        // SAFETY: both events live and were recorded; writes one number to a place that outlives the call.
        let status = unsafe { (self.device.functions.elapsed)(&raw mut elapsed_ms, earlier.handle, self.handle) };
        self.device.check("cuEventElapsedTime", status)?;
        Ok((f64::from(elapsed_ms) * 1e6).round() as u64)
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from `event` and is destroyed once.
        unsafe { (self.device.functions.destroy_event)(self.handle) };
    }
}
