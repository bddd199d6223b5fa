//! Writes into the programs where the wheel of TVM's libraries was when they were built, if there was one: without it
//! everything here builds, and they are found by other ways.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=PATH");
    let Ok(output) = Command::new("tvm-ffi-config").arg("--libdir").output() else { return };
    let interface = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    // The interface's wheel lies beside that of the libraries.
    let packages = std::path::Path::new(&interface).parent().and_then(|package| package.parent());
    if let Some(packages) = packages.filter(|_| output.status.success() && !interface.is_empty()) {
        println!("cargo:rustc-env=OPCOLLECT_TVM_LIB={}", packages.join("tvm/lib").display());
    }
}
