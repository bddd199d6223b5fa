//! Compiles the search path of TVM's libraries into the programs: the package folder next to the installed program,
//! the folder of the pinned wheel, then `../lib` relative to the program.

#[path = "../worker/tvm_ffi_config.rs"]
mod tvm_ffi_config;

fn main() {
    let folder = tvm_ffi_config::library_folder().unwrap_or_else(|reason| {
        panic!(
            "{reason}; the folder of TVM's library is needed for linking: run `scripts/setup`, then `. scripts/env`, \
             and try again"
        )
    });
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../../tvm_ffi/lib");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../lib");
}
