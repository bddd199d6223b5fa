//! The fence (all unsafe calls) around NVRTC, which compiles CUDA C to machine code without a toolkit or a GPU. The
//! library is the file that `OPCOLLECT_NVRTC` names, or else the first file found in a `lib` folder next to the
//! program's own folder, the wheel in `.venv`, a toolkit, and the loader's search path. Headers for half precision come
//! from the wheel of the CUDA runtime.

use job::device::Architecture;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use worker::libraries;

/// Environment variable with the path of the library, which replaces the search.
pub const FILE_VARIABLE: &str = "OPCOLLECT_NVRTC";

pub const SETUP_HINT: &str = "run `scripts/setup`, which installs the pinned wheel `nvidia-cuda-nvrtc`, or set \
                              `OPCOLLECT_NVRTC` to a `libnvrtc.so`";

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum NvrtcError {
    #[error("cannot open NVRTC (looked for {}): {why}", format_paths(tried))]
    NotFound { tried: Vec<PathBuf>, why: String },
    #[error("`{}` is not a usable NVRTC library: it lacks the function `{symbol}`", path.display())]
    MissingSymbol { path: PathBuf, symbol: &'static str },
    #[error("NVRTC {version} does not support the architecture `{architecture}`, only {known}")]
    UnknownArchitecture { architecture: String, version: String, known: String },
    #[error("`{call}` of NVRTC failed: {why}")]
    Failed { call: &'static str, why: String },
    #[error("NVRTC cannot compile the generated code: {0}")]
    Refused(String),
}

fn format_paths(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ")
}

type Result<T> = std::result::Result<T, NvrtcError>;

type Status = c_int;
type NvrtcProgram = *mut c_void;

const SUCCESS: Status = 0;

/// Functions of NVRTC, with signatures as in `nvrtc.h` of releases 12 and 13.
struct NvrtcFunctions {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status,
    supported_count: unsafe extern "C" fn(*mut c_int) -> Status,
    supported: unsafe extern "C" fn(*mut c_int) -> Status,
    create: unsafe extern "C" fn(
        *mut NvrtcProgram,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    destroy: unsafe extern "C" fn(*mut NvrtcProgram) -> Status,
    compile: unsafe extern "C" fn(NvrtcProgram, c_int, *const *const c_char) -> Status,
    log_size: unsafe extern "C" fn(NvrtcProgram, *mut usize) -> Status,
    log: unsafe extern "C" fn(NvrtcProgram, *mut c_char) -> Status,
    cubin_size: unsafe extern "C" fn(NvrtcProgram, *mut usize) -> Status,
    cubin: unsafe extern "C" fn(NvrtcProgram, *mut c_char) -> Status,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
}

pub struct Nvrtc {
    functions: NvrtcFunctions,
    path: PathBuf,
    version: (i32, i32),
    known: Vec<u32>,
    include: Option<PathBuf>,
    // Keeps the code of the functions mapped.
    _library: Library,
}

#[derive(Clone, Debug)]
pub struct Compiled {
    pub cubin: Vec<u8>,
    /// Warnings and resource usage from the assembler.
    pub log: String,
}

/// Returns the paths at which the library may be, the preferred one first.
pub fn candidate_paths() -> Vec<PathBuf> {
    const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];
    if let Some(file) = std::env::var_os(FILE_VARIABLE).filter(|file| !file.is_empty()) {
        return vec![PathBuf::from(file)];
    }
    let mut folders = Vec::new();
    folders.extend(libraries::bundled_folder());
    for packages in libraries::wheel_folders() {
        folders.extend([packages.join("nvidia/cu13/lib"), packages.join("nvidia/cuda_nvrtc/lib")]);
    }
    folders.push(PathBuf::from("/usr/local/cuda/lib64"));
    let mut files: Vec<PathBuf> = Vec::new();
    for folder in folders {
        let found = NAMES.iter().map(|name| folder.join(name)).find(|file| file.is_file());
        files.extend(found.filter(|file| !files.contains(file)));
    }
    // The system's loader is the last resort.
    files.extend(NAMES.iter().map(PathBuf::from));
    files
}

impl Nvrtc {
    pub fn open() -> Result<Nvrtc> {
        let tried = candidate_paths();
        let mut why = String::new();
        for path in &tried {
            // SAFETY: NVIDIA's library has initialisers that only set up its own state; it is not
            // unloaded while `Nvrtc` exists, which owns it.
            match unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) } {
                Ok(library) => return Nvrtc::from_library(library, path),
                Err(error) => {
                    let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), |c| c.to_string());
                    why = cause;
                }
            }
        }
        Err(NvrtcError::NotFound { tried, why })
    }

    fn from_library(library: Library, path: &Path) -> Result<Nvrtc> {
        macro_rules! symbol {
            ($name:literal) => {{
                let missing = |_| NvrtcError::MissingSymbol { path: path.to_owned(), symbol: $name };
                // SAFETY: the destination has the signature that NVIDIA's header declares for this
                // name.
                *unsafe { library.get($name.as_bytes()) }.map_err(missing)?
            }};
        }
        let functions = NvrtcFunctions {
            version: symbol!("nvrtcVersion"),
            supported_count: symbol!("nvrtcGetNumSupportedArchs"),
            supported: symbol!("nvrtcGetSupportedArchs"),
            create: symbol!("nvrtcCreateProgram"),
            destroy: symbol!("nvrtcDestroyProgram"),
            compile: symbol!("nvrtcCompileProgram"),
            log_size: symbol!("nvrtcGetProgramLogSize"),
            log: symbol!("nvrtcGetProgramLog"),
            cubin_size: symbol!("nvrtcGetCUBINSize"),
            cubin: symbol!("nvrtcGetCUBIN"),
            error_string: symbol!("nvrtcGetErrorString"),
        };
        let (mut major, mut minor, mut count) = (0, 0, 0);
        // SAFETY: each call writes integers to variables that outlive it.
        functions.check_status("nvrtcVersion", unsafe { (functions.version)(&raw mut major, &raw mut minor) })?;
        // SAFETY: as above.
        functions.check_status("nvrtcGetNumSupportedArchs", unsafe { (functions.supported_count)(&raw mut count) })?;
        let mut numbers: Vec<c_int> = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: the call writes as many integers as it counted, which is the length of the vector.
        functions.check_status("nvrtcGetSupportedArchs", unsafe { (functions.supported)(numbers.as_mut_ptr()) })?;
        let known = numbers.into_iter().filter_map(|number| u32::try_from(number).ok()).collect();
        let include = path.parent().and_then(Path::parent).map(|root| root.join("include"));
        Ok(Nvrtc {
            functions,
            path: path.to_owned(),
            version: (major, minor),
            known,
            include: include.filter(|folder| folder.join("cuda_fp16.h").is_file()),
            _library: library,
        })
    }

    pub fn library_path(&self) -> &Path {
        &self.path
    }

    pub fn version_text(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }

    /// Returns the supported compute capabilities times ten.
    pub fn known_capabilities(&self) -> &[u32] {
        &self.known
    }

    /// Returns the folder of the CUDA runtime's headers, without which half-precision code does not compile.
    pub fn include_folder(&self) -> Option<&Path> {
        self.include.as_deref()
    }

    pub fn has_fragments(&self) -> bool {
        self.include_folder().is_some_and(|folder| folder.join("crt/mma.h").is_file())
    }

    pub fn check_architecture(&self, architecture: Architecture) -> Result<()> {
        if self.known.contains(&architecture.number) {
            return Ok(());
        }
        let known: Vec<String> = self.known.iter().map(|number| format!("sm_{number}")).collect();
        Err(NvrtcError::UnknownArchitecture {
            architecture: architecture.to_string(),
            version: self.version_text(),
            known: known.join(", "),
        })
    }

    /// Compiles CUDA C for one architecture. Fast mathematics is off, to keep results comparable with the reference.
    pub fn compile_source(&self, source: &str, architecture: Architecture) -> Result<Compiled> {
        self.check_architecture(architecture)?;
        let text = c_string("nvrtcCreateProgram", source)?;
        let mut options =
            vec![format!("--gpu-architecture={architecture}"), "-default-device".into(), "--ptxas-options=-v".into()];
        options.extend(self.include.iter().map(|folder| format!("-I{}", folder.display())));
        let options =
            options.iter().map(|option| c_string("nvrtcCompileProgram", option)).collect::<Result<Vec<_>>>()?;
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let program = OpenProgram::new(&self.functions, &text)?;
        let count = c_int::try_from(pointers.len()).expect("a few options");
        // SAFETY: the program is open, and the options are terminated strings that outlive the call.
        let status = unsafe { (self.functions.compile)(program.handle, count, pointers.as_ptr()) };
        let log = program.read_log()?;
        if status != SUCCESS {
            return Err(NvrtcError::Refused(first_lines(&log)));
        }
        Ok(Compiled { cubin: program.read_cubin()?, log })
    }
}

/// Returns the first errors of a log, because later errors are often consequences.
fn first_lines(log: &str) -> String {
    const LINES: usize = 6;
    let said = || log.lines().map(str::trim).filter(|line| !line.is_empty());
    let errors: Vec<&str> = said().filter(|line| line.contains("error")).take(LINES).collect();
    if errors.is_empty() { said().take(LINES).collect::<Vec<_>>().join("; ") } else { errors.join("; ") }
}

fn c_string(call: &'static str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|error| NvrtcError::Failed { call, why: error.to_string() })
}

impl NvrtcFunctions {
    fn check_status(&self, call: &'static str, status: Status) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: the call returns a static terminated string for any status.
        let why = unsafe { CStr::from_ptr((self.error_string)(status)) };
        Err(NvrtcError::Failed { call, why: why.to_string_lossy().into_owned() })
    }
}

struct OpenProgram<'a> {
    functions: &'a NvrtcFunctions,
    handle: NvrtcProgram,
}

impl OpenProgram<'_> {
    fn new<'a>(functions: &'a NvrtcFunctions, source: &CStr) -> Result<OpenProgram<'a>> {
        const NAME: &CStr = c"task.cu";
        let mut handle = std::ptr::null_mut();
        // SAFETY: the strings are terminated and outlive the call, which copies them; there are no headers in memory.
        let status = unsafe {
            (functions.create)(&raw mut handle, source.as_ptr(), NAME.as_ptr(), 0, std::ptr::null(), std::ptr::null())
        };
        functions.check_status("nvrtcCreateProgram", status)?;
        Ok(OpenProgram { functions, handle })
    }

    fn read_log(&self) -> Result<String> {
        let bytes = self.read_sized("nvrtcGetProgramLog", self.functions.log_size, self.functions.log)?;
        let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    fn read_cubin(&self) -> Result<Vec<u8>> {
        self.read_sized("nvrtcGetCUBIN", self.functions.cubin_size, self.functions.cubin)
    }

    fn read_sized(
        &self,
        call: &'static str,
        size_of: unsafe extern "C" fn(NvrtcProgram, *mut usize) -> Status,
        get: unsafe extern "C" fn(NvrtcProgram, *mut c_char) -> Status,
    ) -> Result<Vec<u8>> {
        const BYTES_MAX: usize = 64 << 20;
        let mut size = 0;
        // SAFETY: the program is open, and the call writes the size to a variable that outlives it.
        self.functions.check_status(call, unsafe { size_of(self.handle, &raw mut size) })?;
        if size > BYTES_MAX {
            return Err(NvrtcError::Failed { call, why: format!("an output of {size} bytes exceeds the size limit") });
        }
        let mut bytes = vec![0u8; size];
        // SAFETY: the call writes as many bytes as it reported, which is the length of the vector.
        self.functions.check_status(call, unsafe { get(self.handle, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for OpenProgram<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from `create` and is closed once.
        unsafe { (self.functions.destroy)(&raw mut self.handle) };
    }
}
