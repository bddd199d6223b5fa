//! An emulated GPU on the CPU, for programs that load its driver, NVML and compiler from a folder.

use cuda::nvrtc::{FILE_VARIABLE, Nvrtc};
use std::fs;
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
        compile_header(folder.path());
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
        crate::write_program(&script, &text);
        script
    }
}

const COMPILER: &str = "libnvrtc.so";

pub fn include() -> Option<PathBuf> {
    let compiler = Command::new("g++").arg("-v").output();
    Nvrtc::open().ok()?.include_folder().filter(|_| compiler.is_ok()).map(Path::to_owned)
}

const FLAGS: [&str; 4] = ["-shared", "-fPIC", "-w", "-fno-strict-aliasing"];
/// Further flags for C++. A GPU faults on vector accesses that are not aligned to their size.
const CPP_FLAGS: [&str; 4] =
    ["-std=c++20", "-fpermissive", "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"];

pub fn compile(source: &Path, out: &Path, include: &[&Path]) {
    let is_c = source.extension().is_some_and(|suffix| suffix == "c");
    let mut compiler = Command::new(if is_c { "gcc" } else { "g++" });
    compiler.arg("-O0").args(FLAGS).args(if is_c { &[][..] } else { &CPP_FLAGS });
    for folder in include {
        compiler.arg("-I").arg(folder);
    }
    run_compiler(compiler.arg(source).arg("-ldl"), out);
}

/// Compiles the header of all kernels, which takes longer than most kernels. The kernels are compiled with these flags.
fn compile_header(folder: &Path) {
    let (header, flags) = (folder.join("device.h"), ["-O1"].iter().chain(&FLAGS).chain(&CPP_FLAGS));
    fs::copy(Path::new(SOURCES).join("device.h"), &header).expect("a file can be copied");
    let flags: Vec<&str> = flags.copied().collect();
    fs::write(folder.join("flags"), flags.join(" ")).expect("a file can be written");
    let mut compiler = Command::new("g++");
    run_compiler(compiler.args(flags).args(["-x", "c++-header"]).arg(&header), &folder.join("device.h.gch"));
}

fn run_compiler(compiler: &mut Command, out: &Path) {
    let done = compiler.arg("-o").arg(out).output().expect("there is a C++ compiler");
    assert!(done.status.success(), "{}: {}", out.display(), String::from_utf8_lossy(&done.stderr));
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
