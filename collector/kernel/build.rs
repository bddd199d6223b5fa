//! Writes into the programs where TVM's libraries are: the folder of the pinned wheel, then `../lib` next to the
//! program, for installations that bring the libraries along.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The same tool, found the same way, as in the build script of the binding.
    println!("cargo:rerun-if-env-changed=PATH");
    let folder = library_folder().unwrap_or_else(|reason| {
        panic!(
            "{reason}; the folder of TVM's library is needed for linking: run `scripts/setup`, then `. scripts/env`, \
             and try again"
        )
    });
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    println!("cargo:rustc-link-arg=-Wl,-rpath,$ORIGIN/../lib");
}

fn library_folder() -> Result<String, String> {
    let output = Command::new("tvm-ffi-config")
        .arg("--libdir")
        .output()
        .map_err(|error| format!("cannot run `tvm-ffi-config`: {error}"))?;
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() || folder.is_empty() {
        return Err(format!("`tvm-ffi-config --libdir` ended with {} and named no folder", output.status));
    }
    Ok(folder)
}
