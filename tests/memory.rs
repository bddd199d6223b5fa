//! The peak memory of a process, for tests of readers. Unit tests of other crates include this file, because the crate
//! `tests` depends on these crates.

use std::process::Command;

/// Runs the body of the calling test in a separate process, because concurrent tests also allocate memory.
pub fn alone(body: impl FnOnce()) {
    let is_alone = std::env::args().any(|argument| argument == "--exact");
    let thread = std::thread::current();
    let Some(test) = thread.name().filter(|name| !is_alone && *name != "main") else {
        // Earlier tests of this process may have had a higher peak; writing 5 resets it.
        std::fs::write("/proc/self/clear_refs", "5").expect("the kernel resets the peak");
        return body();
    };
    let program = std::env::current_exe().expect("the path of this program");
    let ran = Command::new(program).args([test, "--exact", "--nocapture"]).output().expect("this program starts");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    assert!(said.contains("1 passed"), "no test is called `{test}`");
}

pub fn peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status of this process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the kernel counts memory");
    line.trim().strip_suffix(" kB").and_then(|number| number.parse::<usize>().ok()).expect("a number of kB") << 10
}
