//! An emulated GPU on the CPU, for programs that load its driver, NVML and compiler from a folder.

use cuda::nvrtc::{FILE_VARIABLE, Nvrtc};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

pub const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/emulator");

/// Environment variable with the folder of the driver, which must be in the loader's path.
pub const FOLDER_VARIABLE: &str = "OPCOLLECT_TEST_EMULATOR";

pub struct Emulator {
    folder: TempDir,
}

impl Emulator {
    /// Compiles the libraries, if CUDA headers and a C++ compiler exist.
    pub fn new() -> Option<Emulator> {
        let include = include()?;
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let sources = Path::new(SOURCES);
        compile(&sources.join("driver.cpp"), &folder.path().join("libcuda.so.1"), &[&include]);
        compile(&sources.join("state.c"), &folder.path().join("libnvidia-ml.so.1"), &[]);
        compile(&sources.join("nvrtc.cpp"), &folder.path().join(COMPILER), &[&include]);
        fs::copy(sources.join("device.h"), folder.path().join("device.h")).expect("a file can be copied");
        Some(Emulator { folder })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn lend<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("LD_LIBRARY_PATH", self.path()).env(FOLDER_VARIABLE, self.path());
        command.env(FILE_VARIABLE, self.path().join(COMPILER))
    }

    pub fn worker(&self, worker: &Path) -> PathBuf {
        let script = self.path().join("worker");
        let folder = self.path().display();
        let text = format!(
            "#!/bin/sh\nexport LD_LIBRARY_PATH='{folder}' {FOLDER_VARIABLE}='{folder}' \
             {FILE_VARIABLE}='{folder}/{COMPILER}'\nexec '{}' \"$@\"\n",
            worker.display()
        );
        fs::write(&script, text).expect("a script can be written");
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it may be run");
        script
    }
}

const COMPILER: &str = "libnvrtc.so";

pub fn include() -> Option<PathBuf> {
    let compiler = Command::new("g++").arg("-v").output();
    Nvrtc::open().ok()?.include_folder().filter(|_| compiler.is_ok()).map(Path::to_owned)
}

pub fn compile(source: &Path, out: &Path, include: &[&Path]) {
    let mut compiler = Command::new(if source.extension().is_some_and(|suffix| suffix == "c") { "gcc" } else { "g++" });
    compiler.args(["-O0", "-shared", "-fPIC", "-w", "-fno-strict-aliasing"]);
    if source.extension().is_some_and(|suffix| suffix == "cpp") {
        compiler.args(["-std=c++20", "-fpermissive"]);
        // A GPU faults on vector accesses that are not aligned to their size.
        compiler.args(["-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"]);
    }
    for folder in include {
        compiler.arg("-I").arg(folder);
    }
    let done = compiler.arg(source).arg("-o").arg(out).arg("-ldl").output().expect("there is a C++ compiler");
    assert!(done.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&done.stderr));
}

/// A file whose presence changes the behaviour of the emulated libraries; removed on drop.
pub struct Behaviour(PathBuf);

impl Behaviour {
    pub fn new(folder: &Path, word: &str) -> Behaviour {
        let path = folder.join(word);
        fs::write(&path, "").expect("the file can be written");
        Behaviour(path)
    }
}

impl Drop for Behaviour {
    fn drop(&mut self) {
        fs::remove_file(&self.0).expect("the file was written");
    }
}
