//! Tests of measurements whose program fails: the error is one line, and no process remains.

use predictor::probe::measure_operator;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Serialises the tests: a process that another test starts while a script is written would inherit the open script,
/// and a file that is open for writing cannot be executed.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn program(folder: &tempfile::TempDir, script: &str) -> PathBuf {
    let path = folder.path().join("opcollect");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a temporary folder takes files");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a script can be made a program");
    path
}

fn problem(script: &str, deadline: Duration) -> String {
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = program(&folder, script);
    let error = measure_operator(&program, "matmul:m=8,n=8,k=8", 2, deadline).expect_err("it does not measure");
    assert!(error.is_of_environment(), "{error}");
    error.to_string()
}

#[test]
fn a_program_that_fails_is_quoted() {
    let said = problem("echo 'note: a b' >&2; echo 'error: no such thing' >&2; exit 3", Duration::from_secs(60));
    assert!(
        said.ends_with(
            "could not measure `matmul:m=8,n=8,k=8` on 2 threads: the process ended with exit status: 3: error: no such thing"
        ),
        "{said}"
    );
}

#[test]
fn a_program_that_hangs_is_ended() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mark = folder.path().join("pid");
    let said = problem(&format!("echo $$ > {}; exec sleep 600", mark.display()), Duration::from_millis(200));
    assert!(said.ends_with("the process exceeded the limit of 0.2 s"), "{said}");
    // It may have been ended before it could say who it was.
    if let Some(pid) = std::fs::read_to_string(mark).ok().filter(|pid| !pid.is_empty()) {
        assert!(!std::path::Path::new("/proc").join(pid.trim()).exists(), "process {pid} is still there");
    }
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let _turn = alone();
    let error = measure_operator(&PathBuf::from("/nowhere/opcollect"), "x", 1, Duration::from_secs(1))
        .expect_err("it is not there");
    assert!(error.to_string().starts_with("cannot start `/nowhere/opcollect`: "), "{error}");
}
