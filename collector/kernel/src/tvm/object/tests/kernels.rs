//! Tests that loaded objects of a C compiler compute the same as linked objects.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs;
use std::sync::Arc;

use libloading::os::unix::Library;
use tvm_ffi::AnyView;

use super::super::{context, load_object};
use super::{address, by_both_routes, c_function, compile};

#[test]
fn arithmetic() {
    let object = compile("int add(int a, int b) { return a + b; }");
    by_both_routes(&object, |loaded| {
        let add = c_function!(loaded, "add", fn(c_int, c_int) -> c_int);
        // SAFETY: a pure function.
        assert_eq!(unsafe { add(40, 2) }, 42);
    });
}

#[test]
fn calls_into_libraries() {
    let object = compile(
        "#include <string.h>\n#include <math.h>\n\
         void fill(char *to, int value, unsigned long count) { memset(to, value, count); }\n\
         float exponential(float x) { return expf(x) + 1.0f; }",
    );
    by_both_routes(&object, |loaded| {
        let fill = c_function!(loaded, "fill", fn(*mut c_char, c_int, u64) -> ());
        let mut bytes = [0; 100];
        // SAFETY: the buffer has 99 bytes.
        unsafe { fill(bytes.as_mut_ptr(), 7, 99) };
        assert_eq!((bytes[0], bytes[98], bytes[99]), (7, 7, 0));
        let exponential = c_function!(loaded, "exponential", fn(f32) -> f32);
        // SAFETY: a pure function.
        assert_eq!(unsafe { exponential(1.5) }, 1.5f32.exp() + 1.0);
    });
}

#[test]
fn static_data_and_zeros() {
    let object = compile(
        "static int counter = 40; int shared = 2; static long zeros[100000];\n\
         int next(void) { counter += shared; return counter; }\n\
         long swap(int at, long value) { long old = zeros[at]; zeros[at] = value; return old; }",
    );
    by_both_routes(&object, |loaded| {
        let next = c_function!(loaded, "next", fn() -> c_int);
        // SAFETY: the function touches the object's own data only.
        assert_eq!(unsafe { (next(), next()) }, (42, 44));
        let swap = c_function!(loaded, "swap", fn(c_int, i64) -> i64);
        // SAFETY: the index is below the array's length.
        assert_eq!(unsafe { (swap(99_999, 5), swap(99_999, 6)) }, (0, 5));
    });
}

#[test]
fn pointers_to_text_and_a_jump_table() {
    let object = compile(
        "static const char *const names[] = {\"zero\", \"one\", \"two\"};\n\
         const char *name(int i) { return names[i]; }\n\
         int f0(int), f1(int), f2(int), f3(int), f4(int), f5(int);\n\
         int choose(int i, int x) { switch (i) { case 0: return f0(x); case 1: return f1(x); case 2: return f2(x);\n\
         case 3: return f3(x); case 4: return f4(x); case 5: return f5(x); default: return -1; } }\n\
         int f0(int x) { return x; } int f1(int x) { return x * 3; } int f2(int x) { return x - 7; }\n\
         int f3(int x) { return x ^ 5; } int f4(int x) { return x << 4; } int f5(int x) { return ~x; }",
    );
    by_both_routes(&object, |loaded| {
        let name = c_function!(loaded, "name", fn(c_int) -> *const c_char);
        // SAFETY: the index is below the table's length, and the text is terminated.
        let texts = [0, 1, 2].map(|i| unsafe { CStr::from_ptr(name(i)) }.to_str().expect("the text is ASCII"));
        assert_eq!(texts, ["zero", "one", "two"]);
        let choose = c_function!(loaded, "choose", fn(c_int, c_int) -> c_int);
        // SAFETY: a pure function.
        let answers = [0, 1, 2, 3, 4, 5, 6].map(|i| unsafe { choose(i, 10) });
        assert_eq!(answers, [10, 30, 3, 15, 160, -11, -1]);
    });
}

#[test]
fn the_address_of_an_imported_function_is_the_real_one() {
    let object = compile("#include <string.h>\nvoid *where(void) { return (void *)memcmp; }");
    let here = context::find_symbol(&Library::this(), "memcmp").expect("the C library has it").as_ptr();
    by_both_routes(&object, |loaded| {
        let place = c_function!(loaded, "where", fn() -> *mut c_void);
        // SAFETY: a pure function.
        assert_eq!(unsafe { place() }, here);
    });
}

#[test]
fn a_weak_symbol_may_be_nowhere() {
    let object = compile(
        "extern int absent(void) __attribute__((weak));\n\
         int call(void) { return absent ? absent() : 7; }",
    );
    by_both_routes(&object, |loaded| {
        let call = c_function!(loaded, "call", fn() -> c_int);
        // SAFETY: a pure function.
        assert_eq!(unsafe { call() }, 7);
    });
}

const PACKED: &str = "typedef struct { int type; int pad; long value; } Any;\n\
    int __tvm_ffi_next(void *self, const Any *arguments, int count, Any *result) {\n\
    if (count != 1) return -1;\n\
    result->type = 1; result->pad = 0; result->value = arguments[0].value + 1; return 0; }\n\
    int not_code = 5; int *__tvm_ffi_data = &not_code;";

#[test]
fn a_packed_function_keeps_the_mapping_alive() {
    let loaded = load_object(&compile(PACKED)).expect("the object loads");
    let backing = Arc::downgrade(&loaded.backing);
    // SAFETY: the object defines it with the signature of the binding.
    let function = unsafe { loaded.packed_function("next") }.expect("the object has the function");
    let second = function.clone();
    drop(loaded);
    drop(function);
    assert!(backing.upgrade().is_some(), "a living function keeps the code");
    let answer: i64 =
        second.call_packed(&[AnyView::from(&41i64)]).expect("the call succeeds").try_into().expect("an integer");
    assert_eq!(answer, 42);
    drop(second);
    assert!(backing.upgrade().is_none(), "the last function unmaps the code");
}

#[test]
fn a_packed_function_through_the_linker() {
    by_both_routes(&compile(PACKED), |loaded| {
        // SAFETY: the object defines it with the signature of the binding.
        let function = unsafe { loaded.packed_function("next") }.expect("the object has the function");
        let answer: i64 =
            function.call_packed(&[AnyView::from(&1i64)]).expect("the call succeeds").try_into().expect("an integer");
        assert_eq!(answer, 2);
        // SAFETY: there is none to be called.
        let missing = unsafe { loaded.packed_function("absent") }.err().map(|error| error.to_string());
        assert_eq!(missing.as_deref(), Some("the object defines no function `__tvm_ffi_absent`"));
    });
}

#[test]
fn data_is_never_offered_as_a_function() {
    let loaded = load_object(&compile(PACKED)).expect("the object loads");
    assert!(loaded.find_symbol("__tvm_ffi_data").is_some());
    // SAFETY: there is none to be called.
    assert!(unsafe { loaded.packed_function("data") }.is_err());
}

#[test]
fn variables_for_the_runtime_are_filled() {
    let object = compile("void *__TVMFFIFunctionCall; void *call(void) { return __TVMFFIFunctionCall; }");
    let here = context::find_symbol(&Library::this(), "TVMFFIFunctionCall").expect("the binding links it").as_ptr();
    by_both_routes(&object, |loaded| {
        let call = c_function!(loaded, "call", fn() -> *mut c_void);
        // SAFETY: a pure function.
        assert_eq!(unsafe { call() }, here);
    });
}

#[test]
fn no_page_is_writable_and_executable() {
    let object = compile("int data = 1; const int constant = 2; int code(void) { return data; }");
    let loaded = load_object(&object).expect("the object loads");
    let rights = ["code", "constant", "data"].map(|symbol| rights_of(address(&loaded, symbol) as usize));
    assert_eq!(rights, ["r-xp", "r--p", "rw-p"]);
}

fn rights_of(address: usize) -> String {
    let maps = fs::read_to_string("/proc/self/maps").expect("the kernel tells the mappings");
    let number = |text: &str| usize::from_str_radix(text, 16).expect("addresses are hexadecimal");
    let line = maps.lines().find(|line| {
        let (start, rest) = line.split_once('-').expect("a line begins with a range");
        let end = rest.split(' ').next().expect("a range has an end");
        (number(start)..number(end)).contains(&address)
    });
    line.and_then(|line| line.split(' ').nth(1)).expect("the address is mapped").to_owned()
}
