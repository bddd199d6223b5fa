//! Build script: records the folder of the wheel's XGBoost library, which is opened at run time and not linked.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=XGBOOST_LIB_DIR");
    // At run time: several checkouts may share a target folder and with it this program.
    let folder = std::env::var_os("CARGO_MANIFEST_DIR").expect("Cargo sets it");
    let root = Path::new(&folder).join("../..");
    // `scripts/setup` writes this stamp last, so a new setup reruns this script.
    println!("cargo:rerun-if-changed={}", root.join(".venv/stamp-run").display());
    let given = std::env::var_os("XGBOOST_LIB_DIR").map(PathBuf::from);
    if let Some(folder) = given.or_else(|| folder_of_wheel(&root.join(".venv/lib"))) {
        println!("cargo:rustc-env=OPPREDICT_XGBOOST_LIB={}", folder.display());
    }
}

fn folder_of_wheel(libraries: &Path) -> Option<PathBuf> {
    let pythons = std::fs::read_dir(libraries).ok()?;
    let folders = pythons.flatten().map(|python| python.path().join("site-packages/xgboost/lib"));
    folders.filter_map(|folder| folder.canonicalize().ok()).find(|folder| folder.join("libxgboost.so").exists())
}
