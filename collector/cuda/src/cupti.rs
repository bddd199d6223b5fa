//! The fence around CUPTI, NVIDIA's library for profilers: how long each kernel took by the device's own clock. What the
//! hardware counted is in `profiler`.
//!
//! It comes with a toolkit or as the wheel `nvidia-cuda-cupti`, and is opened at run time. Records are read at offsets
//! that releases 12 and 13 share; a test compares them with the wheel's header. Recording costs time, so that the runs
//! it looks at are none of those that are timed.

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::alloc::{Layout, alloc, dealloc};
use std::cell::OnceCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::Mutex;

/// Names the only file to be opened.
pub const FILE_VARIABLE: &str = "OPCOLLECT_CUPTI";

/// What to do when there is none.
pub const SETUP_HINT: &str = "install the wheel `nvidia-cuda-cupti` of the driver's major release beside NVRTC's, or name \
                              a `libcupti.so` in `OPCOLLECT_CUPTI`";

/// Why CUPTI records nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum CuptiError {
    #[error("there is no CUPTI: {0}")]
    NotFound(String),
    #[error("CUPTI lacks `{0}`")]
    TooOld(&'static str),
    #[error("`{call}` of CUPTI failed with {status}: {why}")]
    Failed { call: &'static str, status: i32, why: String },
    #[error("counters cannot be read: {0}")]
    Unsupported(String),
}

impl CuptiError {
    /// CUPTI's number of what failed.
    pub fn status(&self) -> Option<i32> {
        match self {
            CuptiError::Failed { status, .. } => Some(*status),
            CuptiError::NotFound(_) | CuptiError::TooOld(_) | CuptiError::Unsupported(_) => None,
        }
    }
}

pub(super) type Result<T> = std::result::Result<T, CuptiError>;
pub(super) type Status = c_int;

const SUCCESS: Status = 0;
/// The driver's settings keep counters from this user; the second is that of virtual devices.
const NOT_PERMITTED: [Status; 2] = [35, 40];

/// What gives permission to read counters.
pub const PERMISSION_HINT: &str = "load NVIDIA's kernel module with NVreg_RestrictProfilingToAdminUsers=0 (a line \
                                   `options nvidia NVreg_RestrictProfilingToAdminUsers=0` in a file of \
                                   /etc/modprobe.d, then restart), or run as root";

/// The kind of a kernel's record.
pub const CONCURRENT_KERNEL: c_int = 10;

type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
type NextRecord = unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> Status;

/// How failures are worded.
#[derive(Clone, Copy)]
pub(super) struct Words(unsafe extern "C" fn(Status, *mut *const c_char) -> Status);

/// The functions in use, with the signatures of `cupti_activity.h`.
struct Functions {
    version: unsafe extern "C" fn(*mut u32) -> Status,
    words: Words,
    register: unsafe extern "C" fn(Requested, Completed) -> Status,
    enable: unsafe extern "C" fn(c_int) -> Status,
    disable: unsafe extern "C" fn(c_int) -> Status,
    flush: unsafe extern "C" fn(u32) -> Status,
}

/// An opened CUPTI; there is one in a process.
pub struct Cupti {
    functions: Functions,
    version: Option<u32>,
    registered: OnceCell<Result<()>>,
    // Its threads may call back at any time, so that it is never unloaded.
    library: std::mem::ManuallyDrop<Library>,
}

/// Byte offsets in the record of a kernel.
pub mod offsets {
    /// Kind of the record, 32 bits.
    pub const KIND: usize = 0;
    /// When it began, 64 bits, in nanoseconds.
    pub const START: usize = 16;
    /// When it ended, 64 bits.
    pub const END: usize = 24;
}

/// What the callbacks share with the caller: how to walk a buffer, and the times found so far, in nanoseconds.
static FOUND: Mutex<(Option<NextRecord>, Vec<u64>)> = Mutex::new((None, Vec::new()));

fn found() -> std::sync::MutexGuard<'static, (Option<NextRecord>, Vec<u64>)> {
    FOUND.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A buffer of records.
const BUFFER: Layout = match Layout::from_size_align(1 << 20, 8) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

/// Gives CUPTI a buffer.
///
/// # Safety
///
/// Each argument is a place that can be written to.
unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, records: *mut usize) {
    // SAFETY: CUPTI gives three places to write to; a null buffer is its sign for "no memory".
    unsafe {
        *buffer = alloc(BUFFER);
        *size = BUFFER.size();
        *records = 0;
    }
}

/// Takes a buffer back with the records in it.
///
/// # Safety
///
/// The buffer came from [`requested`] and is given up with this call; as many of its bytes as said are records.
unsafe extern "C" fn completed(_context: *mut c_void, _stream: u32, buffer: *mut u8, _size: usize, valid: usize) {
    if buffer.is_null() {
        return;
    }
    let mut found = found();
    let mut record = null_mut();
    // SAFETY: CUPTI says how many bytes of the buffer, which came from `requested`, are records; each record it points
    // to is as long as its kind says, which for a kernel is beyond the offsets.
    unsafe {
        while let Some(next) = found.0
            && next(buffer, valid, &raw mut record) == SUCCESS
        {
            if record.add(offsets::KIND).cast::<c_int>().read_unaligned() == CONCURRENT_KERNEL {
                let start = record.add(offsets::START).cast::<u64>().read_unaligned();
                let end = record.add(offsets::END).cast::<u64>().read_unaligned();
                found.1.push(end.saturating_sub(start));
            }
        }
        dealloc(buffer, BUFFER);
    }
}

/// Files that may be CUPTI, best first.
pub fn candidates() -> Vec<PathBuf> {
    const NAMES: [&str; 3] = ["libcupti.so.13", "libcupti.so.12", "libcupti.so"];
    if let Some(file) = std::env::var_os(FILE_VARIABLE).filter(|file| !file.is_empty()) {
        return vec![PathBuf::from(file)];
    }
    let mut folders: Vec<PathBuf> =
        super::nvrtc::candidates().iter().filter_map(|file| Some(file.parent()?.to_owned())).collect();
    folders.push(PathBuf::from("/usr/local/cuda/extras/CUPTI/lib64"));
    let beside = folders.iter().flat_map(|folder| NAMES.map(|name| folder.join(name))).filter(|file| file.is_file());
    beside.chain(NAMES.map(PathBuf::from)).collect()
}

impl Cupti {
    /// Opens the first that works.
    pub fn open() -> Result<Cupti> {
        let mut why = String::new();
        for path in candidates() {
            // SAFETY: NVIDIA's library has initialisers that only set up its own state, and it is never unloaded.
            match unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) } {
                Ok(library) => return Cupti::over(library),
                Err(error) => {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    why = cause.unwrap_or_else(|| error.to_string());
                }
            }
        }
        Err(CuptiError::NotFound(why))
    }

    fn over(library: Library) -> Result<Cupti> {
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the place it goes to has the signature that NVIDIA's header gives for this name.
                *unsafe { library.get($name.as_bytes()) }.map_err(|_| CuptiError::TooOld($name))?
            };
        }
        let functions = Functions {
            version: symbol!("cuptiGetVersion"),
            words: Words(symbol!("cuptiGetResultString")),
            register: symbol!("cuptiActivityRegisterCallbacks"),
            enable: symbol!("cuptiActivityEnable"),
            disable: symbol!("cuptiActivityDisable"),
            flush: symbol!("cuptiActivityFlushAll"),
        };
        found().0 = Some(symbol!("cuptiActivityGetNextRecord"));
        let mut number = 0;
        // SAFETY: writes one number to a place that outlives the call.
        let version = (unsafe { (functions.version)(&raw mut number) } == SUCCESS).then_some(number);
        Ok(Cupti { functions, version, registered: OnceCell::new(), library: std::mem::ManuallyDrop::new(library) })
    }

    /// The version of its interface; without a driver it does not tell even that.
    pub fn version(&self) -> Option<u32> {
        self.version
    }

    /// The library, which stays open as long as the process.
    pub(super) fn library(&self) -> &Library {
        &self.library
    }

    /// How its failures are worded.
    pub(super) fn words(&self) -> Words {
        self.functions.words
    }

    /// Times of all kernels that `work` launches and waits for, in nanoseconds.
    pub fn kernel_times_ns<E: From<CuptiError>>(
        &self,
        work: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<Vec<u64>, E> {
        const EVEN_UNFINISHED: u32 = 1;
        let functions = &self.functions;
        found().1.clear();
        let register = || {
            // SAFETY: both functions keep the promises of the header, and live as long as the process.
            let status = unsafe { (functions.register)(requested, completed) };
            functions.check("cuptiActivityRegisterCallbacks", status)
        };
        self.registered.get_or_init(register).clone()?;
        // SAFETY: the call takes a number alone.
        functions.check("cuptiActivityEnable", unsafe { (functions.enable)(CONCURRENT_KERNEL) })?;
        let worked = work();
        // SAFETY: as above; both callbacks are registered.
        let flushed = unsafe { (functions.flush)(EVEN_UNFINISHED) };
        // SAFETY: the call takes a number alone.
        let disabled = unsafe { (functions.disable)(CONCURRENT_KERNEL) };
        worked?;
        functions.check("cuptiActivityFlushAll", flushed)?;
        functions.check("cuptiActivityDisable", disabled)?;
        Ok(std::mem::take(&mut found().1))
    }
}

impl Functions {
    fn check(&self, call: &'static str, status: Status) -> Result<()> {
        self.words.check(call, status)
    }
}

impl Words {
    /// An error that says what failed and why, and what helps where that is known.
    pub(super) fn check(self, call: &'static str, status: Status) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        let mut text = std::ptr::null();
        // SAFETY: writes the address of a static terminated string, or leaves it null.
        unsafe { (self.0)(status, &raw mut text) };
        let mut why = if text.is_null() {
            "no such status".to_owned()
        } else {
            // SAFETY: just checked.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        if NOT_PERMITTED.contains(&status) {
            why = format!("{why}; {PERMISSION_HINT}");
        }
        Err(CuptiError::Failed { call, status, why })
    }
}
