//! Unsafe code of a library's handles and texts. A handle is released once, by its library, which is loaded until then.

use std::ffi::{CStr, c_char, c_void};

pub type Handle = *mut c_void;

pub struct Owned<R> {
    pub handle: Handle,
    release: unsafe extern "C" fn(Handle),
    _runtime: R,
}

impl<R: Clone> Owned<R> {
    pub fn new(runtime: &R, handle: Handle, release: unsafe extern "C" fn(Handle)) -> Owned<R> {
        Owned { handle, release, _runtime: runtime.clone() }
    }
}

impl<R> Drop for Owned<R> {
    fn drop(&mut self) {
        // SAFETY: the library created the handle, `release` is the matching function, and `drop` runs once.
        unsafe { (self.release)(self.handle) };
    }
}

/// Copies a C string; null becomes an empty text.
///
/// # Safety
///
/// `text` is null or points to a string that ends with a zero byte.
pub unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
