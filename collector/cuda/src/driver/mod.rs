//! The fence (all unsafe calls) around the CUDA driver: device memory, kernels, launches and events as safe types. The
//! driver is opened at run time, so neither a toolkit nor a runtime library is needed. All calls belong to one thread:
//! `Device` is not `Send`. Other modules never get device addresses.

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

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum DriverError {
    #[error("there is no NVIDIA driver: {0}")]
    NoDriver(String),
    #[error("the NVIDIA driver lacks the function `{0}`, so it is older than CUDA 11.4")]
    TooOld(&'static str),
    #[error("there is no GPU: {0}")]
    NoDevice(String),
    #[error("`{call}` of the NVIDIA driver failed: {name}, {why}")]
    Failed { call: &'static str, name: String, why: String },
    #[error("the kernel name `{0}` contains a zero byte")]
    BadName(String),
    #[error("the grid size of kernel `{0}` is unknown before the launch")]
    UnknownGrid(String),
    #[error("kernel `{kernel}` has parameters of {taken:?} bytes, but gets {given} arguments of up to 8 bytes")]
    OtherArguments { kernel: String, given: usize, taken: Vec<usize> },
}

pub const HINT: &str = "install the NVIDIA driver (580 or newer for CUDA 13) on a machine with an NVIDIA GPU, and run \
                        the folder of artifacts there";

type Result<T> = std::result::Result<T, DriverError>;

type Status = c_int;
type DriverHandle = *mut c_void;
type DeviceAddress = u64;

const SUCCESS: Status = 0;

macro_rules! functions {
    ($($field:ident = $symbol:literal, ($($argument:ty),*);)*) => {
        /// Functions of the driver, with signatures as in `cuda.h`.
        struct DriverFunctions {
            $($field: unsafe extern "C" fn($($argument),*) -> Status,)*
            /// Returns offset and size of a kernel's parameter; missing in drivers before CUDA 12.4.
            parameter: Option<unsafe extern "C" fn(DriverHandle, usize, *mut usize, *mut usize) -> Status>,
        }

        impl DriverFunctions {
            fn look_up(library: &Library) -> Result<DriverFunctions> {
                Ok(DriverFunctions {
                    $($field: {
                        // SAFETY: the field has the signature that NVIDIA's header declares for
                        // this name.
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
    retain = "cuDevicePrimaryCtxRetain", (*mut DriverHandle, c_int);
    release = "cuDevicePrimaryCtxRelease_v2", (c_int);
    set_current = "cuCtxSetCurrent", (DriverHandle);
    synchronize = "cuCtxSynchronize", ();
    bus = "cuDeviceGetPCIBusId", (*mut c_char, c_int, c_int);
    memory = "cuMemGetInfo_v2", (*mut usize, *mut usize);
    make_stream = "cuStreamCreate", (*mut DriverHandle, c_uint);
    destroy_stream = "cuStreamDestroy_v2", (DriverHandle);
    begin_capture = "cuStreamBeginCapture_v2", (DriverHandle, c_int);
    end_capture = "cuStreamEndCapture", (DriverHandle, *mut DriverHandle);
    instantiate = "cuGraphInstantiateWithFlags", (*mut DriverHandle, DriverHandle, u64);
    launch_graph = "cuGraphLaunch", (DriverHandle, DriverHandle);
    destroy_ready = "cuGraphExecDestroy", (DriverHandle);
    destroy_graph = "cuGraphDestroy", (DriverHandle);
    load = "cuModuleLoadData", (*mut DriverHandle, *const c_void);
    unload = "cuModuleUnload", (DriverHandle);
    kernel = "cuModuleGetFunction", (*mut DriverHandle, DriverHandle, *const c_char);
    set_attribute = "cuFuncSetAttribute", (DriverHandle, c_int, c_int);
    allocate = "cuMemAlloc_v2", (*mut DeviceAddress, usize);
    free = "cuMemFree_v2", (DeviceAddress);
    to_device = "cuMemcpyHtoD_v2", (DeviceAddress, *const c_void, usize);
    to_host = "cuMemcpyDtoH_v2", (*mut c_void, DeviceAddress, usize);
    fill = "cuMemsetD8_v2", (DeviceAddress, u8, usize);
    launch = "cuLaunchKernel",
        (DriverHandle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, DriverHandle, *mut *mut c_void, *mut *mut c_void);
    make_event = "cuEventCreate", (*mut DriverHandle, c_uint);
    record = "cuEventRecord", (DriverHandle, DriverHandle);
    hold = "cuStreamWaitEvent", (DriverHandle, DriverHandle, c_uint);
    wait = "cuEventSynchronize", (DriverHandle);
    elapsed = "cuEventElapsedTime", (*mut f32, DriverHandle, DriverHandle);
    destroy_event = "cuEventDestroy_v2", (DriverHandle);
    error_name = "cuGetErrorName", (Status, *mut *const c_char);
    error_text = "cuGetErrorString", (Status, *mut *const c_char);
}

/// The CUDA driver, with a context on its first device.
pub struct Device {
    functions: DriverFunctions,
    ordinal: c_int,
    context: DriverHandle,
    // Calls of a context belong to the thread that made it current.
    _not_send: PhantomData<Rc<()>>,
    // Keeps the code of the functions mapped. Last field, so that it is dropped last.
    _library: Library,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    pub name: String,
    /// Compute capability times ten.
    pub capability: u32,
    pub multiprocessors: u32,
    pub memory_bytes: u64,
    pub l2_bytes: u64,
    /// Newest supported CUDA version, such as `13.0`.
    pub driver_cuda: String,
}

impl Device {
    /// Opens the first device, which `CUDA_VISIBLE_DEVICES` selects.
    pub fn open() -> Result<Device> {
        // SAFETY: the driver's initialisers set up its own state; the library stays mapped while
        // `Device` exists.
        let library = unsafe { Library::open(Some("libcuda.so.1"), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(|error| {
            let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            DriverError::NoDriver(cause)
        })?;
        let functions = DriverFunctions::look_up(&library)?;
        // SAFETY: the call takes no addresses.
        let begun = functions.check_status("cuInit", unsafe { (functions.init)(0) });
        begun.map_err(|error| DriverError::NoDevice(error.to_string()))?;
        let mut count = 0;
        // SAFETY: the call writes one integer to a variable that outlives it.
        functions.check_status("cuDeviceGetCount", unsafe { (functions.count)(&raw mut count) })?;
        if count == 0 {
            return Err(DriverError::NoDevice("the driver reports no device".to_owned()));
        }
        let (mut ordinal, mut context) = (0, null_mut());
        // SAFETY: as above; there is at least one device.
        functions.check_status("cuDeviceGet", unsafe { (functions.device)(&raw mut ordinal, 0) })?;
        // SAFETY: the device exists, and the call writes one handle to a variable.
        functions.check_status("cuDevicePrimaryCtxRetain", unsafe { (functions.retain)(&raw mut context, ordinal) })?;
        let device = Device { functions, ordinal, context, _not_send: PhantomData, _library: library };
        // SAFETY: the context was just retained and is released when `Device` is dropped.
        device.check_status("cuCtxSetCurrent", unsafe { (device.functions.set_current)(context) })?;
        Ok(device)
    }

    pub fn read_facts(&self) -> Result<DeviceFacts> {
        const MULTIPROCESSORS: c_int = 16;
        const L2_BYTES: c_int = 38;
        const CAPABILITY_MAJOR: c_int = 75;
        const CAPABILITY_MINOR: c_int = 76;
        let mut memory = 0usize;
        // SAFETY: the call writes one number to a variable that outlives it.
        self.check_status("cuDeviceTotalMem", unsafe { (self.functions.total_memory)(&raw mut memory, self.ordinal) })?;
        let mut version = 0;
        // SAFETY: as above.
        self.check_status("cuDriverGetVersion", unsafe { (self.functions.version)(&raw mut version) })?;
        Ok(DeviceFacts {
            name: self.text_property("cuDeviceGetName", self.functions.device_name)?,
            capability: 10 * self.read_attribute(CAPABILITY_MAJOR)? + self.read_attribute(CAPABILITY_MINOR)?,
            multiprocessors: self.read_attribute(MULTIPROCESSORS)?,
            memory_bytes: memory as u64,
            l2_bytes: u64::from(self.read_attribute(L2_BYTES)?),
            driver_cuda: format!("{}.{}", version / 1000, version % 1000 / 10),
        })
    }

    pub(super) fn driver_ordinal(&self) -> c_int {
        self.ordinal
    }

    pub(super) fn raw_context(&self) -> DriverHandle {
        self.context
    }

    pub fn pci_bus_id(&self) -> Result<String> {
        self.text_property("cuDeviceGetPCIBusId", self.functions.bus)
    }

    pub fn free_memory_bytes(&self) -> Result<u64> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the call writes two numbers to variables that outlive it.
        self.check_status("cuMemGetInfo", unsafe { (self.functions.memory)(&raw mut free, &raw mut total) })?;
        Ok(free as u64)
    }

    fn text_property(
        &self,
        call: &'static str,
        get: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Status,
    ) -> Result<String> {
        let mut text = [0u8; 256];
        let room = c_int::try_from(text.len() - 1).expect("a small number");
        // SAFETY: the call writes at most `room` bytes, one less than the buffer, so the text stays
        // terminated.
        self.check_status(call, unsafe { get(text.as_mut_ptr().cast(), room, self.ordinal) })?;
        Ok(CStr::from_bytes_until_nul(&text).map_or_else(|_| String::new(), |text| text.to_string_lossy().into()))
    }

    fn read_attribute(&self, number: c_int) -> Result<u32> {
        let mut value = 0;
        // SAFETY: the call writes one integer to a variable that outlives it.
        let status = unsafe { (self.functions.attribute)(&raw mut value, number, self.ordinal) };
        self.check_status("cuDeviceGetAttribute", status)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// Allocates device memory with undefined content.
    pub fn allocate_buffer(&self, bytes: usize) -> Result<DeviceBuffer<'_>> {
        let mut address = 0;
        // SAFETY: the call writes one address. The driver rejects zero bytes, so at least one is
        // requested.
        self.check_status("cuMemAlloc", unsafe { (self.functions.allocate)(&raw mut address, bytes.max(1)) })?;
        Ok(DeviceBuffer { device: self, address, bytes })
    }

    pub fn load_image<'a>(&'a self, _: RunnerProcess, image: Image<'_>) -> Result<DeviceModule<'a>> {
        let mut handle = null_mut();
        let bytes = image.as_bytes();
        // SAFETY: the driver determines the length from the image, which lies completely within its
        // bytes, and copies it during the call. Launched code may crash this process, which is a
        // runner, as the caller proves by `RunnerProcess`.
        self.check_status("cuModuleLoadData", unsafe {
            (self.functions.load)(&raw mut handle, bytes.as_ptr().cast())
        })?;
        Ok(DeviceModule { device: self, handle })
    }

    pub fn capture_launches<'a>(&'a self, kernels: &[&'a Prepared<'a>]) -> Result<Graph<'a>> {
        self.capture_requests(|stream| kernels.iter().try_for_each(|kernel| kernel.launch_on(stream)))
    }

    /// Captures the launches that `ask` submits to a stream as one CUDA graph, which the launched kernels must outlive.
    fn capture_requests<'a>(&'a self, ask: impl FnOnce(DriverHandle) -> Result<()>) -> Result<Graph<'a>> {
        const DEFAULT: c_uint = 0;
        const OF_THIS_THREAD: c_int = 1;
        let functions = &self.functions;
        let mut graph =
            Graph { device: self, stream: null_mut(), listed: null_mut(), ready: null_mut(), _of: PhantomData };
        // SAFETY: the call writes one handle to a variable that outlives it; `Graph` destroys the
        // handle.
        self.check_status("cuStreamCreate", unsafe { (functions.make_stream)(&raw mut graph.stream, DEFAULT) })?;
        // SAFETY: the stream was just created.
        self.check_status("cuStreamBeginCapture", unsafe { (functions.begin_capture)(graph.stream, OF_THIS_THREAD) })?;
        let asked = ask(graph.stream);
        // SAFETY: the stream is being captured; the call writes one handle, or null, to a variable
        // that outlives it.
        let status = unsafe { (functions.end_capture)(graph.stream, &raw mut graph.listed) };
        asked?;
        self.check_status("cuStreamEndCapture", status)?;
        // SAFETY: the graph is complete; the call writes one handle to a variable that outlives it.
        let status = unsafe { (functions.instantiate)(&raw mut graph.ready, graph.listed, 0) };
        self.check_status("cuGraphInstantiate", status)?;
        Ok(graph)
    }

    pub fn create_event(&self) -> Result<DeviceEvent<'_>> {
        const DEFAULT: c_uint = 0;
        let mut handle = null_mut();
        // SAFETY: the call writes one handle to a variable that outlives it.
        self.check_status("cuEventCreate", unsafe { (self.functions.make_event)(&raw mut handle, DEFAULT) })?;
        Ok(DeviceEvent { device: self, handle, is_recorded: Cell::new(false) })
    }

    /// Waits for all requests to the device and reports the failure of any.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the call takes no arguments; the context is current on this thread.
        self.check_status("cuCtxSynchronize", unsafe { (self.functions.synchronize)() })
    }

    fn check_status(&self, call: &'static str, status: Status) -> Result<()> {
        self.functions.check_status(call, status)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: the context was retained once. A failure here cannot be reported.
        unsafe { (self.functions.release)(self.ordinal) };
    }
}

impl DriverFunctions {
    fn check_status(&self, call: &'static str, status: Status) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        let text = |get: unsafe extern "C" fn(Status, *mut *const c_char) -> Status| {
            let mut text = std::ptr::null();
            // SAFETY: the call writes the address of a static terminated string, or null for an
            // unknown status.
            let known = unsafe { get(status, &raw mut text) } == SUCCESS && !text.is_null();
            if !known {
                return format!("error {status}");
            }
            // SAFETY: the text is not null and terminated, as checked above.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(DriverError::Failed { call, name: text(self.error_name), why: text(self.error_text) })
    }
}

pub struct DeviceBuffer<'a> {
    device: &'a Device,
    address: DeviceAddress,
    bytes: usize,
}

impl DeviceBuffer<'_> {
    pub fn size_bytes(&self) -> usize {
        self.bytes
    }

    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        assert_eq!(bytes.len(), self.bytes, "a buffer is always written as a whole");
        // SAFETY: the buffer has as many bytes as the slice.
        let status = unsafe { (self.device.functions.to_device)(self.address, bytes.as_ptr().cast(), self.bytes) };
        self.device.check_status("cuMemcpyHtoD", status)
    }

    /// Copies the content to the host, after waiting for all earlier requests.
    pub fn read(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0u8; self.bytes];
        // SAFETY: the vector has as many bytes as the buffer.
        let status = unsafe { (self.device.functions.to_host)(bytes.as_mut_ptr().cast(), self.address, self.bytes) };
        self.device.check_status("cuMemcpyDtoH", status)?;
        Ok(bytes)
    }

    /// Returns a kernel argument that points `offset` bytes into the buffer; None beyond its end.
    pub fn argument_at(&self, offset: u64) -> Option<LaunchArgument<'_>> {
        (offset <= self.bytes as u64).then_some(LaunchArgument::Part(self, offset))
    }

    pub fn fill_bytes(&self, byte: u8) -> Result<()> {
        // SAFETY: the buffer has that many bytes.
        let status = unsafe { (self.device.functions.fill)(self.address, byte, self.bytes) };
        self.device.check_status("cuMemsetD8", status)
    }
}

impl Drop for DeviceBuffer<'_> {
    fn drop(&mut self) {
        // SAFETY: the address came from `allocate_buffer` and is freed once; the driver waits for kernels that use it.
        unsafe { (self.device.functions.free)(self.address) };
    }
}

#[derive(Clone, Copy)]
pub enum LaunchArgument<'a> {
    Buffer(&'a DeviceBuffer<'a>),
    Part(&'a DeviceBuffer<'a>, u64),
    Number(i64),
}

impl LaunchArgument<'_> {
    fn argument_bits(&self) -> u64 {
        match self {
            LaunchArgument::Buffer(buffer) => buffer.address,
            LaunchArgument::Part(buffer, offset) => buffer.address.saturating_add(*offset),
            LaunchArgument::Number(number) => number.cast_unsigned(),
        }
    }
}

pub struct DeviceModule<'a> {
    device: &'a Device,
    handle: DriverHandle,
}

pub struct Prepared<'a> {
    device: &'a Device,
    kernel: DriverHandle,
    /// Kernel arguments: addresses and integers. A kernel reads a 32-bit integer from the first four bytes of eight.
    arguments: Vec<u64>,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared_bytes: u32,
    // Keeps the module of the kernel alive.
    _module: &'a DeviceModule<'a>,
}

impl DeviceModule<'_> {
    /// Prepares a launch. Nothing checks which memory the kernel accesses, so modules exist only in runner processes.
    pub fn prepare_launch<'a>(
        &'a self,
        launch: &job::device::Launch,
        arguments: &[LaunchArgument<'a>],
    ) -> Result<Prepared<'a>> {
        const DYNAMIC_SHARED_MAX: c_int = 8;
        const STATIC_SHARED: u32 = job::device::STATIC_SHARED_BYTES;
        let bad_name = |_| DriverError::BadName(launch.kernel.clone());
        let name = CString::new(launch.kernel.as_str()).map_err(bad_name)?;
        let functions = &self.device.functions;
        let [x, y, z] = launch.known_grid().ok_or_else(|| DriverError::UnknownGrid(launch.kernel.clone()))?;
        let mut kernel = null_mut();
        // SAFETY: the module is loaded; the name is terminated and outlives the call.
        let status = unsafe { (functions.kernel)(&raw mut kernel, self.handle, name.as_ptr()) };
        self.device.check_status("cuModuleGetFunction", status)?;
        self.check_arguments(&launch.kernel, kernel, arguments.len())?;
        if launch.dynamic_shared_bytes > STATIC_SHARED {
            let bytes = c_int::try_from(launch.dynamic_shared_bytes).unwrap_or(c_int::MAX);
            // SAFETY: the kernel was just found.
            let status = unsafe { (functions.set_attribute)(kernel, DYNAMIC_SHARED_MAX, bytes) };
            self.device.check_status("cuFuncSetAttribute", status)?;
        }
        Ok(Prepared {
            device: self.device,
            kernel,
            arguments: arguments.iter().map(LaunchArgument::argument_bits).collect(),
            // Larger values exceed every limit that was checked.
            grid: [x, y, z].map(|extent| u32::try_from(extent).unwrap_or(u32::MAX)),
            block: launch.block,
            dynamic_shared_bytes: launch.dynamic_shared_bytes,
            _module: self,
        })
    }

    /// Checks that a kernel has `given` parameters of at most eight bytes, because the driver reads one argument for
    /// each parameter. Accepts all kernels if the driver cannot report parameters.
    fn check_arguments(&self, name: &str, kernel: DriverHandle, given: usize) -> Result<()> {
        let Some(parameter) = self.device.functions.parameter else { return Ok(()) };
        let bytes = |place| {
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: the kernel was just found; the call writes two numbers to variables that
            // outlive it.
            let status = unsafe { parameter(kernel, place, &raw mut offset, &raw mut bytes) };
            (status == SUCCESS).then_some(bytes)
        };
        // The range includes one parameter more than arguments, to detect a missing argument.
        let taken: Vec<usize> = (0..=given).map_while(bytes).collect();
        if taken.len() == given && taken.iter().all(|&bytes| bytes <= size_of::<u64>()) {
            return Ok(());
        }
        Err(DriverError::OtherArguments { kernel: name.to_owned(), given, taken })
    }
}

impl Drop for DeviceModule<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from `load_image` and is unloaded once.
        unsafe { (self.device.functions.unload)(self.handle) };
    }
}

impl Prepared<'_> {
    pub fn submit_kernel(&self) -> Result<()> {
        self.launch_on(null_mut())
    }

    fn launch_on(&self, stream: DriverHandle) -> Result<()> {
        let mut arguments: Vec<*mut c_void> =
            self.arguments.iter().map(|argument| std::ptr::from_ref(argument).cast_mut().cast()).collect();
        let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) = (self.grid, self.block);
        // SAFETY: the kernel belongs to a loaded module that `self` borrows. Each argument points
        // to eight bytes that outlive the call, which copies as many bytes as the parameter has;
        // `check_arguments` checked their number.
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
        self.device.check_status("cuLaunchKernel", status)
    }
}

pub struct Graph<'a> {
    device: &'a Device,
    stream: DriverHandle,
    listed: DriverHandle,
    ready: DriverHandle,
    // The kernels of the launches must outlive the graph.
    _of: PhantomData<&'a Prepared<'a>>,
}

impl Graph<'_> {
    pub fn submit_graph(&self) -> Result<()> {
        // SAFETY: the graph is instantiated, and its kernels, modules and buffers are borrowed.
        self.device
            .check_status("cuGraphLaunch", unsafe { (self.device.functions.launch_graph)(self.ready, null_mut()) })
    }
}

impl Drop for Graph<'_> {
    fn drop(&mut self) {
        let functions = &self.device.functions;
        let destroy = |handle: DriverHandle, destroy: unsafe extern "C" fn(DriverHandle) -> Status| {
            if !handle.is_null() {
                // SAFETY: the handle was created by the call of the same kind, and is destroyed
                // once.
                unsafe { destroy(handle) };
            }
        };
        destroy(self.ready, functions.destroy_ready);
        destroy(self.listed, functions.destroy_graph);
        destroy(self.stream, functions.destroy_stream);
    }
}

pub struct DeviceEvent<'a> {
    device: &'a Device,
    handle: DriverHandle,
    is_recorded: Cell<bool>,
}

impl DeviceEvent<'_> {
    pub fn record_default(&self) -> Result<()> {
        self.record_on(null_mut())
    }

    /// Records the event on a stream, after all earlier requests. A null stream is the default stream.
    fn record_on(&self, stream: DriverHandle) -> Result<()> {
        // SAFETY: the event and the stream exist.
        self.device.check_status("cuEventRecord", unsafe { (self.device.functions.record)(self.handle, stream) })?;
        self.is_recorded.set(true);
        Ok(())
    }

    fn block_stream(&self, stream: DriverHandle) -> Result<()> {
        const DEFAULT: c_uint = 0;
        // SAFETY: the event and the stream exist.
        let status = unsafe { (self.device.functions.hold)(stream, self.handle, DEFAULT) };
        self.device.check_status("cuStreamWaitEvent", status)
    }

    /// Waits for the event. Reports any earlier failure of the device.
    pub fn wait_until_reached(&self) -> Result<()> {
        // SAFETY: the event exists.
        self.device.check_status("cuEventSynchronize", unsafe { (self.device.functions.wait)(self.handle) })
    }

    /// Returns the nanoseconds from `earlier` to this event; both events must have been reached.
    pub fn since_ns(&self, earlier: &DeviceEvent<'_>) -> Result<u64> {
        assert!(self.is_recorded.get() && earlier.is_recorded.get(), "events are recorded before they are compared");
        let mut elapsed_ms = 0f32;
        // SAFETY: both events exist and were recorded; the call writes one number to a variable
        // that outlives it.
        let status = unsafe { (self.device.functions.elapsed)(&raw mut elapsed_ms, earlier.handle, self.handle) };
        self.device.check_status("cuEventElapsedTime", status)?;
        Ok((f64::from(elapsed_ms) * 1e6).round() as u64)
    }
}

impl Drop for DeviceEvent<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from `create_event` and is destroyed once.
        unsafe { (self.device.functions.destroy_event)(self.handle) };
    }
}
