//! Frame pointers, so that spilled vectors are aligned.
//!
//! A vector that no register is left for goes to the stack, and its slot is aligned only if the function can realign its stack. LLVM
//! decides that while it assigns registers, when only a function that keeps a frame pointer still can. Without one the slots of
//! vectors that are wider than the stack's own alignment cross cache lines or not, depending on the caller's stack address, and a
//! read that crosses lines waits until the write before it has reached the cache. TVM has no setting for attributes of LLVM's
//! functions, so the attribute is written into the text of the optimised module, and code is generated from that: without the
//! attribute the objects of both modules are the same bytes.

use super::call::{TvmError, Value, call};
use super::compile::MemoryFile;
use super::names;

/// Whether the vectors of a target's architecture are wider than the stack alignment of its calling convention: 16 bytes on x86, 8 on
/// 32-bit ARM. AArch64 and RISC-V align stacks for all fixed-size vectors that they have.
pub(super) fn needs_frames(target: &str) -> bool {
    matches!(job::target::architecture(target).as_str(), "x86_64" | "i386" | "i586" | "i686" | "arm")
}

/// The built module with functions that keep frame pointers.
pub(super) fn with_frame_pointers(built: &Value) -> Result<Value, TvmError> {
    let text = call!(names::MODULE_SOURCE, built, "ll")?.text()?;
    let failed = |error: &dyn std::fmt::Display| TvmError::new(names::LOAD_LLVM_IR.text, error);
    let memory = MemoryFile::new("module").map_err(|error| failed(&error))?;
    std::fs::write(&memory.path, with_attribute(&text)).map_err(|error| failed(&error))?;
    call!(names::LOAD_LLVM_IR, memory.path.as_str(), "ll")
}

/// The text of a module whose functions for the target keep frame pointers: every function with a body has attributes that name its
/// processor.
fn with_attribute(text: &str) -> String {
    const PROCESSOR: &str = r#""target-cpu"="#;
    const WITH_FRAME: &str = r#""frame-pointer"="all" "target-cpu"="#;
    let line = |line: &str| {
        let is_group = line.starts_with("attributes #");
        if is_group { line.replacen(PROCESSOR, WITH_FRAME, 1) } else { line.to_owned() }
    };
    text.split_inclusive('\n').map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::{needs_frames, with_attribute};

    #[test]
    fn functions_of_the_target_get_the_attribute() {
        let text = "@s = c\"\\22target-cpu\\22=\"\ndefine void @f() #0 {\n}\ndeclare void @g() #1\n\
                    attributes #0 = { noinline \"target-cpu\"=\"haswell\" }\nattributes #1 = { noinline }\n";
        let expected = text.replace("{ noinline \"target", "{ noinline \"frame-pointer\"=\"all\" \"target");
        assert_eq!(with_attribute(text), expected);
    }

    #[test]
    fn architectures_with_aligned_stacks_need_none() {
        assert!(needs_frames(r#"{"kind": "llvm", "mtriple": "x86_64-linux-gnu"}"#));
        assert!(needs_frames(r#"{"kind": "llvm", "mtriple": "armv7a-linux-gnueabihf"}"#));
        assert!(!needs_frames(r#"{"kind": "llvm", "mtriple": "aarch64-linux-gnu"}"#));
        assert!(!needs_frames(r#"{"kind": "llvm", "mtriple": "riscv64-linux-gnu"}"#));
    }
}
