//! Safe interface of CUPTI, NVIDIA's profiling library, which records kernel times of the device's clock. CUPTI comes
//! with a toolkit or as the wheel `nvidia-cuda-cupti`. Records are read at offsets that releases 12 and 13 share; a
//! test compares them with the wheel's header. Recording costs time, so recorded runs are separate from timed ones.

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::alloc::{Layout, alloc, dealloc};
use std::cell::OnceCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::Mutex;

/// Environment variable with the path of the library, which replaces the search.
pub const FILE_VARIABLE: &str = "OPCOLLECT_CUPTI";

pub const SETUP_HINT: &str = "install the wheel `nvidia-cuda-cupti` of the driver's major release next to NVRTC's, or set `OPCOLLECT_CUPTI` to a `libcupti.so`";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum CuptiError {
    #[error("there is no CUPTI: {0}")]
    NotFound(String),
    #[error("CUPTI lacks `{0}`")]
    TooOld(&'static str),
    #[error("`{call}` of CUPTI failed with {status}: {why}")]
    Failed { call: &'static str, status: i32, why: String },
    #[error("cannot read GPU counters: {0}")]
    Unsupported(String),
}

impl CuptiError {
    pub fn status_code(&self) -> Option<i32> {
        match self {
            CuptiError::Failed { status, .. } => Some(*status),
            CuptiError::NotFound(_) | CuptiError::TooOld(_) | CuptiError::Unsupported(_) => None,
        }
    }
}

pub(super) type Result<T> = std::result::Result<T, CuptiError>;
pub(super) type CuptiStatus = c_int;

const SUCCESS: CuptiStatus = 0;
/// Status codes for a missing permission to read counters; the second code is that of virtual devices.
const NOT_PERMITTED: [CuptiStatus; 2] = [35, 40];

pub const PERMISSION_HINT: &str = "load NVIDIA's kernel module with NVreg_RestrictProfilingToAdminUsers=0 (a line \
                                   `options nvidia NVreg_RestrictProfilingToAdminUsers=0` in a file of \
                                   /etc/modprobe.d, then restart), or run as root";

pub const CONCURRENT_KERNEL: c_int = 10;

type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
type NextRecord = unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> CuptiStatus;

#[derive(Clone, Copy)]
pub(super) struct Words(unsafe extern "C" fn(CuptiStatus, *mut *const c_char) -> CuptiStatus);

struct CuptiFunctions {
    version: unsafe extern "C" fn(*mut u32) -> CuptiStatus,
    words: Words,
    register: unsafe extern "C" fn(Requested, Completed) -> CuptiStatus,
    enable: unsafe extern "C" fn(c_int) -> CuptiStatus,
    disable: unsafe extern "C" fn(c_int) -> CuptiStatus,
    flush: unsafe extern "C" fn(u32) -> CuptiStatus,
}

/// Functions of CUPTI. There must be at most one value per process, because the callbacks share static state.
pub struct Cupti {
    functions: CuptiFunctions,
    version: Option<u32>,
    registered: OnceCell<Result<()>>,
    // The library's threads may call back at any time, so it is never unloaded.
    library: std::mem::ManuallyDrop<Library>,
}

pub mod offsets {
    /// Kind of the record, 32 bits.
    pub const KIND: usize = 0;
    /// Start of the kernel in nanoseconds, 64 bits.
    pub const START: usize = 16;
    /// End of the kernel in nanoseconds, 64 bits.
    pub const END: usize = 24;
}

/// State that the callbacks and the caller share: the record iterator, and kernel times in nanoseconds.
static FOUND: Mutex<(Option<NextRecord>, Vec<u64>)> = Mutex::new((None, Vec::new()));

fn lock_found() -> std::sync::MutexGuard<'static, (Option<NextRecord>, Vec<u64>)> {
    FOUND.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

const BUFFER: Layout = match Layout::from_size_align(1 << 20, 8) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

/// # Safety
///
/// Each argument must point to writable memory.
unsafe extern "C" fn provide_buffer(buffer: *mut *mut u8, size: *mut usize, records: *mut usize) {
    // SAFETY: CUPTI passes three writable addresses. A null buffer means "out of memory" to it.
    unsafe {
        *buffer = alloc(BUFFER);
        *size = BUFFER.size();
        *records = 0;
    }
}

/// # Safety
///
/// The buffer must come from [`provide_buffer`] and not be used afterwards. Its first `valid` bytes must be records.
unsafe extern "C" fn collect_buffer(_context: *mut c_void, _stream: u32, buffer: *mut u8, _size: usize, valid: usize) {
    if buffer.is_null() {
        return;
    }
    let mut found = lock_found();
    let mut record = null_mut();
    // SAFETY: CUPTI reports how many bytes of the buffer, which came from `provide_buffer`, are records.
    // Each record has the length of its kind, and a kernel's record extends beyond the offsets.
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

/// Returns the paths at which the library may be, the preferred one first.
pub fn candidate_paths() -> Vec<PathBuf> {
    const NAMES: [&str; 3] = ["libcupti.so.13", "libcupti.so.12", "libcupti.so"];
    if let Some(file) = std::env::var_os(FILE_VARIABLE).filter(|file| !file.is_empty()) {
        return vec![PathBuf::from(file)];
    }
    let mut folders: Vec<PathBuf> =
        super::nvrtc::candidate_paths().iter().filter_map(|file| Some(file.parent()?.to_owned())).collect();
    folders.push(PathBuf::from("/usr/local/cuda/extras/CUPTI/lib64"));
    let beside = folders.iter().flat_map(|folder| NAMES.map(|name| folder.join(name))).filter(|file| file.is_file());
    beside.chain(NAMES.map(PathBuf::from)).collect()
}

impl Cupti {
    pub fn open() -> Result<Cupti> {
        let mut why = String::new();
        for path in candidate_paths() {
            // SAFETY: NVIDIA's library has initialisers that only set up its own state, and it is never unloaded.
            match unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) } {
                Ok(library) => return Cupti::from_library(library),
                Err(error) => {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    why = cause.unwrap_or_else(|| error.to_string());
                }
            }
        }
        Err(CuptiError::NotFound(why))
    }

    fn from_library(library: Library) -> Result<Cupti> {
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the destination has the signature that NVIDIA's header declares for this
                // name.
                *unsafe { library.get($name.as_bytes()) }.map_err(|_| CuptiError::TooOld($name))?
            };
        }
        let functions = CuptiFunctions {
            version: symbol!("cuptiGetVersion"),
            words: Words(symbol!("cuptiGetResultString")),
            register: symbol!("cuptiActivityRegisterCallbacks"),
            enable: symbol!("cuptiActivityEnable"),
            disable: symbol!("cuptiActivityDisable"),
            flush: symbol!("cuptiActivityFlushAll"),
        };
        lock_found().0 = Some(symbol!("cuptiActivityGetNextRecord"));
        let mut number = 0;
        // SAFETY: the call writes one number to a variable that outlives it.
        let version = (unsafe { (functions.version)(&raw mut number) } == SUCCESS).then_some(number);
        Ok(Cupti { functions, version, registered: OnceCell::new(), library: std::mem::ManuallyDrop::new(library) })
    }

    /// Returns the version of CUPTI's interface; None without a driver.
    pub fn interface_version(&self) -> Option<u32> {
        self.version
    }

    pub(super) fn loaded_library(&self) -> &Library {
        &self.library
    }

    pub(super) fn status_words(&self) -> Words {
        self.functions.words
    }

    /// Returns the durations of all kernels that `work` launches and waits for.
    pub fn kernel_times_ns<E: From<CuptiError>>(
        &self,
        work: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<Vec<u64>, E> {
        const EVEN_UNFINISHED: u32 = 1;
        let functions = &self.functions;
        lock_found().1.clear();
        let register = || {
            // SAFETY: both callbacks fulfil the contract of the header, and exist as long as the
            // process.
            let status = unsafe { (functions.register)(provide_buffer, collect_buffer) };
            functions.check_status("cuptiActivityRegisterCallbacks", status)
        };
        self.registered.get_or_init(register).clone()?;
        // SAFETY: the call takes only a number.
        functions.check_status("cuptiActivityEnable", unsafe { (functions.enable)(CONCURRENT_KERNEL) })?;
        let worked = work();
        // SAFETY: as above; both callbacks are registered.
        let flushed = unsafe { (functions.flush)(EVEN_UNFINISHED) };
        // SAFETY: the call takes only a number.
        let disabled = unsafe { (functions.disable)(CONCURRENT_KERNEL) };
        worked?;
        functions.check_status("cuptiActivityFlushAll", flushed)?;
        functions.check_status("cuptiActivityDisable", disabled)?;
        Ok(std::mem::take(&mut lock_found().1))
    }
}

impl CuptiFunctions {
    fn check_status(&self, call: &'static str, status: CuptiStatus) -> Result<()> {
        self.words.check_status(call, status)
    }
}

impl Words {
    pub(super) fn check_status(self, call: &'static str, status: CuptiStatus) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        let mut text = std::ptr::null();
        // SAFETY: the call writes the address of a static terminated string, or leaves it null.
        unsafe { (self.0)(status, &raw mut text) };
        let mut why = if text.is_null() {
            "unknown status".to_owned()
        } else {
            // SAFETY: the text is not null and terminated.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        if NOT_PERMITTED.contains(&status) {
            why = format!("{why}; {PERMISSION_HINT}");
        }
        Err(CuptiError::Failed { call, status, why })
    }
}
