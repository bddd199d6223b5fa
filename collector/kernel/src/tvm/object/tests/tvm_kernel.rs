//! Tests loading a kernel of TVM: the object of a parallel loop, with the runtime's variables and a library call.

use std::fs;
use std::process::Command;

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use tvm_ffi::{AnyView, DLDataType, DLDataTypeExt};

use super::super::load_object;
use super::{by_both_routes, run, workspace};
use crate::tvm::memory::{Bounds, allocate_tensor, read_values, write_values};

const EMIT: &str = r#"
import sys, tvm
from tvm import te
from tvm.s_tir import Schedule
a = te.placeholder((1000,), name="a")
b = te.placeholder((1000,), name="b")
c = te.compute((1000,), lambda i: te.exp(a[i]) * b[i], name="c")
schedule = Schedule(te.create_prim_func([a, b, c]).with_attr("global_symbol", "main"))
schedule.parallel(schedule.get_loops(schedule.get_sblock("c"))[0])
tvm.compile(schedule.mod, target="llvm").mod.write_to_file(sys.argv[1], "o")
"#;

#[test]
fn a_parallel_kernel_of_tvm_computes() {
    let environment = workspace().join(".venv");
    let python = environment.join("bin/python");
    if !python.exists() {
        // This line is for the person who runs the tests by hand without having run `scripts/setup`.
        #[allow(clippy::print_stderr)]
        {
            eprintln!("skipped: there is no `.venv`, run `scripts/setup` for this test");
        }
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary folder can be made");
    let file = dir.path().join("kernel.o");
    run(Command::new(&python).arg("-c").arg(EMIT).arg(&file));
    let object = fs::read(&file).expect("TVM wrote an object");

    if linker_is_needed_first(&object) {
        open_runtime(&python);
    }
    by_both_routes(&object, |loaded| {
        let float = DLDataType::try_from_str("float32").expect("TVM knows the type");
        let [a, b, c] =
            [(); 3].map(|()| allocate_tensor(&[1000], float, Bounds::Guarded).expect("memory for the test"));
        let values: Vec<f32> = (0..1000).map(|i| i as f32 / 1000.0).collect();
        write_values(&a, &values).expect("the type and length fit");
        write_values(&b, &vec![2.0f32; 1000]).expect("the type and length fit");
        // SAFETY: TVM compiled it with the signature of its packed functions.
        let main = unsafe { loaded.packed_function("main") }.expect("TVM emitted the entry");
        main.call_packed(&[AnyView::from(&a), AnyView::from(&b), AnyView::from(&c)]).expect("the kernel runs");
        for (result, x) in read_values::<f32>(&c).expect("the type fits").iter().zip(&values) {
            assert!((result - 2.0 * x.exp()).abs() < 1e-5, "exp({x}) * 2 is not {result}");
        }
        let error = main.call_packed(&[AnyView::from(&a)]).err().expect("the kernel checks its arguments");
        assert!(error.message().contains("argument"), "{}", error.message());
    });
}

fn linker_is_needed_first(object: &[u8]) -> bool {
    match load_object(object) {
        Ok(_) => false,
        Err(error) => {
            assert!(error.to_string().contains("`TVMBackendParallelLaunch`"), "{error}");
            true
        }
    }
}

fn open_runtime(python: &std::path::Path) {
    let output = Command::new(python)
        .args(["-c", "import importlib.util as u; print(u.find_spec('tvm').submodule_search_locations[0])"])
        .output()
        .expect("Python runs");
    let folder = String::from_utf8(output.stdout).expect("the path is text");
    let path = format!("{}/lib/libtvm_runtime.so", folder.trim());
    // SAFETY: TVM's runtime may be opened in any process; it stays open because its handle is leaked.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) }.expect("the runtime opens");
    std::mem::forget(library);
}
