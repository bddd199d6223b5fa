//! Tests that errors name the unsupported part of an object and state whether the linker may support it.

use expect_test::{Expect, expect};

use super::super::load_object;
use super::{compile, compile_with, link};

fn check(object: &[u8], expected: Expect) {
    let error = load_object(object).expect_err("the loader refuses this");
    expected.assert_eq(&format!("{error} [linker may help: {}]", error.linker_may_help()));
}

#[test]
fn a_symbol_that_no_library_has() {
    check(
        &compile("int nowhere_to_be_found(void); int f(void) { return nowhere_to_be_found(); }"),
        expect![
            "no library in this process defines `nowhere_to_be_found`, which the object needs; open the TVM runtime before loading [linker may help: false]"
        ],
    );
}

#[test]
fn thread_local_storage() {
    check(
        &compile("__thread int x = 5; int f(void) { return ++x; }"),
        expect![
            "thread-local storage (section `.tdata`) is not supported by the in-memory loader; the system's linker may load it [linker may help: true]"
        ],
    );
}

#[test]
fn code_that_runs_on_loading_is_taken_by_nothing() {
    let sources = [
        ("section `.init_array`", "__attribute__((constructor)) static void start(void) { x = 3; }"),
        ("section `.fini_array`", "__attribute__((destructor)) static void end(void) { x = 3; }"),
        ("section `.init_array.00007`", "__attribute__((constructor(7))) static void start(void) { x = 3; }"),
        ("section `.ctors`", "void start(void) { x = 3; } __attribute__((section(\".ctors\"))) void *entry = start;"),
        ("section `.init`", "__attribute__((section(\".init\"))) void start(void) { x = 3; }"),
        ("symbol `_init`", "void _init(void) { x = 3; }"),
        ("symbol `_fini`", "void _fini(void) { x = 3; }"),
        (
            "symbol `pick`",
            "static int one(void) { return 1; } static void *choose(void) { return one; } int pick(void) __attribute__((ifunc(\"choose\")));",
        ),
    ];
    let dir = tempfile::tempdir().expect("a temporary folder can be made");
    for (what, source) in sources {
        let object = compile_with(&format!("int x; {source} int f(void) {{ return x; }}"), &["-O2", "-fPIC", "-w"]);
        let error = link(&object, dir.path()).expect_err(what);
        assert!(error.to_string().contains(what) && !error.linker_may_help(), "{what}: {error}");
        // The loader in memory calls nothing, so that a name alone does no harm there.
        if what.starts_with("section") {
            let error = load_object(&object).expect_err(what);
            assert!(error.to_string().contains(what) && !error.linker_may_help(), "{what}: {error}");
        }
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("the folder is readable").count(), 0);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn an_unknown_relocation() {
    check(
        &compile("__asm__(\".data\\nd: .quad 0, 0\\n.reloc d + 8, R_X86_64_GOT64, d\\n.text\");"),
        expect![
            "relocation type 27 in section `.data` at offset 0x8 is not supported by the in-memory loader; the system's linker may load it [linker may help: true]"
        ],
    );
}

#[cfg(target_arch = "x86_64")]
#[test]
fn absolute_addresses_of_32_bits() {
    let error =
        load_object(&compile_with("int x; int *f(int i) { return &x + i; }", &["-O2", "-fno-pic", "-mcmodel=medium"]));
    // Where the kernel maps an image is its choice: nearly always beyond four gigabytes, which 32 bits cannot name.
    if let Err(error) = error {
        assert!(error.to_string().starts_with("symbol `"), "{error}");
        assert!(error.linker_may_help());
    }
}

#[test]
fn another_machine() {
    let mut object = compile("int f(void) { return 1; }");
    object[18..20].copy_from_slice(&183u16.to_le_bytes());
    check(
        &object,
        expect![
            "object files for AArch64 are not supported by the in-memory loader on this machine; the system's linker may load them [linker may help: true]"
        ],
    );
}

#[test]
fn no_object_at_all() {
    check(b"", expect!["malformed object file: Invalid ELF header size or alignment [linker may help: false]"]);
    check(&[b'a'; 100], expect!["malformed object file: Unsupported ELF header [linker may help: false]"]);
}

#[test]
fn a_linked_library() {
    let mut object = compile("int f(void) { return 1; }");
    object[16] = 3;
    check(
        &object,
        expect![
            "malformed object file: the file is already linked; an unlinked object file is required [linker may help: false]"
        ],
    );
}

#[test]
fn zeros_beyond_the_limit() {
    let object = compile("static char huge[1l << 31]; char f(long i) { return ++huge[i]; }");
    let error = load_object(&object).expect_err("no kernel is that large").to_string();
    assert!(error.starts_with("the loaded image is 21474"), "{error}");
    assert!(error.ends_with("bytes, more than the limit of 1073741824"), "{error}");
}

#[test]
fn the_linker_tells_what_it_dislikes() {
    let dir = tempfile::tempdir().expect("a temporary folder can be made");
    // A linker takes text for a script.
    for text in [&b"no object"[..], b"INPUT(-lc)"] {
        let error = link(text, dir.path()).expect_err("text is no object");
        assert!(error.to_string().starts_with("malformed object file"), "{error}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("the folder is readable").count(), 0);
    let object = compile("int nowhere_to_be_found(void); int f(void) { return nowhere_to_be_found(); }");
    let error = link(&object, dir.path()).expect_err("the symbol is nowhere");
    assert!(error.to_string().contains("nowhere_to_be_found"), "{error}");
}

#[test]
fn files_that_somebody_planted_are_left_alone() {
    let dir = tempfile::tempdir().expect("a temporary folder can be made");
    let precious = dir.path().join("precious");
    std::fs::write(&precious, "as it was").expect("the file can be written");
    // Names made of what anybody can see or guess.
    let names = (0..500).map(|count| format!("kernel-{}-{count}.so", std::process::id()));
    let plant = |name: String| std::os::unix::fs::symlink(&precious, dir.path().join(name));
    names.into_iter().try_for_each(plant).expect("links can be made");
    link(&compile("int f(void) { return 1; }"), dir.path()).expect("the linker takes it");
    assert_eq!(std::fs::read_to_string(&precious).expect("it is still text"), "as it was");
    assert_eq!(std::fs::read_dir(dir.path()).expect("the folder is readable").count(), 501);
}
