//! Tells the programs where TVM's libraries lie: a loader path for the one they link, a folder for those they open.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=PATH");
    let answer = Command::new("tvm-ffi-config").arg("--libdir").output();
    let Some(folder) = answer.ok().and_then(|output| String::from_utf8(output.stdout).ok()) else { return };
    let folder = std::path::PathBuf::from(folder.trim());
    println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display());
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../lib");
    if let Some(packages) = folder.parent().and_then(|package| package.parent()) {
        println!("cargo:rustc-env=OPCOLLECT_TVM_LIB={}", packages.join("tvm/lib").display());
    }
}
