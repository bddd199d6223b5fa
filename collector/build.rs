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
    if std::env::var_os("CARGO_FEATURE_TORCH").is_some() {
        link_torch();
    }
    // The libraries that are opened at run time lie in the package beside.
    if let Some(packages) = std::path::Path::new(&folder).parent().and_then(|package| package.parent()) {
        println!("cargo:rustc-env=OPCOLLECT_TVM_LIB={}", packages.join("tvm/lib").display());
    }
}

/// Writes into the worker of PyTorch's library where that lies, and which version it is.
fn link_torch() {
    println!("cargo:rerun-if-env-changed=LIBTORCH");
    let Ok(folder) = std::env::var("LIBTORCH") else {
        panic!(
            "the feature `torch` needs the folder of PyTorch's library in LIBTORCH: run `scripts/setup --torch`, then \
             `. scripts/env`, and try again"
        );
    };
    println!("cargo:rustc-link-arg-bin=opcollect-torch=-Wl,-rpath,{folder}/lib");
    let version = std::fs::read_to_string(format!("{folder}/build-version")).unwrap_or_default();
    println!("cargo:rustc-env=OPCOLLECT_TORCH_VERSION={}", version.trim());
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
