//! **Fence**: what a runtime's library gives, its handles and its texts.
//!
//! Keeps true: a handle goes back once, to the function of the library that belongs to it, and the library stays open until then.

use std::ffi::{CStr, c_char, c_void};

/// Something of the library's.
pub type Handle = *mut c_void;

/// What the library gave and takes back.
pub struct Owned<R> {
    pub handle: Handle,
    release: unsafe extern "C" fn(Handle),
    /// Keeps the library open.
    _runtime: R,
}

impl<R: Clone> Owned<R> {
    /// A handle that the library gave, with the function that takes it back.
    pub fn new(runtime: &R, handle: Handle, release: unsafe extern "C" fn(Handle)) -> Owned<R> {
        Owned { handle, release, _runtime: runtime.clone() }
    }
}

impl<R> Drop for Owned<R> {
    fn drop(&mut self) {
        // SAFETY: made by the library with the function that belongs to this one, and released once.
        unsafe { (self.release)(self.handle) };
    }
}

/// A text of the library's, copied.
///
/// # Safety
///
/// The pointer is nothing, or leads to a text that ends in zero.
pub unsafe fn text_of(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
