//! Tests of the loader with objects of the system's C compiler, objects of TVM, and malformed objects.

#[path = "../../../../../../tests/damage.rs"]
mod damage;
mod kernels;
mod mutation;
mod refusals;
mod tvm_kernel;

use std::ffi::c_void;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{LoadError, LoadedObject, load_object, load_through_linker};

fn compile(source: &str) -> Vec<u8> {
    compile_with(source, &["-O2", "-fPIC"])
}

fn compile_with(source: &str, flags: &[&str]) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a temporary folder can be made");
    let (input, output) = (dir.path().join("kernel.c"), dir.path().join("kernel.o"));
    fs::write(&input, source).expect("the source can be written");
    run(Command::new("cc").arg("-c").args(flags).arg("-o").arg(&output).arg(&input));
    fs::read(&output).expect("the compiler wrote an object")
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?} ended with {}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
}

fn by_both_routes(bytes: &[u8], check: impl Fn(&LoadedObject)) {
    check(&load_object(bytes).expect("the object loads in memory"));
    let dir = tempfile::tempdir().expect("a temporary folder can be made");
    let linked = link(bytes, dir.path()).expect("the object loads through the linker");
    let left = fs::read_dir(dir.path()).expect("the folder is readable").count();
    assert_eq!(left, 0, "the linker route leaves no files");
    check(&linked);
}

fn link(bytes: &[u8], parent: &Path) -> Result<LoadedObject, LoadError> {
    // SAFETY: what these objects run on loading, if anything, is harmless.
    unsafe { load_through_linker(bytes, parent) }
}

fn address(loaded: &LoadedObject, name: &str) -> *mut c_void {
    loaded.find_symbol(name).unwrap_or_else(|| panic!("the object defines `{name}`")).as_ptr()
}

macro_rules! c_function {
    ($loaded:expr, $name:literal, fn($($argument:ty),*) -> $result:ty) => {{
        let address = super::address($loaded, $name);
        // SAFETY: the test compiled the function from C with this signature.
        let function = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $result>(address) };
        function
    }};
}
use c_function;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies in the workspace").to_owned()
}
