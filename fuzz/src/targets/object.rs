//! Loads arbitrary bytes as an object file of a kernel, without executing it. Useful seeds are object files.

#[allow(unsafe_code, reason = "looking up a function is what is fuzzed")]
pub fn run(bytes: &[u8]) {
    if let Ok(loaded) = kernel::tvm::object::load_object(bytes) {
        let _ = loaded.find_symbol("main");
        // SAFETY: the function is looked up and dropped, and never called.
        let _ = unsafe { loaded.packed_function("main") };
    }
}
