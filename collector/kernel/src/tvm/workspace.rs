//! What built code asks of TVM's workspace while it runs: the function that it calls for memory is one of ours, which counts the
//! bytes and asks TVM's.

use libloading::os::unix::Library;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// TVM's function that ours replaces.
pub const NAME: &str = "TVMBackendAllocWorkspace";

/// Device type and number, bytes, element type code and bits.
type Allocate = unsafe extern "C" fn(c_int, c_int, u64, c_int, c_int) -> *mut c_void;

static ORIGINAL: OnceLock<Allocate> = OnceLock::new();
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Redirects allocations of code loaded later; returns whether TVM's function exists.
pub fn install_hook() -> bool {
    if ORIGINAL.get().is_none() {
        // SAFETY: TVM's runtime exports a function of this name and signature in `c_backend_api.h`, and is never unloaded.
        if let Ok(original) = unsafe { Library::this().get::<Allocate>(NAME.as_bytes()) } {
            let _ = ORIGINAL.set(*original);
        }
    }
    ORIGINAL.get().is_some()
}

/// Returns the address of our function if installed.
pub(super) fn hook_address() -> Option<usize> {
    ORIGINAL.get().map(|_| allocate_workspace as Allocate as usize)
}

/// Returns the bytes requested since the last call.
pub fn take_bytes() -> u64 {
    BYTES.swap(0, Ordering::Relaxed)
}

/// Allocates through TVM.
///
/// # Safety
///
/// Only built code calls it, as it would call TVM's function.
unsafe extern "C" fn allocate_workspace(
    kind: c_int,
    device: c_int,
    bytes: u64,
    code: c_int,
    bits: c_int,
) -> *mut c_void {
    BYTES.fetch_add(bytes, Ordering::Relaxed);
    let Some(original) = ORIGINAL.get() else { return std::ptr::null_mut() };
    // SAFETY: the caller's own arguments go to the function that it meant.
    unsafe { original(kind, device, bytes, code, bits) }
}
