//! The functions of TVM's runtime that compiled kernels call, as far as a board has them.
//!
//! One is found by its name when a library is loaded, which is why the program exports it; the others are put into pointers
//! that the library has for them.

use super::{pool, workspace};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Mutex;

/// What the kernel that failed last said. One kernel runs at a time, on whatever threads.
static ERROR: Mutex<String> = Mutex::new(String::new());

/// Keeps the function that is found by its name in the program.
#[used]
static KEPT: unsafe extern "C" fn(*const c_char, *const *const c_char, i32) = TVMFFIErrorSetRaisedFromCStrParts;

/// What was said since this was asked last.
pub fn take_error() -> String {
    ERROR.lock().map(|mut said| std::mem::take(&mut *said)).unwrap_or_default()
}

fn say(kind: &str, text: &str) {
    if let Ok(mut said) = ERROR.lock().map_err(drop)
        && said.is_empty()
    {
        *said = format!("{kind}: {text}");
    }
}

/// The text behind a pointer.
///
/// # Safety
///
/// It is null, or points to text that ends with a zero byte.
unsafe fn text(pointer: *const c_char) -> String {
    match pointer.is_null() {
        true => String::new(),
        // SAFETY: by the caller's promise.
        false => unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned(),
    }
}

/// An error in pieces.
///
/// # Safety
///
/// Only compiled kernels call it, with so many texts of their own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TVMFFIErrorSetRaisedFromCStrParts(
    kind: *const c_char,
    parts: *const *const c_char,
    count: i32,
) {
    let count = usize::try_from(count).unwrap_or(0).min(64);
    // SAFETY: the caller's texts, as many as it says.
    let parts = (0..count).map(|place| unsafe { text(*parts.add(place)) });
    let all: String = parts.collect();
    // SAFETY: the caller's text.
    say(&unsafe { text(kind) }, &all);
}

/// An error in one piece.
// SAFETY: only compiled kernels call it, through their own pointer, with texts of theirs.
unsafe extern "C" fn set_error(kind: *const c_char, message: *const c_char) {
    // SAFETY: the caller's texts.
    let (kind, message) = unsafe { (text(kind), text(message)) };
    say(&kind, &message);
}

// SAFETY: nothing is asked of the caller; it is unsafe because the pointers that kernels have for it are.
unsafe extern "C" fn alloc_workspace(_: c_int, _: c_int, bytes: u64, _: c_int, _: c_int) -> *mut c_void {
    let piece = usize::try_from(bytes).ok().and_then(workspace::lend);
    if piece.is_none() {
        say("MemoryError", &format!("no scratch memory of {bytes} bytes"));
    }
    piece.map_or(std::ptr::null_mut(), |piece| piece.cast())
}

// SAFETY: nothing is asked of the caller: an address that was not lent is refused.
unsafe extern "C" fn free_workspace(_: c_int, _: c_int, piece: *mut c_void) -> c_int {
    if workspace::take_back(piece.cast()) { 0 } else { -1 }
}

/// Stands where a library calls something that a board does not have.
extern "C" fn refuse() -> c_int {
    say("RuntimeError", "the library calls other functions of TVM's runtime, which a board agent does not have");
    -1
}

/// The pointers that a library may have, by name, and what goes into them.
pub fn slots() -> [(&'static str, usize); 8] {
    [
        ("__TVMFFIErrorSetRaisedFromCStr", set_error as *const () as usize),
        ("__TVMBackendAllocWorkspace", alloc_workspace as *const () as usize),
        ("__TVMBackendFreeWorkspace", free_workspace as *const () as usize),
        ("__TVMBackendParallelLaunch", pool::launch as *const () as usize),
        ("__TVMBackendParallelBarrier", pool::barrier as *const () as usize),
        ("__TVMFFIFunctionCall", refuse as *const () as usize),
        ("__TVMFFIEnvModLookupFromImports", refuse as *const () as usize),
        ("__TVMFFIHandleInitOnce", refuse as *const () as usize),
    ]
}
