//! Where the library of TVM's interface lies: build scripts that must know it ask the same tool, found the same way, as
//! that of the binding does.

use std::process::Command;

/// The folder of the library, or why it is not known.
pub fn library_folder() -> Result<String, String> {
    println!("cargo:rerun-if-env-changed=PATH");
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
