//! The peak memory of a process, for tests of readers that must not take more than a multiple of what they read.

use std::process::Command;

/// Runs the body of the calling test in a process of its own, because tests beside it allocate, too.
pub fn alone(body: impl FnOnce()) {
    let is_alone = std::env::args().any(|argument| argument == "--exact");
    // Without threads for tests nothing runs beside this one.
    let thread = std::thread::current();
    let Some(test) = thread.name().filter(|name| !is_alone && *name != "main") else { return body() };
    let program = std::env::current_exe().expect("the path of this program");
    let ran = Command::new(program).args([test, "--exact", "--nocapture"]).output().expect("this program starts");
    assert!(ran.status.success(), "{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
}

/// Returns the peak memory of this process in bytes.
pub fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status of this process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the kernel counts memory");
    line.trim().strip_suffix(" kB").and_then(|number| number.parse::<usize>().ok()).expect("a number of kB") << 10
}
