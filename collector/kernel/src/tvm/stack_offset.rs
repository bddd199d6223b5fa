//! Calls functions at a chosen offset below the caller's stack, so that times depend neither on one stack address,
//! which decides the cache sets that the stack shares with data, nor on the process's environment.

/// Size of a page. Cache conflicts depend only on offsets within a page.
pub const PAGE_BYTES: usize = 4096;
/// Stack alignment of the x86-64 and AArch64 calling conventions.
pub const STEP_BYTES: usize = 16;

/// Calls a function with the stack pointer moved down by `bytes` modulo a page, in steps of 16, on x86-64 and AArch64.
pub fn with_stack_offset<T, F: FnOnce() -> T>(bytes: usize, function: F) -> T {
    let mut call = OffsetCall { function: Some(function), result: None };
    moved::run(&mut call, bytes % PAGE_BYTES / STEP_BYTES * STEP_BYTES);
    call.result.expect("the function was called")
}

struct OffsetCall<T, F> {
    function: Option<F>,
    result: Option<T>,
}

impl<T, F: FnOnce() -> T> OffsetCall<T, F> {
    fn make_call(&mut self) {
        self.result = self.function.take().map(|function| function());
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod moved {
    use super::OffsetCall;
    use std::arch::naked_asm;
    use std::ffi::c_void;

    type Callee = unsafe extern "C-unwind" fn(*mut c_void);

    /// Makes a call with the stack moved down by a multiple of 16 bytes, at most a page.
    pub(super) fn run<T, F: FnOnce() -> T>(call: &mut OffsetCall<T, F>, bytes: usize) {
        // SAFETY: the callee gets the call of its own type, which is borrowed for the whole time; the offset keeps the
        // stack aligned, and is too small to step over the guard page below the stack.
        unsafe { move_and_call((&raw mut *call).cast(), make::<T, F>, bytes) }
    }

    /// # Safety
    ///
    /// `call` must point to an `OffsetCall<T, F>` of the same types that nothing else uses.
    unsafe extern "C-unwind" fn make<T, F: FnOnce() -> T>(call: *mut c_void) {
        // SAFETY: the caller's promise.
        unsafe { &mut *call.cast::<OffsetCall<T, F>>() }.make_call();
    }

    /// Calls `callee` with `data` after moving the stack pointer down. The frame pointer links to the caller's frame.
    ///
    /// # Safety
    ///
    /// `bytes` must be a multiple of 16 and at most a page, and `callee` must accept `data`.
    // SAFETY: the body follows the calling convention, and restores the registers that belong to its caller.
    #[cfg(target_arch = "x86_64")]
    #[unsafe(naked)]
    unsafe extern "C-unwind" fn move_and_call(data: *mut c_void, callee: Callee, bytes: usize) {
        naked_asm!(
            ".cfi_startproc",
            "push rbp",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset rbp, -16",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            "sub rsp, rdx",
            "call rsi",
            "mov rsp, rbp",
            "pop rbp",
            ".cfi_def_cfa rsp, 8",
            "ret",
            ".cfi_endproc",
        )
    }

    /// Calls `callee` with `data` after moving the stack pointer down. The frame pointer links to the caller's frame.
    ///
    /// # Safety
    ///
    /// `bytes` must be a multiple of 16 and at most a page, and `callee` must accept `data`.
    // SAFETY: the body follows the calling convention, and restores the registers that belong to its caller.
    #[cfg(target_arch = "aarch64")]
    #[unsafe(naked)]
    unsafe extern "C-unwind" fn move_and_call(data: *mut c_void, callee: Callee, bytes: usize) {
        naked_asm!(
            ".cfi_startproc",
            "stp x29, x30, [sp, #-16]!",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset x29, -16",
            ".cfi_offset x30, -8",
            "mov x29, sp",
            ".cfi_def_cfa x29, 16",
            "sub sp, sp, x2",
            "blr x1",
            "mov sp, x29",
            "ldp x29, x30, [sp], #16",
            ".cfi_def_cfa sp, 0",
            ".cfi_restore x29",
            ".cfi_restore x30",
            "ret",
            ".cfi_endproc",
        )
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod moved {
    use super::OffsetCall;

    pub(super) fn run<T, F: FnOnce() -> T>(call: &mut OffsetCall<T, F>, _: usize) {
        call.make_call();
    }
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::{PAGE_BYTES, STEP_BYTES, with_stack_offset};
    use std::hint::black_box;

    #[inline(never)]
    fn local_address() -> usize {
        let local = 0_u8;
        black_box(&raw const local).addr()
    }

    #[test]
    fn locals_move_by_the_offset() {
        let addresses: Vec<usize> =
            (0..2 * PAGE_BYTES).step_by(8).map(|bytes| with_stack_offset(bytes, local_address)).collect();
        for (place, address) in addresses.iter().enumerate() {
            let bytes = (8 * place) % PAGE_BYTES / STEP_BYTES * STEP_BYTES;
            assert_eq!(addresses[0] - address, bytes, "offset {}", 8 * place);
        }
    }

    #[test]
    fn calls_nest_and_return_what_they_compute() {
        let nested = |outer, inner| with_stack_offset(outer, || (inner, with_stack_offset(inner, local_address)));
        let ((_, start), (inner, moved)) = (nested(0, 0), nested(1024, 2048 + 64));
        assert_eq!((inner, start - moved), (2112, 3072 + 64));
    }

    #[test]
    fn panics_pass_through() {
        let caught = std::panic::catch_unwind(|| with_stack_offset(3 * 64, || -> u32 { panic!("on purpose") }));
        assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"on purpose"));
    }
}
