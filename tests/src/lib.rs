//! Shared parts of the end-to-end tests: the real programs, a folder per test, and details of failed runs.
//!
//! The tests run the programs next to the test programs. Cargo does not build them with the tests of this package
//! alone, so a missing or outdated program is an error.

pub mod agents;
pub mod browser;
pub mod campaigns;
pub mod conformance;
pub mod emulator;
pub mod golden;
pub mod onnx;
pub mod processes;
pub mod stores;
pub mod through_tvm;
pub mod workspace;

use serde_json::Value;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(300);

/// Timeout of a command with hostile input; reading such input is fast even on a busy machine.
const MAX_HOSTILE_TIME: Duration = Duration::from_secs(60);

const MAX_HOSTILE_STDERR_BYTES: usize = 64 << 10;

/// Configuration with minimal measurements, for tests that ignore the times.
pub const QUICK: &str = "\
threads = [1]
[measure]
visits = 1
warm_up_time_ns = 0
samples_min = 1
samples_max = 2
sampling_time_min_ns = 0
time_budget_ns = 0
[counters]
backend = 'none'
[limits]
build_batch = 4
measure_peaks = false
";

/// Environment variables that are removed before a program starts, because they change its defaults.
const VARIABLES: &[&str] = &[
    "LD_LIBRARY_PATH",
    "COLUMNS",
    "OPCOLLECT_TVM",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_ARRAY_TASK_COUNT",
    "SLURM_ARRAY_TASK_MIN",
    "JOB_COMPLETION_INDEX",
    "JOB_COMPLETIONS",
];

pub fn program(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("the test program has a path");
    let folder = this.parent().and_then(Path::parent).expect("test programs lie in `deps`");
    let program = folder.join(name);
    let advice = "build it with `cargo build --workspace`, or run `scripts/test`";
    let built = modified(&program).unwrap_or_else(|| panic!("`{}` is missing; {advice}", program.display()));
    let sources = std::fs::read_to_string(program.with_extension("d")).unwrap_or_default();
    let newer = sources.split_whitespace().skip(1).find(|source| modified(Path::new(source)) > Some(built));
    assert_eq!(newer, None, "`{}` is older than one of its sources; {advice}", program.display());
    program
}

fn modified(path: &Path) -> Option<std::time::SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
}

pub struct Bench {
    folder: tempfile::TempDir,
    /// Own CPU locks, so that concurrent tests do not wait for each other.
    locks: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Bench {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let locks = tempfile::tempdir().expect("a temporary folder can be made");
        let bench = Bench { folder, locks };
        bench.write("quick.toml", QUICK);
        bench
    }

    /// Lets campaigns with `quick.toml` measure the peak rates of this host.
    pub fn measure_peaks(&self) {
        self.write("quick.toml", &QUICK.replace("measure_peaks = false\n", ""));
    }

    /// Returns the command that profiles without the peak rates of this host, which take seconds to measure.
    pub fn profile(&self, arguments: &str) -> Command {
        self.write("without-peaks.toml", "[limits]\nmeasure_peaks = false\n");
        self.opcollect(&format!("profile --config without-peaks.toml {arguments}"))
    }

    pub fn locks(&self) -> &Path {
        self.locks.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("cannot write `{}`: {error}", path.display()));
        path
    }

    pub fn entries(&self) -> Vec<String> {
        let entries = self.folder.path().read_dir().expect("the folder is readable");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Returns a command for `opcollect` in this folder, with arguments separated by spaces.
    pub fn opcollect(&self, arguments: &str) -> Command {
        self.command(&program("opcollect"), arguments)
    }

    pub fn command(&self, program: &Path, arguments: &str) -> Command {
        let mut command = Command::new(program);
        command.args(arguments.split_whitespace()).current_dir(self.folder.path()).stdin(Stdio::null());
        VARIABLES.iter().for_each(|name| {
            command.env_remove(name);
        });
        command.env("OPCOLLECT_LOCKS", self.locks.path());
        command.env("OPCOLLECT_STATE", self.locks.path().join("state"));
        command
    }
}

impl Default for Bench {
    fn default() -> Bench {
        Bench::new()
    }
}

pub struct Running {
    pub child: Child,
    what: String,
    began: Instant,
    peak_bytes: u64,
    stdout: JoinHandle<String>,
    stderr: JoinHandle<String>,
}

#[derive(Debug)]
pub struct Ran {
    pub what: String,
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    pub time: Duration,
    /// Peak resident memory of the process without its workers, sampled.
    pub peak_bytes: u64,
}

pub fn start(mut command: Command) -> Running {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let (what, began) = (format!("{command:?}"), Instant::now());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {what}: {error}"));
    let stdout = follow(child.stdout.take().expect("standard output is piped"));
    let stderr = follow(child.stderr.take().expect("standard error is piped"));
    Running { child, what, began, peak_bytes: 0, stdout, stderr }
}

pub fn run(command: Command) -> Ran {
    start(command).finish()
}

fn without_progress(stderr: &str) -> String {
    let is_progress = |line: &&str| line.starts_with("note: ") && line.ends_with(" s so far\n");
    stderr.split_inclusive('\n').filter(|line| !is_progress(line)).collect()
}

fn follow(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("a pipe can be read");
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Running {
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("process numbers of Linux fit into 31 bits")
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_none()
    }

    /// Calls `look` with the process ID until it returns a result; None if the process ends before.
    pub fn until<T>(&mut self, mut look: impl FnMut(i32) -> Option<T>) -> Option<T> {
        let end = Instant::now() + PATIENCE;
        while self.is_alive() {
            // Reads the high-water mark, which includes peaks between two samples.
            self.peak_bytes = processes::status_bytes(self.pid(), "VmHWM").unwrap_or(0).max(self.peak_bytes);
            let began = Instant::now();
            if let Some(found) = look(self.pid()) {
                return Some(found);
            }
            if Instant::now() > end {
                let _ = self.child.kill();
                panic!("{} hangs", self.what);
            }
            // A look that reads a store takes long; the process should have most of the processor.
            std::thread::sleep((2 * began.elapsed()).max(Duration::from_millis(1)));
        }
        None
    }

    pub fn finish(mut self) -> Ran {
        self.until(|_| None::<()>);
        let status = self.child.wait().expect("a child can be waited for");
        let text = |thread: JoinHandle<String>| thread.join().expect("a reader does not panic");
        let (stdout, stderr) = (text(self.stdout), without_progress(&text(self.stderr)));
        Ran { what: self.what, status, stdout, stderr, time: self.began.elapsed(), peak_bytes: self.peak_bytes }
    }
}

impl Ran {
    /// Returns the exit code; panics after a signal.
    #[track_caller]
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("ended by a signal\n{self}"))
    }

    #[track_caller]
    pub fn expect(self, code: i32) -> Ran {
        assert_eq!(self.status.code(), Some(code), "{self}");
        self
    }

    /// Checks the reaction to hostile input: a documented exit code, bounded time, memory and errors, and no control
    /// sequence.
    pub fn check_hostile(&self, max_bytes: u64) -> Result<(), String> {
        let Ran { status, stderr, time, peak_bytes, .. } = self;
        if !status.code().is_some_and(|code| (0..=4).contains(&code)) || stderr.contains("panicked") {
            return Err(format!("crashed\n{self}"));
        }
        if *time >= MAX_HOSTILE_TIME || *peak_bytes > max_bytes {
            return Err(format!("took {time:?}, {peak_bytes} bytes of {max_bytes}\n{self}"));
        }
        if stderr.len() >= MAX_HOSTILE_STDERR_BYTES {
            return Err(format!("prints {} bytes of errors\n{}", stderr.len(), self.what));
        }
        if stderr.contains(['\u{1b}', '\u{7}']) {
            return Err(format!("prints a control sequence: {stderr:?}\n{}", self.what));
        }
        Ok(())
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        let last = self.stdout.lines().last().unwrap_or_default();
        serde_json::from_str(last).unwrap_or_else(|error| panic!("the last line is no JSON: {error}\n{self}"))
    }
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Ran { what, status, stdout, stderr, .. } = self;
        write!(f, "{what}\nended with {status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }
}

pub fn skip(why: &str) {
    // Bypasses libtest, which captures the output of passing tests.
    let _ = std::io::Write::write_all(&mut std::io::stderr().lock(), format!("skipped: {why}\n").as_bytes());
}

/// Changes a document that begins with a hash of its text, and updates the hash.
pub fn change_sealed(path: &Path, change: &dyn Fn(&mut Value)) {
    let text = std::fs::read(path).expect("a document");
    let mut document: Value = serde_json::from_slice(&text).expect("the document is JSON");
    document.as_object_mut().expect("the document is an object").remove("hash").expect("the document has a hash");
    change(&mut document);
    let sealed = executor::sealed::seal_json(&document).expect("the document is an object");
    std::fs::write(path, sealed).expect("a document can be written");
}

/// Writes an executable script. A child writes it, because children of other tests could inherit the open file, and a file
/// that is open for writing cannot be executed.
pub fn write_program(path: &Path, text: &str) {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut shell = shell.spawn().expect("a shell starts");
    shell.stdin.take().expect("it is piped").write_all(text.as_bytes()).expect("the shell reads");
    assert!(shell.wait().expect("the shell ends").success(), "{} cannot be written", path.display());
}

/// Creates an installation whose worker is a shell script; `REAL` stands for the real worker.
pub fn install_with_worker(bench: &Bench, script: &str) -> PathBuf {
    let folder = bench.path("bin");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    let program_path = folder.join("opcollect");
    // A hard link is faster than a copy, if the file system allows it.
    if std::fs::hard_link(program("opcollect"), &program_path).is_err() {
        std::fs::copy(program("opcollect"), &program_path).expect("a program can be copied");
    }
    let real = program("opcollect-worker");
    let text = format!("#!/bin/sh\n{}\n", script.replace("REAL", &real.display().to_string()));
    write_program(&bench.path("bin/opcollect-worker"), &text);
    program_path
}
