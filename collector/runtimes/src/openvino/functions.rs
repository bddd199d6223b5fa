//! Functions of the library's interface, by their symbol names.

use super::description::DESCRIPTION;
use crate::error::{Result, RuntimeError};
use crate::handles::{Handle, text_of};
use libloading::Library;
use std::ffi::{c_char, c_int, c_uint, c_void};

pub type Status = c_int;
pub type Element = c_uint;

#[repr(C)]
pub struct OpenVinoShape {
    pub rank: i64,
    pub extents: *mut i64,
}

#[repr(C)]
pub struct OpenVinoVersion {
    pub build: *const c_char,
    pub description: *const c_char,
}

macro_rules! functions {
    ($($field:ident = $symbol:literal, $ty:ty;)*) => {
        pub struct OpenVinoFunctions {
            $(pub $field: $ty,)*
        }

        impl OpenVinoFunctions {
            pub fn load_from(library: &Library) -> std::result::Result<OpenVinoFunctions, libloading::Error> {
                Ok(OpenVinoFunctions {
                    $($field: {
                        // SAFETY: the interface's headers declare this name with this type in all versions since 2022.
                        let symbol = unsafe { library.get::<$ty>($symbol) };
                        *symbol?
                    },)*
                })
            }
        }
    };
}

functions! {
    version = c"ov_get_openvino_version", unsafe extern "C" fn(*mut OpenVinoVersion) -> Status;
    release_version = c"ov_version_free", unsafe extern "C" fn(*mut OpenVinoVersion);
    status_text = c"ov_get_error_info", unsafe extern "C" fn(Status) -> *const c_char;
    last_message = c"ov_get_last_err_msg", unsafe extern "C" fn() -> *const c_char;
    free = c"ov_free", unsafe extern "C" fn(*const c_char);
    make_core = c"ov_core_create", unsafe extern "C" fn(*mut Handle) -> Status;
    release_core = c"ov_core_free", unsafe extern "C" fn(Handle);
    read_model = c"ov_core_read_model", unsafe extern "C" fn(Handle, *const c_char, *const c_char, *mut Handle) -> Status;
    release_model = c"ov_model_free", unsafe extern "C" fn(Handle);
    // The result pointer is followed by the given number of texts, alternating names and values of properties.
    compile = c"ov_core_compile_model",
        unsafe extern "C" fn(Handle, Handle, *const c_char, usize, *mut Handle, ...) -> Status;
    release_compiled = c"ov_compiled_model_free", unsafe extern "C" fn(Handle);
    property = c"ov_compiled_model_get_property",
        unsafe extern "C" fn(Handle, *const c_char, *mut *mut c_char) -> Status;
    input_count = c"ov_compiled_model_inputs_size", unsafe extern "C" fn(Handle, *mut usize) -> Status;
    output_count = c"ov_compiled_model_outputs_size", unsafe extern "C" fn(Handle, *mut usize) -> Status;
    input = c"ov_compiled_model_input_by_index", unsafe extern "C" fn(Handle, usize, *mut Handle) -> Status;
    output = c"ov_compiled_model_output_by_index", unsafe extern "C" fn(Handle, usize, *mut Handle) -> Status;
    release_port = c"ov_output_const_port_free", unsafe extern "C" fn(Handle);
    name = c"ov_port_get_any_name", unsafe extern "C" fn(Handle, *mut *mut c_char) -> Status;
    element = c"ov_port_get_element_type", unsafe extern "C" fn(Handle, *mut Element) -> Status;
    shape = c"ov_const_port_get_shape", unsafe extern "C" fn(Handle, *mut OpenVinoShape) -> Status;
    release_shape = c"ov_shape_free", unsafe extern "C" fn(*mut OpenVinoShape) -> Status;
    make_tensor = c"ov_tensor_create_from_host_ptr",
        unsafe extern "C" fn(Element, OpenVinoShape, *mut c_void, *mut Handle) -> Status;
    release_tensor = c"ov_tensor_free", unsafe extern "C" fn(Handle);
    make_request = c"ov_compiled_model_create_infer_request", unsafe extern "C" fn(Handle, *mut Handle) -> Status;
    release_request = c"ov_infer_request_free", unsafe extern "C" fn(Handle);
    set_input = c"ov_infer_request_set_input_tensor_by_index", unsafe extern "C" fn(Handle, usize, Handle) -> Status;
    set_output = c"ov_infer_request_set_output_tensor_by_index", unsafe extern "C" fn(Handle, usize, Handle) -> Status;
    run = c"ov_infer_request_infer", unsafe extern "C" fn(Handle) -> Status;
}

impl OpenVinoFunctions {
    pub fn check_status(&self, status: Status, doing: &'static str) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the first text is constant; the second is owned by the caller until it is freed.
        let (kind, message) = unsafe { (text_of((self.status_text)(status)), self.owned_text((self.last_message)())) };
        let why = last_line(&message).map_or(kind, str::to_owned);
        Err(RuntimeError::Refused { runtime: DESCRIPTION.name, doing, why })
    }

    /// Copies and frees a text that the library allocated for the caller.
    ///
    /// # Safety
    ///
    /// `text` is null, or a text that the library allocated for the caller, which ends with a zero byte and has no
    /// other user.
    pub unsafe fn owned_text(&self, text: *const c_char) -> String {
        // SAFETY: guaranteed by the caller; the text is copied before it is freed once.
        unsafe {
            let own = text_of(text);
            (self.free)(text);
            own
        }
    }
}

/// Returns the last line of an error message, which states the error; earlier lines are locations in the source.
fn last_line(message: &str) -> Option<&str> {
    message.lines().map(str::trim).rfind(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_the_last_line_of_a_message() {
        let message =
            "Exception from src/core.cpp:84:\nCheck 'exists(path)' failed at src/frontend.cpp:117:\n no such file\n\n";
        assert_eq!(last_line(message), Some("no such file"));
        assert_eq!(last_line("\n\n"), None);
    }
}
