//! Embeds the location of TVM's wheel, if one is installed at build time, into the programs.

mod tvm_ffi_config;

fn main() {
    let Ok(interface) = tvm_ffi_config::library_folder() else { return };
    // The wheels of the interface and of the libraries share a folder of packages.
    let packages = std::path::Path::new(&interface).parent().and_then(|package| package.parent());
    if let Some(packages) = packages {
        println!("cargo:rustc-env=OPCOLLECT_TVM_LIB={}", packages.join("tvm/lib").display());
    }
}
