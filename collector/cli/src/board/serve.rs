//! Serving this machine as a board.

use crate::Result;
use crate::arguments::BoardServe;
use engine::failure::Failure;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Becomes the agent's program.
pub fn run(asked: &BoardServe) -> Result<u8> {
    let BoardServe { bind, port, key, secret_file, tracker, session_seconds, memory_mib, fpga, emulated } = asked;
    let program = std::env::current_exe().map_err(Failure::environment)?.with_file_name("opcollect-board");
    let mut command = Command::new(&program);
    command.args(["serve", "--bind", bind, "--port", &port.to_string()]);
    command.args(["--session-seconds", &session_seconds.to_string()]);
    if let Some(key) = key {
        command.args(["--key", key]);
    }
    if let Some(file) = secret_file {
        command.arg("--secret-file").arg(file);
    }
    if let Some(tracker) = tracker {
        command.args(["--tracker", tracker]);
    }
    if let Some(mib) = memory_mib {
        command.args(["--memory-mib", &mib.to_string()]);
    }
    command.args(["--fpga", fpga]);
    if *emulated {
        command.arg("--emulated");
    }
    let error = command.exec();
    Err(Failure::environment(format!("cannot start `{}`: {error}", program.display()))
        .with_hint("build it with `cargo build -p agent`"))
}
