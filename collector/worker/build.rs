//! Writes into the programs where the wheel of TVM's libraries was when they were built, if there was one: without it
//! everything here builds, and they are found by other ways.

mod tvm_ffi_config;

fn main() {
    let Ok(interface) = tvm_ffi_config::library_folder() else { return };
    // The interface's wheel lies beside that of the libraries.
    let packages = std::path::Path::new(&interface).parent().and_then(|package| package.parent());
    if let Some(packages) = packages {
        println!("cargo:rustc-env=OPCOLLECT_TVM_LIB={}", packages.join("tvm/lib").display());
    }
}
