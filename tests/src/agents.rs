//! Servers of boards for tests: our agent, native or emulated, and the programs of TVM's Python package.

use crate::{program, skip, workspace};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process group that is killed on drop.
pub struct Server {
    child: Child,
    pub port: u16,
}

impl Server {
    pub fn signal(&self, signal: Signal) -> nix::Result<()> {
        killpg(Pid::from_raw(self.child.id() as i32), signal)
    }

    /// Returns whether the process ends within a time limit. It is not reaped, so its ID stays reserved until drop.
    pub fn ends(&self, within: Duration) -> bool {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let process = Pid::from_raw(self.child.id() as i32);
        let until = Instant::now() + within;
        while Instant::now() < until {
            if waitid(Id::Pid(process), flags).is_ok_and(|status| status != WaitStatus::StillAlive) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.signal(Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// Starts an agent that reports its port; `before` may contain an emulator's command line, which then runs the agent.
pub fn agent(path: &Path, before: &[&str], options: &str) -> Server {
    let mut words = before.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    words.push(path.display().to_string());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).args(["serve", "--memory-mib", "256"]).args(options.split_whitespace());
    if !options.contains("--port") {
        command.args(["--port", "0"]);
    }
    if !before.is_empty() {
        command.arg("--through").arg(before.join(" "));
    }
    listening(command.stdout(Stdio::piped()))
}

/// Starts a server and waits until it prints its port.
pub fn listening(command: &mut Command) -> Server {
    let mut child = command.process_group(0).spawn().expect("the agent was built");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).expect("it says where it listens");
    let port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("`{line}`"));
    Server { child, port }
}

pub fn own_agent(options: &str) -> Server {
    agent(&program("opcollect-board"), &[], options)
}

/// Starts a program of TVM's Python package, or reports that the package is missing.
pub fn of_tvm(module: &str, options: &str) -> Option<Server> {
    let port = free_port();
    let python = workspace::root().join(".venv/bin/python");
    let has = Command::new(&python)
        .args(["-c", "import tvm.rpc, tornado, psutil, cloudpickle"])
        .stderr(Stdio::null())
        .status();
    if !has.is_ok_and(|status| status.success()) {
        skip("TVM's Python package is not installed with what its servers need; `scripts/setup --test` does that");
        return None;
    }
    let mut command = Command::new(python);
    command.args([
        "-m",
        module,
        "--host",
        "127.0.0.1",
        "--port",
        &port.to_string(),
        "--port-end",
        &(port + 1).to_string(),
    ]);
    command.args(options.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let server = Server { child: command.spawn().expect("it was just started"), port };
    let until = Instant::now() + Duration::from_secs(60);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < until, "`{module}` does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
    Some(server)
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("there are ports").port()
}

fn emulated(triple: &str, emulator: &str, processor: &str, linker: &str) -> Option<Server> {
    let target =
        program("opcollect-board").parent().and_then(Path::parent).expect("programs lie in a folder").join(triple);
    let built = ["release", "debug"].map(|profile| target.join(profile).join("opcollect-board"));
    let Some(board) = built.into_iter().find(|path| path.exists()) else {
        skip(&format!("there is no agent for {triple}; `scripts/board-image` builds it"));
        return None;
    };
    let which = |name: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file: &PathBuf| file.exists())
    };
    let Some(root) = which(linker).and(which(emulator)).map(|_| format!("/usr/{}", linker.trim_end_matches("-gcc")))
    else {
        skip(&format!("`{emulator}` and `{linker}` are not installed; an emulated {triple} is not tried"));
        return None;
    };
    Some(agent(&board, &[emulator, "-cpu", processor, "-L", &root], ""))
}

pub fn emulated_boards() -> impl Iterator<Item = (&'static str, Server)> {
    [
        ("pynq-z2", "armv7-unknown-linux-gnueabihf", "qemu-arm", "cortex-a9", "arm-linux-gnueabihf-gcc"),
        ("ultra96", "aarch64-unknown-linux-gnu", "qemu-aarch64", "cortex-a53", "aarch64-linux-gnu-gcc"),
    ]
    .into_iter()
    .filter_map(|(board, triple, emulator, processor, linker)| {
        Some((board, emulated(triple, emulator, processor, linker)?))
    })
}
