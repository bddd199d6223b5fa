//! **Fence**: the only code that calls ONNX Runtime, through the table of functions of its C interface.
//!
//! The table only ever grows at its end, so a place in it means the same function in every version from the one that is
//! asked for on. Keeps true: every buffer that is handed over outlives the session's use of it and has the size that the
//! model's own type says; what the library allocates is given back to it; a status is read once and released.

use libloading::Library;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::rc::Rc;
use worker::RunnerProcess;

/// Why a model cannot be run through the library.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum RuntimeError {
    #[error("ONNX Runtime's library is not installed: no `libonnxruntime.so` lies in {0}")]
    Missing(String),
    #[error("cannot use ONNX Runtime's library `{file}`: {why}")]
    Unusable { file: String, why: String },
    #[error("ONNX Runtime refuses to {doing}: {why}")]
    Refused { doing: &'static str, why: String },
    #[error("`{name}` of the model {why}")]
    Port { name: String, why: String },
    #[error("the inputs have {wanted} bytes, {found} were given")]
    Length { wanted: usize, found: usize },
}

type Result<T> = std::result::Result<T, RuntimeError>;

/// The version of the interface that is asked for: the first with all functions below.
const VERSION: u32 = 5;
/// Only what goes wrong is to be said, on standard error.
const LOG_ERRORS: c_int = 3;
const ALL_OPTIMISATIONS: c_int = 99;
const ARENA: c_int = 1;
const USUAL_MEMORY: c_int = 0;
/// More dimensions than any tensor of a model has.
const RANK_MAX: usize = 64;
/// More than any tensor of a model takes.
const BYTES_MAX: u64 = 1 << 40;

type Status = *mut c_void;
type Handle = *mut c_void;

/// What the library's one exported symbol leads to.
#[repr(C)]
struct Base {
    table: unsafe extern "C" fn(u32) -> *const *const c_void,
    version: unsafe extern "C" fn() -> *const c_char,
}

macro_rules! functions {
    ($($field:ident = $place:literal, ($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions in use, by their places in the table.
        struct Functions {
            $($field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// # Safety
            ///
            /// The table is one of the library's, of [`VERSION`] at least.
            unsafe fn of(table: *const *const c_void) -> Functions {
                Functions {
                    $($field: {
                        // SAFETY: the interface has this function with this signature at this place.
                        unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(*table.add($place)) }
                    },)*
                }
            }
        }
    };
}

functions! {
    message = 2, (Status) -> *const c_char;
    make_environment = 3, (c_int, *const c_char, *mut Handle) -> Status;
    make_session = 7, (Handle, *const c_char, Handle, *mut Handle) -> Status;
    run = 9, (Handle, Handle, *const *const c_char, *const Handle, usize, *const *const c_char, usize, *mut Handle) -> Status;
    make_options = 10, (*mut Handle) -> Status;
    set_optimisation = 23, (Handle, c_int) -> Status;
    set_threads = 24, (Handle, c_int) -> Status;
    set_threads_between = 25, (Handle, c_int) -> Status;
    input_count = 30, (Handle, *mut usize) -> Status;
    output_count = 31, (Handle, *mut usize) -> Status;
    input_type = 33, (Handle, usize, *mut Handle) -> Status;
    output_type = 34, (Handle, usize, *mut Handle) -> Status;
    input_name = 36, (Handle, usize, Handle, *mut *mut c_char) -> Status;
    output_name = 37, (Handle, usize, Handle, *mut *mut c_char) -> Status;
    make_tensor = 49, (Handle, *mut c_void, usize, *const i64, usize, c_int, *mut Handle) -> Status;
    tensor_type = 55, (Handle, *mut Handle) -> Status;
    element_type = 60, (Handle, *mut c_int) -> Status;
    rank = 61, (Handle, *mut usize) -> Status;
    extents = 62, (Handle, *mut i64, usize) -> Status;
    make_memory_info = 69, (c_int, c_int, *mut Handle) -> Status;
    free = 76, (Handle, *mut c_void) -> Status;
    allocator = 78, (*mut Handle) -> Status;
    release_environment = 92, (Handle);
    release_status = 93, (Status);
    release_memory_info = 94, (Handle);
    release_session = 95, (Handle);
    release_value = 96, (Handle);
    release_type = 98, (Handle);
    release_options = 100, (Handle);
    set_entry = 130, (Handle, *const c_char, *const c_char) -> Status;
}

/// The library with its environment.
#[derive(Clone)]
pub struct Runtime(Rc<Opened>);

struct Opened {
    functions: Functions,
    environment: Handle,
    version: String,
    /// Keeps the functions' code mapped.
    _library: Library,
}

/// The library's file, or the folders without one.
fn library_file() -> Result<PathBuf> {
    let folders: Vec<PathBuf> =
        worker::libraries::packages().into_iter().map(|packages| packages.join("onnxruntime/capi")).collect();
    for folder in &folders {
        let files = folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
        let is_library =
            |path: &PathBuf| path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"libonnxruntime.so"));
        if let Some(file) = files.filter(is_library).max() {
            return Ok(file);
        }
    }
    let folders: Vec<String> = folders.iter().map(|folder| format!("`{}`", folder.display())).collect();
    Err(RuntimeError::Missing(if folders.is_empty() { "no known folder".to_owned() } else { folders.join(", ") }))
}

impl Runtime {
    /// Opens the library.
    pub fn open() -> Result<Runtime> {
        let file = library_file()?;
        let unusable = |why: String| RuntimeError::Unusable { file: file.display().to_string(), why };
        // SAFETY: the file is the pinned wheel's library, whose initialisers are trusted as much as the program itself.
        let library = unsafe { Library::new(&file) }.map_err(|error| unusable(error.to_string()))?;
        // SAFETY: the name and the type are those of the interface's header.
        let base = unsafe { library.get::<unsafe extern "C" fn() -> *const Base>(b"OrtGetApiBase\0") };
        let base = base.map_err(|error| unusable(error.to_string()))?;
        // SAFETY: it takes nothing and answers with a constant of the library, or nothing.
        let base = unsafe { base().as_ref() }.ok_or_else(|| unusable("it has no interface".to_owned()))?;
        // SAFETY: both functions of a constant that the library keeps; the text ends in zero and is copied.
        let (table, version) = unsafe { ((base.table)(VERSION), text_of((base.version)())) };
        if table.is_null() {
            return Err(unusable(format!("its version {version} has no interface of version {VERSION}")));
        }
        // SAFETY: the library just gave the table for this version.
        let functions = unsafe { Functions::of(table) };
        let mut environment = null_mut();
        // SAFETY: a constant text that ends in zero, and a pointer to this frame.
        let status = unsafe { (functions.make_environment)(LOG_ERRORS, c"opcollect".as_ptr(), &mut environment) };
        functions.check(status, "begin")?;
        Ok(Runtime(Rc::new(Opened { functions, environment, version, _library: library })))
    }

    /// The library's version, such as `1.31.1`.
    pub fn version(&self) -> String {
        self.0.version.clone()
    }

    fn functions(&self) -> &Functions {
        &self.0.functions
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: made by the library, released once, after every session, since each holds this value.
        unsafe { (self.functions.release_environment)(self.environment) };
    }
}

/// # Safety
///
/// The pointer is nothing, or leads to a text that ends in zero.
unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

impl Functions {
    fn check(&self, status: Status, doing: &'static str) -> Result<()> {
        if status.is_null() {
            return Ok(());
        }
        // SAFETY: a status that is not nothing has a text; it is copied before the status is released, once.
        let why = unsafe {
            let why = text_of((self.message)(status));
            (self.release_status)(status);
            why
        };
        let why = why.lines().next().unwrap_or_default().to_owned();
        Err(RuntimeError::Refused { doing, why })
    }
}

/// What the library gave and takes back.
struct Owned {
    runtime: Runtime,
    handle: Handle,
    release: fn(&Functions) -> unsafe extern "C" fn(Handle),
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: made by the library with the function that belongs to this one, and released once.
        unsafe { (self.release)(self.runtime.functions())(self.handle) };
    }
}

/// Cache lines, so that tensors begin where vectors like to.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Memory of one tensor, read and written by address alone while a session has it.
struct Memory {
    lines: *mut Line,
    count: usize,
}

impl Memory {
    fn new(bytes: usize) -> Memory {
        let lines = vec![Line([0; 64]); bytes.div_ceil(64).max(1)].into_boxed_slice();
        let count = lines.len();
        Memory { lines: Box::into_raw(lines).cast(), count }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: made of a box of so many lines, and freed once.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.lines, self.count)) });
    }
}

/// An input or an output.
struct Port {
    name: CString,
    bytes: usize,
    // Before the memory, which it points to.
    value: Owned,
    memory: Memory,
}

impl Port {
    fn write(&mut self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.bytes, "a tensor is written as a whole");
        // SAFETY: the memory holds so many bytes, and no run is going on, since runs take the session for themselves.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory.lines.cast(), bytes.len()) };
    }

    fn read(&self) -> Vec<u8> {
        // SAFETY: as above; the bytes were set when the memory was made.
        unsafe { std::slice::from_raw_parts(self.memory.lines.cast::<u8>(), self.bytes) }.to_vec()
    }
}

/// A model that is ready to run, with memory for all that goes in and comes out.
pub struct Session {
    // Fields are dropped in their order: what points to others comes first.
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    session: Owned,
    runtime: Runtime,
}

impl Session {
    /// Loads a model's file, to be run by one thread on each of these CPUs, the caller being the one on the first.
    pub fn load(_: RunnerProcess, runtime: &Runtime, model: &Path, cpus: &[usize]) -> Result<Session> {
        let options = options(runtime, cpus)?;
        let path = text(model.as_os_str())?;
        let mut handle = null_mut();
        let functions = runtime.functions();
        // SAFETY: environment and options are alive, the path ends in zero, the last is a pointer to this frame.
        let status =
            unsafe { (functions.make_session)(runtime.0.environment, path.as_ptr(), options.handle, &mut handle) };
        functions.check(status, "load the model")?;
        let session = owned(runtime, handle, |functions| functions.release_session);
        let inputs = ports(runtime, &session, &Border::inputs(functions))?;
        let outputs = ports(runtime, &session, &Border::outputs(functions))?;
        Ok(Session { inputs, outputs, session, runtime: runtime.clone() })
    }

    /// Sets all inputs, given one after the other.
    pub fn write_inputs(&mut self, mut bytes: &[u8]) -> Result<()> {
        let wanted = self.inputs.iter().map(|port| port.bytes).sum();
        if bytes.len() != wanted {
            return Err(RuntimeError::Length { wanted, found: bytes.len() });
        }
        for port in &mut self.inputs {
            let (own, rest) = bytes.split_at(port.bytes);
            port.write(own);
            bytes = rest;
        }
        Ok(())
    }

    /// Fills the outputs with a pattern that a result hardly has, so that what nobody wrote is seen.
    pub fn poison_outputs(&mut self) {
        self.outputs.iter_mut().for_each(|port| port.write(&vec![0xff; port.bytes]));
    }

    /// All outputs, one after the other.
    pub fn read_outputs(&self) -> Vec<u8> {
        self.outputs.iter().flat_map(Port::read).collect()
    }

    /// Runs the model so many times.
    pub fn run(&mut self, times: u32) -> Result<()> {
        let names = |ports: &[Port]| ports.iter().map(|port| port.name.as_ptr()).collect::<Vec<_>>();
        let values = |ports: &[Port]| ports.iter().map(|port| port.value.handle).collect::<Vec<_>>();
        let (input_names, inputs) = (names(&self.inputs), values(&self.inputs));
        let (output_names, mut outputs) = (names(&self.outputs), values(&self.outputs));
        let functions = self.runtime.functions();
        for _ in 0..times {
            // SAFETY: all handles and names are alive and as many as said. Outputs are tensors of the model's own types
            // over memory of that size, which the library fills and leaves to us.
            let status = unsafe {
                (functions.run)(
                    self.session.handle,
                    null_mut(),
                    input_names.as_ptr(),
                    inputs.as_ptr(),
                    inputs.len(),
                    output_names.as_ptr(),
                    output_names.len(),
                    outputs.as_mut_ptr(),
                )
            };
            functions.check(status, "run the model")?;
        }
        Ok(())
    }
}

fn owned(runtime: &Runtime, handle: Handle, release: fn(&Functions) -> unsafe extern "C" fn(Handle)) -> Owned {
    Owned { runtime: runtime.clone(), handle, release }
}

fn text(text: &OsStr) -> Result<CString> {
    let refused = |_| RuntimeError::Refused { doing: "take a path", why: "it has a zero byte".to_owned() };
    CString::new(text.as_bytes()).map_err(refused)
}

/// All that makes the library fast, and its threads where they belong.
fn options(runtime: &Runtime, cpus: &[usize]) -> Result<Owned> {
    let functions = runtime.functions();
    let mut handle = null_mut();
    // SAFETY: a pointer to this frame.
    let status = unsafe { (functions.make_options)(&mut handle) };
    functions.check(status, "take options")?;
    let options = owned(runtime, handle, |functions| functions.release_options);
    let threads = c_int::try_from(cpus.len()).unwrap_or(c_int::MAX);
    for (set, value) in [
        (functions.set_optimisation, ALL_OPTIMISATIONS),
        (functions.set_threads, threads),
        (functions.set_threads_between, 1),
    ] {
        // SAFETY: the options are alive; each of these takes them and a number.
        let status = unsafe { set(options.handle, value) };
        functions.check(status, "take options")?;
    }
    if let [_, others @ ..] = cpus
        && !others.is_empty()
    {
        // It counts CPUs from 1. The first thread is the caller's, and pinned by it.
        let list: Vec<String> = others.iter().map(|cpu| (cpu + 1).to_string()).collect();
        let list = text(OsStr::new(&list.join(";")))?;
        // SAFETY: the options are alive, and both texts end in zero.
        let status = unsafe {
            (functions.set_entry)(options.handle, c"session.intra_op_thread_affinities".as_ptr(), list.as_ptr())
        };
        functions.check(status, "pin its threads")?;
    }
    Ok(options)
}

/// How one side of a model is asked for.
struct Border {
    count: unsafe extern "C" fn(Handle, *mut usize) -> Status,
    name: unsafe extern "C" fn(Handle, usize, Handle, *mut *mut c_char) -> Status,
    ty: unsafe extern "C" fn(Handle, usize, *mut Handle) -> Status,
}

impl Border {
    fn inputs(functions: &Functions) -> Border {
        Border { count: functions.input_count, name: functions.input_name, ty: functions.input_type }
    }

    fn outputs(functions: &Functions) -> Border {
        Border { count: functions.output_count, name: functions.output_name, ty: functions.output_type }
    }
}

fn ports(runtime: &Runtime, session: &Owned, border: &Border) -> Result<Vec<Port>> {
    const ASKING: &str = "say what the model takes";
    let functions = runtime.functions();
    let mut count = 0;
    // SAFETY: the session is alive; a pointer to this frame.
    let status = unsafe { (border.count)(session.handle, &mut count) };
    functions.check(status, ASKING)?;
    let mut ports = Vec::new();
    for index in 0..count {
        let mut ty = null_mut();
        // SAFETY: as above, and there is a port of that index.
        let status = unsafe { (border.ty)(session.handle, index, &mut ty) };
        functions.check(status, ASKING)?;
        let ty = owned(runtime, ty, |functions| functions.release_type);
        ports.push(port(runtime, name(runtime, session, border, index)?, &ty)?);
    }
    Ok(ports)
}

fn name(runtime: &Runtime, session: &Owned, border: &Border, index: usize) -> Result<CString> {
    let functions = runtime.functions();
    let (mut allocator, mut found) = (null_mut(), null_mut());
    // SAFETY: a pointer to this frame; the allocator is the library's own and never released.
    let status = unsafe { (functions.allocator)(&mut allocator) };
    functions.check(status, "give names")?;
    // SAFETY: session and allocator are alive, and there is a port of that index.
    let status = unsafe { (border.name)(session.handle, index, allocator, &mut found) };
    functions.check(status, "give names")?;
    // SAFETY: a text that ends in zero, copied before it goes back to its allocator.
    let (name, status) = unsafe {
        let name = CStr::from_ptr(found).to_owned();
        (name, (functions.free)(allocator, found.cast()))
    };
    functions.check(status, "take names back")?;
    Ok(name)
}

/// A port with its memory, as its type in the model says.
fn port(runtime: &Runtime, name: CString, ty: &Owned) -> Result<Port> {
    const ASKING: &str = "say what types the model has";
    let functions = runtime.functions();
    let refused = |why: String| RuntimeError::Port { name: name.to_string_lossy().into_owned(), why };
    let (mut tensor, mut element, mut rank) = (null_mut(), 0, 0);
    // SAFETY: the type is alive; what comes out belongs to it and is not released; the rest are pointers to this frame.
    let status = unsafe { (functions.tensor_type)(ty.handle, &mut tensor) };
    functions.check(status, ASKING)?;
    if tensor.is_null() {
        return Err(refused("is no tensor".to_owned()));
    }
    // SAFETY: the tensor's type lives as long as the type.
    let status = unsafe { (functions.element_type)(tensor, &mut element) };
    functions.check(status, ASKING)?;
    // SAFETY: as above.
    let status = unsafe { (functions.rank)(tensor, &mut rank) };
    functions.check(status, ASKING)?;
    if rank > RANK_MAX {
        return Err(refused(format!("has {rank} dimensions")));
    }
    let mut extents = vec![0i64; rank];
    // SAFETY: as above, with room for as many extents as there are dimensions.
    let status = unsafe { (functions.extents)(tensor, extents.as_mut_ptr(), rank) };
    functions.check(status, ASKING)?;
    let size = element_bytes(element).ok_or_else(|| refused(format!("has elements of the unknown type {element}")))?;
    let bytes = extents.iter().try_fold(size, |all, extent| all.checked_mul(u64::try_from(*extent).ok()?));
    let bytes = bytes.filter(|bytes| *bytes <= BYTES_MAX).and_then(|bytes| usize::try_from(bytes).ok());
    let bytes =
        bytes.ok_or_else(|| refused(format!("has the extents {extents:?}, which are no numbers that can be")))?;
    let memory = Memory::new(bytes);
    let mut info = null_mut();
    // SAFETY: a pointer to this frame.
    let status = unsafe { (functions.make_memory_info)(ARENA, USUAL_MEMORY, &mut info) };
    functions.check(status, ASKING)?;
    let info = owned(runtime, info, |functions| functions.release_memory_info);
    let mut value = null_mut();
    // SAFETY: the memory has so many bytes and outlives the value, which stands before it in its port; extents are as many
    // as said and copied.
    let status = unsafe {
        let data = memory.lines.cast();
        (functions.make_tensor)(info.handle, data, bytes, extents.as_ptr(), rank, element, &mut value)
    };
    functions.check(status, "take a tensor")?;
    let value = owned(runtime, value, |functions| functions.release_value);
    Ok(Port { name, bytes, value, memory })
}

/// What an element takes, by the interface's number of its type.
fn element_bytes(code: c_int) -> Option<u64> {
    match code {
        2 | 3 | 9 => Some(1),
        4 | 5 | 10 | 16 => Some(2),
        1 | 6 | 12 => Some(4),
        7 | 11 | 13 => Some(8),
        _ => None,
    }
}
