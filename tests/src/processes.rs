//! Reads other processes from procfs, and sends signals.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

/// Sends a signal; ignores a process that has ended.
pub fn send(pid: i32, signal: Signal) {
    match kill(Pid::from_raw(pid), signal) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => {}
        Err(errno) => panic!("cannot send {signal} to {pid}: {errno}"),
    }
}

pub fn children(parent: i32) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").expect("procfs is there");
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|&pid| status(pid).is_some_and(|(_, of)| of == parent)).collect()
}

/// Returns whether a process runs; a zombie does not.
pub fn is_alive(pid: i32) -> bool {
    status(pid).is_some_and(|(state, _)| state != 'Z' && state != 'X')
}

/// Waits until processes have ended; returns false on a timeout.
pub fn have_ended(pids: &[i32]) -> bool {
    const PATIENCE: Duration = Duration::from_secs(30);
    let end = Instant::now() + PATIENCE;
    while pids.iter().any(|&pid| is_alive(pid)) {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Returns a memory size of a process, such as `VmHWM`, from procfs, or None if the process has ended.
pub fn status_bytes(pid: i32, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

fn status(pid: i32) -> Option<(char, i32)> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything.
    let mut fields = line.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}
