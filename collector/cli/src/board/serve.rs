//! Serving this machine as a board.

use crate::Result;
use clap::Args;
use engine::failure::Failure;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

pub const BOARD_SERVE_EXAMPLES: &str = "\
Examples, the second in another shell:
  opcollect board serve --port 9099 --emulated
  opcollect --modelsource local --modelname mlp --target pynq --host 127.0.0.1 --port 9099";

/// How a board is served.
#[derive(Clone, Debug, Args)]
pub struct BoardServe {
    /// Address to listen on; another than the default needs `--secret-file`, since a session can run any code
    #[arg(long, visible_alias = "address", value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub bind: String,
    /// Port to listen on; 0 takes any
    #[arg(long, value_name = "N", default_value_t = 9090)]
    pub port: u16,
    /// What clients must call this board, and what a tracker knows it by [default: any]
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// A file with what every client must know, one line
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// Register with this tracker
    #[arg(long, value_name = "HOST:PORT", requires = "key")]
    pub tracker: Option<String>,
    /// End a session after so long
    #[arg(long, value_name = "N", default_value_t = 3600)]
    pub session_seconds: u64,
    /// Memory for the tensors of a session [default: half of what is free]
    #[arg(long, value_name = "N")]
    pub memory_mib: Option<u64>,
    /// Serve a core on the fabric, too: `devmem` by its registers (not run on hardware), `simulated` computes and times nothing
    #[arg(long, value_name = "KIND", value_parser = ["none", "devmem", "simulated"], default_value = "none")]
    pub fpga: String,
    /// Say that this machine is an emulator: it may then stand in for a board of another architecture, and records say `emulated`
    #[arg(long)]
    pub emulated: bool,
}

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
        .with_hint("in a checkout `scripts/build` builds it; the wheel brings it, so install that anew"))
}
