//! All unsafe code of this crate: calls of XGBoost's C library, which is opened at run time from the pinned wheel.
//!
//! Invariants: every buffer passed to the library outlives the call and has the stated length; everything the library
//! returns is copied before the next call. `docs/decisions/0004-xgboost-by-its-c-interface.md` explains why no crate is
//! used.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use libloading::Library;
use samples::features::Matrix;
use std::ffi::{CStr, CString, c_char, c_float, c_int, c_void};
use std::path::PathBuf;
use std::ptr::{null, null_mut};
use std::sync::OnceLock;

type Handle = *mut c_void;
type XgboostCount = u64;

struct XgboostFunctions {
    last_error: unsafe extern "C" fn() -> *const c_char,
    set_global: unsafe extern "C" fn(*const c_char) -> c_int,
    version: unsafe extern "C" fn(*mut c_int, *mut c_int, *mut c_int),
    matrix_from_dense: unsafe extern "C" fn(*const c_char, *const c_char, *mut Handle) -> c_int,
    matrix_free: unsafe extern "C" fn(Handle) -> c_int,
    matrix_set_floats: unsafe extern "C" fn(Handle, *const c_char, *const c_float, XgboostCount) -> c_int,
    matrix_set_info: unsafe extern "C" fn(Handle, *const c_char, *const c_char) -> c_int,
    booster_new: unsafe extern "C" fn(*const Handle, XgboostCount, *mut Handle) -> c_int,
    booster_free: unsafe extern "C" fn(Handle) -> c_int,
    booster_set: unsafe extern "C" fn(Handle, *const c_char, *const c_char) -> c_int,
    booster_update: unsafe extern "C" fn(Handle, c_int, Handle) -> c_int,
    booster_predict: unsafe extern "C" fn(
        Handle,
        Handle,
        *const c_char,
        *mut *const XgboostCount,
        *mut XgboostCount,
        *mut *const c_float,
    ) -> c_int,
    booster_save: unsafe extern "C" fn(Handle, *const c_char, *mut XgboostCount, *mut *const c_char) -> c_int,
    #[cfg(test)]
    booster_load: unsafe extern "C" fn(Handle, *const c_void, XgboostCount) -> c_int,
    _library: Library,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoosterOutput {
    Margin,
    /// Contributions of each feature and of the base: columns + 1 numbers per row, whose sum is the margin.
    #[cfg(test)]
    Contributions,
}

pub struct Data {
    handle: Handle,
    functions: &'static XgboostFunctions,
    rows: usize,
    #[cfg(test)]
    columns: usize,
}

pub struct Booster {
    handle: Handle,
    functions: &'static XgboostFunctions,
}

pub fn library_version() -> Result<String> {
    let functions = load_functions()?;
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: three pointers to integers of this frame, as declared.
    unsafe { (functions.version)(&mut major, &mut minor, &mut patch) };
    Ok(format!("{major}.{minor}.{patch}"))
}

fn load_functions() -> Result<&'static XgboostFunctions> {
    static FUNCTIONS: OnceLock<std::result::Result<XgboostFunctions, String>> = OnceLock::new();
    FUNCTIONS.get_or_init(open_library).as_ref().map_err(|problem| Error::XgBoost(problem.clone()))
}

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Sets the program whose folder is searched for XGBoost's package. Only the first call has an effect.
pub fn set_program(path: PathBuf) {
    let _ = PROGRAM.set(path);
}

fn library_file() -> std::result::Result<PathBuf, String> {
    let given = std::env::var_os("XGBOOST_LIB_DIR").map(PathBuf::from);
    let program = PROGRAM.get().cloned().or_else(|| std::env::current_exe().ok()).unwrap_or_default();
    // A program from a wheel finds XGBoost's package next to its own.
    let beside = program.ancestors().nth(3).map(|packages| packages.join("xgboost/lib"));
    let folder = given
        .or_else(|| beside.filter(|folder| folder.join("libxgboost.so").is_file()))
        .or_else(|| option_env!("OPPREDICT_XGBOOST_LIB").map(PathBuf::from))
        .ok_or("XGBoost's library was not found when this program was built; run scripts/setup and build again, or set XGBOOST_LIB_DIR to the folder of libxgboost.so")?;
    Ok(folder.join("libxgboost.so"))
}

fn open_library() -> std::result::Result<XgboostFunctions, String> {
    let file = library_file()?;
    let missing = |error: libloading::Error| {
        format!(
            "cannot use XGBoost's library `{}`: {error}; run scripts/setup, or set XGBOOST_LIB_DIR to the folder of libxgboost.so",
            file.display()
        )
    };
    // SAFETY: the file is the pinned wheel's library or one that the user names; its initialisers are trusted as much
    // as the program itself. The types below are those of `xgboost/c_api.h`.
    let functions = unsafe {
        let library = Library::new(&file).map_err(missing)?;
        macro_rules! symbol {
            ($name:literal) => {
                *library.get(concat!($name, "\0").as_bytes()).map_err(missing)?
            };
        }
        XgboostFunctions {
            last_error: symbol!("XGBGetLastError"),
            set_global: symbol!("XGBSetGlobalConfig"),
            version: symbol!("XGBoostVersion"),
            matrix_from_dense: symbol!("XGDMatrixCreateFromDense"),
            matrix_free: symbol!("XGDMatrixFree"),
            matrix_set_floats: symbol!("XGDMatrixSetFloatInfo"),
            matrix_set_info: symbol!("XGDMatrixSetInfoFromInterface"),
            booster_new: symbol!("XGBoosterCreate"),
            booster_free: symbol!("XGBoosterFree"),
            booster_set: symbol!("XGBoosterSetParam"),
            booster_update: symbol!("XGBoosterUpdateOneIter"),
            booster_predict: symbol!("XGBoosterPredictFromDMatrix"),
            booster_save: symbol!("XGBoosterSaveModelToBuffer"),
            #[cfg(test)]
            booster_load: symbol!("XGBoosterLoadModelFromBuffer"),
            _library: library,
        }
    };
    // XGBoost would log to standard output, which is reserved for results.
    // SAFETY: a constant text that ends in zero.
    unsafe { (functions.set_global)(c"{\"verbosity\": 0}".as_ptr()) };
    Ok(functions)
}

impl XgboostFunctions {
    fn check_status(&self, status: c_int) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the library keeps the text of this thread's last error until its next call on this thread.
        let text = unsafe { CStr::from_ptr((self.last_error)()) }.to_string_lossy().into_owned();
        let first = text.lines().next().unwrap_or_default();
        Err(Error::XgBoost(format!("XGBoost failed: {first}")))
    }
}

fn c_string(value: &str) -> Result<CString> {
    CString::new(value).map_err(|_| Error::XgBoost(format!("text for XGBoost contains a zero byte: {value:?}")))
}

/// Number of values below which a single thread copies the matrix.
const FEW: usize = 1 << 22;

impl Data {
    /// Copies the rows of a matrix into XGBoost's memory; NaN marks missing values.
    pub fn from_matrix(matrix: &Matrix) -> Result<Data> {
        let functions = load_functions()?;
        let (rows, columns) = (matrix.row_count(), matrix.column_count());
        let interface = format!(
            "{{\"data\": [{}, true], \"shape\": [{rows}, {columns}], \"typestr\": \"<f4\", \"version\": 3}}",
            matrix.values().as_ptr() as usize
        );
        // For few values, waking threads costs more than it saves.
        let threads = usize::from(matrix.values().len() < FEW);
        let settings = c_string(&format!("{{\"missing\": NaN, \"nthread\": {threads}}}"))?;
        let interface = c_string(&interface)?;
        let mut handle = null_mut();
        // SAFETY: the interface describes `rows × columns` floats of `Matrix`, which outlive the call.
        functions.check_status(unsafe {
            (functions.matrix_from_dense)(interface.as_ptr(), settings.as_ptr(), &mut handle)
        })?;
        Ok(Data {
            handle,
            functions,
            rows,
            #[cfg(test)]
            columns,
        })
    }

    pub fn with_labels(self, labels: &[f32]) -> Result<Data> {
        assert_eq!(labels.len(), self.rows, "one label per row");
        // SAFETY: a constant text and `labels.len()` floats, copied by the call.
        self.functions.check_status(unsafe {
            (self.functions.matrix_set_floats)(
                self.handle,
                c"label".as_ptr(),
                labels.as_ptr(),
                labels.len() as XgboostCount,
            )
        })?;
        Ok(self)
    }

    pub fn with_groups(self, sizes: &[u32]) -> Result<Data> {
        assert_eq!(sizes.iter().map(|size| *size as usize).sum::<usize>(), self.rows, "groups hold all rows");
        let interface = c_string(&format!(
            "{{\"data\": [{}, true], \"shape\": [{}], \"typestr\": \"<u4\", \"version\": 3}}",
            sizes.as_ptr() as usize,
            sizes.len()
        ))?;
        // SAFETY: a constant text, and an interface of `sizes.len()` integers, copied by the call.
        self.functions.check_status(unsafe {
            (self.functions.matrix_set_info)(self.handle, c"group".as_ptr(), interface.as_ptr())
        })?;
        Ok(self)
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        // SAFETY: made by the library, freed once.
        unsafe { (self.functions.matrix_free)(self.handle) };
    }
}

impl Booster {
    pub fn train_rounds(parameters: &[(&str, String)], data: &Data, rounds: usize) -> Result<Booster> {
        let booster = Booster::with_cache(&[data.handle])?;
        for (name, value) in parameters {
            booster.set_parameter(name, value)?;
        }
        for round in 0..rounds {
            // SAFETY: both handles are alive; labels have one entry per row or the library refuses.
            booster.functions.check_status(unsafe {
                (booster.functions.booster_update)(booster.handle, round as c_int, data.handle)
            })?;
        }
        Ok(booster)
    }

    #[cfg(test)]
    /// Loads a model from JSON. The library parses the text, so it must be trusted.
    pub fn load(json: &str) -> Result<Booster> {
        let booster = Booster::with_cache(&[])?;
        // SAFETY: `json.len()` bytes, read during the call.
        booster.functions.check_status(unsafe {
            (booster.functions.booster_load)(booster.handle, json.as_ptr().cast(), json.len() as XgboostCount)
        })?;
        Ok(booster)
    }

    fn with_cache(cached: &[Handle]) -> Result<Booster> {
        let functions = load_functions()?;
        let mut handle = null_mut();
        // SAFETY: `cached.len()` handles, all alive.
        functions.check_status(unsafe {
            (functions.booster_new)(cached.as_ptr(), cached.len() as XgboostCount, &mut handle)
        })?;
        Ok(Booster { handle, functions })
    }

    pub fn set_parameter(&self, name: &str, value: &str) -> Result<()> {
        let (name, value) = (c_string(name)?, c_string(value)?);
        // SAFETY: two texts that end in zero and live until the call is over.
        self.functions.check_status(unsafe { (self.functions.booster_set)(self.handle, name.as_ptr(), value.as_ptr()) })
    }

    pub fn predict_rows(&self, data: &Data, output: BoosterOutput) -> Result<Vec<f32>> {
        let (kind, width) = match output {
            BoosterOutput::Margin => (1, 1),
            #[cfg(test)]
            BoosterOutput::Contributions => (2, data.columns + 1),
        };
        let config = c_string(&format!(
            "{{\"type\": {kind}, \"training\": false, \"iteration_begin\": 0, \"iteration_end\": 0, \"strict_shape\": false}}"
        ))?;
        let (mut shape, mut dimensions, mut values) = (null(), 0, null());
        // SAFETY: live handles, a text that ends in zero, three pointers to this frame.
        self.functions.check_status(unsafe {
            (self.functions.booster_predict)(
                self.handle,
                data.handle,
                config.as_ptr(),
                &mut shape,
                &mut dimensions,
                &mut values,
            )
        })?;
        // SAFETY: the library returns the number of dimensions and keeps both arrays until the next call on this
        // thread; they are copied here.
        let values = unsafe {
            let shape = copy_array(shape, dimensions);
            copy_array(values, shape.iter().product())
        };
        match values.len() == data.rows * width {
            true => Ok(values),
            false => Err(Error::XgBoost(format!("XGBoost returned {} numbers for {} rows", values.len(), data.rows))),
        }
    }

    pub fn to_json(&self) -> Result<String> {
        let (mut length, mut bytes) = (0, null());
        // SAFETY: a constant text and two pointers to this frame.
        self.functions.check_status(unsafe {
            (self.functions.booster_save)(self.handle, c"{\"format\": \"json\"}".as_ptr(), &mut length, &mut bytes)
        })?;
        // SAFETY: the library keeps `length` bytes until the next call on this thread; they are copied here.
        let bytes = unsafe { copy_array(bytes.cast::<u8>(), length) };
        String::from_utf8(bytes).map_err(|_| Error::XgBoost("XGBoost's JSON is not UTF-8".to_owned()))
    }
}

/// Copies an array that the library owns. The address of an empty array may be null, which a slice does not allow.
///
/// # Safety
///
/// If `count` is not 0 and `first` is not null, `first` points to `count` elements that are not written during the call.
unsafe fn copy_array<T: Copy>(first: *const T, count: XgboostCount) -> Vec<T> {
    match count == 0 || first.is_null() {
        true => Vec::new(),
        // SAFETY: the caller guarantees `count` readable elements.
        false => unsafe { std::slice::from_raw_parts(first, count as usize) }.to_vec(),
    }
}

impl Drop for Booster {
    fn drop(&mut self) {
        // SAFETY: made by the library, freed once.
        unsafe { (self.functions.booster_free)(self.handle) };
    }
}
