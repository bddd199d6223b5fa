//! Functions of the library's interface, by index in its function table, to which new versions only append.

use super::description::DESCRIPTION;
use crate::error::{Result, RuntimeError};
use crate::handles::{Handle, text_of};
use std::ffi::{c_char, c_int, c_void};

/// First version of the interface with all functions below.
pub const VERSION: u32 = 5;

pub type Status = *mut c_void;

/// Type of the library's only exported symbol.
#[repr(C)]
pub struct Base {
    pub table: unsafe extern "C" fn(u32) -> *const *const c_void,
    pub version: unsafe extern "C" fn() -> *const c_char,
}

macro_rules! functions {
    ($($field:ident = $place:literal, ($($argument:ty),*) $(-> $result:ty)?;)*) => {
        pub struct OnnxRuntimeFunctions {
            $(pub $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl OnnxRuntimeFunctions {
            /// # Safety
            ///
            /// `table` is the library's table of version [`VERSION`] or later.
            pub unsafe fn from_table(table: *const *const c_void) -> OnnxRuntimeFunctions {
                OnnxRuntimeFunctions {
                    $($field: {
                        // SAFETY: the interface defines this signature at this index.
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

impl OnnxRuntimeFunctions {
    /// Returns the error that a status describes, if any, and releases the status.
    pub fn check_status(&self, status: Status, doing: &'static str) -> Result<()> {
        if status.is_null() {
            return Ok(());
        }
        // SAFETY: a status other than null has a text, which is copied before the status is released once.
        let why = unsafe {
            let why = text_of((self.message)(status));
            (self.release_status)(status);
            why
        };
        let why = why.lines().next().unwrap_or_default().to_owned();
        Err(RuntimeError::Refused { runtime: DESCRIPTION.name, doing, why })
    }
}
