//! Returns, for build scripts, the location of TVM's interface library, from the tool that the binding's build uses.

use std::process::Command;

pub fn library_folder() -> Result<String, String> {
    println!("cargo:rerun-if-env-changed=PATH");
    let output = Command::new("tvm-ffi-config")
        .arg("--libdir")
        .output()
        .map_err(|error| format!("cannot run `tvm-ffi-config`: {error}"))?;
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() || folder.is_empty() {
        return Err(format!("`tvm-ffi-config --libdir` exited with {} and printed no folder", output.status));
    }
    Ok(folder)
}
