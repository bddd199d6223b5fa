//! Embeds the location and version of PyTorch's library in its worker.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_TORCH").is_some() {
        link_torch();
    }
}

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
