//! The functions of TVM's runtime that the agent provides for compiled kernels.
//!
//! `TVMFFIErrorSetRaisedFromCStrParts` is resolved by its symbol name when a library is loaded, and must be
//! exported by the program. The other functions are stored into function pointers of the library.

use super::{pool, workspace};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;

/// Error message of the last failed kernel. One static suffices, because only one kernel runs at a time.
static ERROR: Mutex<String> = Mutex::new(String::new());

/// Reference that keeps the linker from removing the exported function.
#[used]
static KEPT: unsafe extern "C" fn(*const c_char, *const *const c_char, i32) = TVMFFIErrorSetRaisedFromCStrParts;

pub fn take_error() -> String {
    ERROR.lock().map(|mut said| std::mem::take(&mut *said)).unwrap_or_default()
}

fn record_error(kind: &str, text: &str) {
    if let Ok(mut said) = ERROR.lock().map_err(drop)
        && said.is_empty()
    {
        *said = format!("{kind}: {text}");
    }
}

/// Copies a C string; null becomes an empty text.
///
/// # Safety
///
/// `pointer` is null or points to a string that ends with a zero byte.
unsafe fn copy_text(pointer: *const c_char) -> String {
    match pointer.is_null() {
        true => String::new(),
        // SAFETY: guaranteed by the caller.
        false => unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned(),
    }
}

/// Records an error whose message is given in parts.
///
/// # Safety
///
/// Only compiled kernels call this function, with `count` valid strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIErrorSetRaisedFromCStrParts(
    kind: *const c_char,
    parts: *const *const c_char,
    count: i32,
) {
    let count = usize::try_from(count).unwrap_or(0).min(64);
    // SAFETY: the caller passes `count` valid strings.
    let parts = (0..count).map(|place| unsafe { copy_text(*parts.add(place)) });
    let all: String = parts.collect();
    // SAFETY: the caller passes a valid string.
    record_error(&unsafe { copy_text(kind) }, &all);
}

// SAFETY: only compiled kernels call this function, through their own pointer, with valid strings.
unsafe extern "C" fn set_error(kind: *const c_char, message: *const c_char) {
    // SAFETY: the caller passes valid strings.
    let (kind, message) = unsafe { (copy_text(kind), copy_text(message)) };
    record_error(&kind, &message);
}

// SAFETY: the function has no preconditions; it is unsafe to match the pointer type of the kernels.
unsafe extern "C" fn alloc_workspace(_: c_int, _: c_int, bytes: u64, _: c_int, _: c_int) -> *mut c_void {
    let piece = usize::try_from(bytes).ok().and_then(workspace::lend_piece);
    if piece.is_none() {
        record_error("MemoryError", &format!("cannot allocate a workspace of {bytes} bytes"));
    }
    piece.map_or(std::ptr::null_mut(), |piece| piece.cast())
}

// SAFETY: the function has no preconditions, since it rejects addresses that were not lent.
unsafe extern "C" fn free_workspace(_: c_int, _: c_int, piece: *mut c_void) -> c_int {
    if workspace::take_back(piece.cast()) { 0 } else { -1 }
}

/// Returns an error in place of runtime functions that the agent does not provide.
extern "C" fn refuse_call() -> c_int {
    record_error("RuntimeError", "the library calls a function of TVM's runtime that the board agent does not provide");
    -1
}

pub fn runtime_slots() -> [(&'static str, usize); 8] {
    [
        ("__TVMFFIErrorSetRaisedFromCStr", set_error as *const () as usize),
        ("__TVMBackendAllocWorkspace", alloc_workspace as *const () as usize),
        ("__TVMBackendFreeWorkspace", free_workspace as *const () as usize),
        ("__TVMBackendParallelLaunch", pool::launch as *const () as usize),
        ("__TVMBackendParallelBarrier", pool::barrier as *const () as usize),
        ("__TVMFFIFunctionCall", refuse_call as *const () as usize),
        ("__TVMFFIEnvModLookupFromImports", refuse_call as *const () as usize),
        ("__TVMFFIHandleInitOnce", refuse_call as *const () as usize),
    ]
}
