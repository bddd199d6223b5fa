//! Feeds arbitrary bytes to the loader of kernels; it must answer with an error or an image, whatever they are.
//!
//! Run with `fuzz/run object`; a good start is a folder with some object files.
//! Nothing loaded is executed.

/// Runs the target.
#[allow(unsafe_code, reason = "looking up a function is what is fuzzed")]
pub fn run(bytes: &[u8]) {
    if let Ok(loaded) = kernel::tvm::object::load(bytes) {
        let _ = loaded.symbol("main");
        // SAFETY: the function is looked up and dropped; nobody calls it.
        let _ = unsafe { loaded.function("main") };
    }
}
