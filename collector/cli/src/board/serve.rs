//! `board serve`: serve this machine as a board for remote clients.

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

#[derive(Clone, Debug, Args)]
pub struct BoardServe {
    /// Address to listen on
    ///
    /// Any address but the default needs `--secret-file`, because a session can run any code.
    #[arg(long, visible_alias = "address", value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub bind: String,
    /// Port to listen on; 0 chooses a free port
    #[arg(long, value_name = "N", default_value_t = 9090)]
    pub port: u16,
    /// Key of this board for clients and trackers [default: any]
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// File with the shared secret of all clients, one line
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// Register with this tracker
    #[arg(long, value_name = "HOST:PORT", requires = "key")]
    pub tracker: Option<String>,
    /// Maximum duration of a session in seconds
    #[arg(long, value_name = "N", default_value_t = 3600)]
    pub session_seconds: u64,
    /// Memory for the tensors of a session, in MiB [default: half of the free memory]
    #[arg(long, value_name = "N")]
    pub memory_mib: Option<u64>,
    /// FPGA accelerator to serve
    ///
    /// `devmem` uses the core's registers and was not run on hardware. `simulated` computes outputs without times.
    #[arg(long, value_name = "KIND", value_parser = ["none", "devmem", "simulated"], default_value = "none")]
    pub fpga: String,
    /// Declare that this machine is an emulator
    ///
    /// An emulator may serve as a board of another architecture; records then contain `emulated`.
    #[arg(long)]
    pub emulated: bool,
}

pub fn run(arguments: &BoardServe) -> Result<u8> {
    let BoardServe { bind, port, key, secret_file, tracker, session_seconds, memory_mib, fpga, emulated } = arguments;
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
        .with_hint("in a checkout run `scripts/build`; otherwise reinstall the wheel, which contains it"))
}
