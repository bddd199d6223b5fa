//! Reads the workspace: folders, members, sources and documents.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn root() -> PathBuf {
    // Not `..`, because a path through this package's folder would look like a test's.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a member lies in its workspace").to_owned()
}

pub fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("`{path}`: {error}"))
}

/// Returns the sorted paths, from the root, of all files with a suffix; without build results and hidden folders.
pub fn files(end: &str) -> Vec<String> {
    let (root, mut folders, mut found) = (root(), vec![root()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().unwrap_or_else(|error| panic!("`{}`: {error}", folder.display())) {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
            let is_build = folder == root && name.starts_with("target");
            if path.is_dir() && !path.is_symlink() && !name.starts_with('.') && !is_build {
                folders.push(path);
            } else if name.ends_with(end) {
                found.push(path.strip_prefix(&root).expect("it lies in the workspace").to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    found
}

pub struct Member {
    pub name: String,
    pub folder: String,
    /// Names of the member's dependencies, including dependencies of its tests and build script.
    pub dependencies: Vec<String>,
}

pub fn members() -> Vec<Member> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--locked"]).current_dir(root());
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo answers in JSON");
    let packages = metadata["packages"].as_array().expect("a workspace has packages");
    let text = |value: &Value| value.as_str().expect("cargo gives it as text").to_owned();
    let member = |package: &Value| {
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root()).ok()).expect("a member's folder");
        let dependencies = package["dependencies"].as_array().expect("a list");
        Member {
            name: text(&package["name"]),
            folder: folder.to_string_lossy().into_owned(),
            dependencies: dependencies.iter().map(|dependency| text(&dependency["name"])).collect(),
        }
    };
    packages.iter().map(member).collect()
}

pub fn product_code(source: &str) -> &str {
    source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default()
}
