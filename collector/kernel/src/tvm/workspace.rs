//! Counts the bytes that compiled code requests from TVM's workspace, by a function that forwards to TVM's function.

use libloading::os::unix::Library;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Name of TVM's allocation function, which the function of this module replaces.
pub const NAME: &str = "TVMBackendAllocWorkspace";

/// Signature of the allocation function: device type and number, bytes, element type code and bits.
type Allocate = unsafe extern "C" fn(c_int, c_int, u64, c_int, c_int) -> *mut c_void;

static ORIGINAL: OnceLock<Allocate> = OnceLock::new();
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Redirects workspace allocations of code loaded later. Returns false if TVM's function is missing.
pub fn install_hook() -> bool {
    if ORIGINAL.get().is_none() {
        // SAFETY: TVM's runtime exports a function of this name and signature in `c_backend_api.h`, and is never
        // unloaded.
        if let Ok(original) = unsafe { Library::this().get::<Allocate>(NAME.as_bytes()) } {
            let _ = ORIGINAL.set(*original);
        }
    }
    ORIGINAL.get().is_some()
}

pub(super) fn hook_address() -> Option<usize> {
    ORIGINAL.get().map(|_| allocate_workspace as Allocate as usize)
}

pub fn take_bytes() -> u64 {
    BYTES.swap(0, Ordering::Relaxed)
}

/// # Safety
///
/// Called only by compiled code, with the arguments that TVM's function requires.
unsafe extern "C" fn allocate_workspace(
    kind: c_int,
    device: c_int,
    bytes: u64,
    code: c_int,
    bits: c_int,
) -> *mut c_void {
    BYTES.fetch_add(bytes, Ordering::Relaxed);
    let Some(original) = ORIGINAL.get() else { return std::ptr::null_mut() };
    // SAFETY: the caller's arguments are passed on to the function that the caller expects.
    unsafe { original(kind, device, bytes, code, bits) }
}
