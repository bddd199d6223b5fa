//! Linked libraries of the programs, and memory of the orchestrator.
#![allow(missing_docs)]

use object::LittleEndian;
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, DynamicTag};
use object::read::elf::{Dyn, ElfFile64, FileHeader};
use tests::{Bench, processes, program, run, start};

/// Returns the texts of the entries with these tags in a program's dynamic section.
fn dynamic(name: &str, tags: &[DynamicTag]) -> Vec<String> {
    let bytes = std::fs::read(program(name)).expect("a program can be read");
    let file = ElfFile64::<LittleEndian>::parse(&*bytes).expect("a program is an ELF file");
    let endian = file.endian();
    let sections = file.elf_header().sections(endian, &*bytes).expect("a program has sections");
    let (entries, strings) = sections
        .dynamic(endian, &*bytes)
        .expect("the dynamic section is sound")
        .expect("a program is linked dynamically");
    let strings = sections.strings(endian, &*bytes, strings).expect("its strings are sound");
    let text = |entry: &&_| {
        let offset = Dyn::val32(*entry, endian).expect("offsets are small");
        String::from_utf8_lossy(strings.get(offset).expect("its strings are sound")).into_owned()
    };
    let wanted: Vec<_> = entries.iter().filter(|entry| tags.contains(&entry.d_tag(endian))).collect();
    wanted.iter().map(text).collect()
}

#[test]
fn only_the_worker_is_linked_with_the_compiler_s_library() {
    let needs_library = |name| dynamic(name, &[DT_NEEDED]).iter().any(|needed| needed.contains("libtvm"));
    assert!(!needs_library("opcollect"), "the orchestrator must start, and say what is missing, without TVM");
    assert_eq!(
        dynamic("opcollect-worker", &[DT_NEEDED]).iter().filter(|name| name.contains("libtvm")).count(),
        1,
        "the worker needs the interface alone; the rest is opened when its place is known"
    );
    let paths = dynamic("opcollect-worker", &[DT_RUNPATH, DT_RPATH]).join(":");
    assert!(paths.contains("tvm_ffi/lib") && paths.contains("$ORIGIN/../lib"), "{paths}");
}

#[test]
fn the_orchestrator_needs_little_memory() {
    const MOST_BYTES: u64 = 40 << 20;
    let bench = Bench::new();
    let arguments = |schedules: u32| {
        format!("--modelsource local --modelname mlp --schedules {schedules} --config quick.toml --store store")
    };
    // The first campaign of a host also measures the memory bandwidth, with sets of several times the caches.
    run(bench.opcollect(&arguments(1))).expect(0);
    let mut collecting = start(bench.opcollect(&arguments(4)));
    let mut peak_bytes = 0;
    collecting.until(|pid| {
        // Without file pages, which the system loads and drops as it likes.
        peak_bytes = processes::status_bytes(pid, "RssAnon").unwrap_or(0).max(peak_bytes);
        None::<()>
    });
    collecting.finish().expect(0);
    assert!(peak_bytes > 1 << 20, "procfs tells the memory");
    assert!(peak_bytes < MOST_BYTES, "{peak_bytes} bytes");
}
