//! Aligns stack slots for vectors and buffers to cache lines. TVM aligns buffers to 16 bytes, and LLVM aligns slots of
//! spilled vectors only in functions with a frame pointer. Other slots may cross cache lines, and a read across lines
//! waits until the preceding write has reached the cache. TVM has no setting for this, so the LLVM IR text of the
//! optimised module is edited; unedited text gives the same bytes as the module.

use super::call::{TvmError, Value, call};
use super::memory_file::MemoryFile;
use super::names;

/// Size of a cache line on most processors, and of the widest vector.
const LINE_BYTES: u32 = 64;

pub(super) fn with_aligned_stack(built: &Value) -> Result<Value, TvmError> {
    let text = call!(names::MODULE_SOURCE, built, "ll")?.as_text()?;
    let failed = |error: &dyn std::fmt::Display| TvmError::new(names::LOAD_LLVM_IR.text, error);
    let memory = MemoryFile::new("module").map_err(|error| failed(&error))?;
    std::fs::write(&memory.path, align_stacks(&text)).map_err(|error| failed(&error))?;
    call!(names::LOAD_LLVM_IR, memory.path.as_str(), "ll")
}

fn align_stacks(text: &str) -> String {
    text.split_inclusive('\n').fold(String::with_capacity(text.len() + 1024), |mut all, line| {
        match with_alignment(line).or_else(|| with_frame_pointer(line)) {
            Some(line) => all.push_str(&line),
            None => all.push_str(line),
        }
        all
    })
}

/// Returns a line of LLVM IR with its stack allocation (`alloca`) aligned to a cache line; None for other lines.
fn with_alignment(line: &str) -> Option<String> {
    const ALIGNMENT: &str = ", align ";
    let place = line.find(" = alloca ").filter(|_| line.starts_with("  %"))?;
    let number = place + line[place..].rfind(ALIGNMENT)? + ALIGNMENT.len();
    let end = line[number..].find(|letter: char| !letter.is_ascii_digit()).map_or(line.len(), |digits| number + digits);
    let alignment: u32 = line[number..end].parse().ok()?;
    Some(format!("{}{}{}", &line[..number], alignment.max(LINE_BYTES), &line[end..]))
}

/// Returns a line with a frame pointer added to the functions' attributes (with `target-cpu`); None for other lines.
fn with_frame_pointer(line: &str) -> Option<String> {
    const PROCESSOR: &str = r#""target-cpu"="#;
    const WITH_FRAME: &str = r#""frame-pointer"="all" "target-cpu"="#;
    let is_group = line.starts_with("attributes #");
    is_group.then(|| line.replacen(PROCESSOR, WITH_FRAME, 1))
}

#[cfg(test)]
mod tests {
    use super::align_stacks;

    #[test]
    fn buffers_and_functions_get_what_aligns_them() {
        let text = r#"@.str = private constant [20 x i8] c"\22target-cpu\22=, align 1\00", align 1
define void @f() #0 {
  %0 = alloca %closure, align 8, !dbg !46
  %a.b = alloca [288 x float], align 16
  %wide = alloca <64 x float>, align 256
  store i32 0, ptr %0, align 4
}
declare void @g() #1
attributes #0 = { noinline "target-cpu"="haswell" "target-features" }
attributes #1 = { noinline }
"#;
        let expected = text
            .replace("%closure, align 8,", "%closure, align 64,")
            .replace("[288 x float], align 16", "[288 x float], align 64")
            .replace("{ noinline \"target", "{ noinline \"frame-pointer\"=\"all\" \"target");
        assert_eq!(align_stacks(text), expected);
    }
}
