//! `opcollect-board`: measures kernels for remote clients, on a board without TVM and Python.

use agent::fabric;
use agent::front::{self, Options};
use agent::session::{self, End, FabricSession};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

const HELP: &str = "\
Serve TVM RPC sessions that upload, run and time kernels on this machine.

Sessions can run any code. The agent therefore listens on 127.0.0.1 by default and requires a secret on other addresses. It
serves one client at a time and reports to others that it is busy. It runs kernel libraries on the CPU, but no whole models in
TVM's own form. Clients of TVM pass `KEY#SECRET` as the key.

Usage: opcollect-board serve [OPTIONS]

Options:
      --bind ADDRESS          Address to listen on [default: 127.0.0.1]
      --port N                Port to listen on; 0 selects a free one [default: 9090]
      --key KEY               Key that clients must send, and name of the device at a tracker [default: any]
      --secret-file FILE      File with the secret that clients must send, one line; required beyond 127.0.0.1
      --tracker HOST:PORT     Register with this tracker
      --session-seconds N     Time limit of a session [default: 3600]
      --memory-mib N          Memory for the tensors of a session [default: half of the free memory]
      --fpga KIND             Also serve an accelerator core: `none`, `devmem` (in the FPGA, by /dev/mem and u-dma-buf; not run
                              on hardware), or `simulated` (computes results but has no times) [default: none]
      --emulated              Mark times as emulated; known emulators are detected without this flag
      --through COMMAND       Start sessions through this command, for example an emulator
      --help, --version

Example: opcollect-board serve --key pynq-z2 --tracker 192.168.2.1:9190 --bind 192.168.2.99 --secret-file secret";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let texts: Vec<&str> = arguments.iter().map(|word| word.to_str().unwrap_or("?")).collect();
    let done = match texts.as_slice() {
        ["session", folder, memory, fpga, agent] => match serve_session(Path::new(folder), memory, fpga, agent) {
            Ok(End::AgentToo) => return ExitCode::from(front::LEAVING),
            Ok(End::Session) => Ok(()),
            Err(why) => Err(why),
        },
        ["--version"] => {
            print_line(concat!("opcollect-board ", env!("CARGO_PKG_VERSION")));
            Ok(())
        }
        words if words.contains(&"--help") || words.is_empty() => {
            print_line(HELP);
            Ok(())
        }
        ["serve", rest @ ..] => match parse_options(rest) {
            Ok(options) => serve_board(&options),
            Err(why) => {
                print_warning(&format!("error: {why}\nhint: `opcollect-board --help` lists the options"));
                return ExitCode::from(2);
            }
        },
        [other, ..] => {
            print_warning(&format!(
                "error: unknown command `{other}`\nhint: `opcollect-board --help` lists the commands"
            ));
            return ExitCode::from(2);
        }
        [] => Ok(()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            print_warning(&format!("error: {why}"));
            ExitCode::from(3)
        }
    }
}

/// Prints to standard output; a closed pipe is no error.
fn print_line(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Prints to standard error; a closed pipe is no error.
fn print_warning(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn serve_board(options: &Options) -> Result<(), String> {
    if let Some(kind) = options.fabric {
        // Each session opens its own fabric. Opening one here reports missing parts before the first session.
        fabric::open_fabric(kind, options.memory_bytes).map(drop)?;
    }
    let listener = front::bind_listener(options).map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    print_line(&format!("listening on {address}"));
    if !options.bind.is_loopback() {
        print_warning(&format!(
            "note: {address} is open to the network: the secret is sent unencrypted, and any client that knows it can run code here; use a tunnel in untrusted networks"
        ));
    }
    front::serve_clients(listener, options, |news| print_warning(&news)).map_err(|error| error.to_string())
}

/// Runs the session process, whose standard input is the client's connection.
fn serve_session(folder: &Path, memory: &str, fpga: &str, agent: &str) -> Result<End, String> {
    let internal = "`session` is an internal command, started by `opcollect-board serve`";
    let memory = memory.parse().map_err(|_| internal.to_owned())?;
    let agent = Pid::from_raw(agent.parse().map_err(|_| internal.to_owned())?);
    // Ends the session if its supervising process dies.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    // No signal comes if the supervising process died before.
    if kill(agent, None) == Err(Errno::ESRCH) {
        return Err("the agent of this session has ended".to_owned());
    }
    let open = |kind| fabric::open_fabric(kind, memory).map(|bus| FabricSession::new(kind, bus));
    let fabric = fabric::kind_of(fpga)?.map(open).transpose()?;
    let connection = std::io::stdin().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
    session::serve_session(TcpStream::from(connection), folder, memory, fabric).map_err(|error| error.to_string())
}

fn parse_options(words: &[&str]) -> Result<Options, String> {
    let mut options = Options {
        bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: 9090,
        key: String::new(),
        secret: None,
        tracker: None,
        session: Duration::from_secs(3600),
        memory_bytes: half_of_free(),
        fabric: None,
        is_emulated: false,
        through: Vec::new(),
    };
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        if word == "--emulated" {
            options.is_emulated = true;
            continue;
        }
        let mut value = || words.next().copied().ok_or_else(|| format!("option `{word}` needs a value"));
        let wrong = |found: &str| format!("`{word}` is `{found}`");
        match word {
            "--bind" => {
                let found = value()?;
                options.bind = found.parse().map_err(|_| format!("{}, which is not an IP address", wrong(found)))?;
            }
            "--port" => {
                let found = value()?;
                options.port = found.parse().map_err(|_| format!("{}, but a port is 0 to 65535", wrong(found)))?;
            }
            "--key" => {
                let found = value()?;
                if found.contains(['#', ' ']) || found.is_empty() {
                    return Err(format!(
                        "{}, but a key must be non-empty and contain neither blanks nor `#`",
                        wrong(found)
                    ));
                }
                found.clone_into(&mut options.key);
            }
            "--secret-file" => options.secret = Some(remote::handshake::read_secret(Path::new(value()?))?),
            "--tracker" => options.tracker = Some(value()?.parse()?),
            "--session-seconds" => {
                let found = value()?;
                let seconds = found.parse().ok().filter(|seconds| (1..=86_400).contains(seconds));
                let seconds = seconds.ok_or_else(|| format!("{}, but the value must be 1 to 86400", wrong(found)))?;
                options.session = Duration::from_secs(seconds);
            }
            "--memory-mib" => {
                let found = value()?;
                let mib = found.parse::<usize>().ok().and_then(|mib| mib.checked_mul(1 << 20)).filter(|mib| *mib > 0);
                options.memory_bytes =
                    mib.ok_or_else(|| format!("{}, which is not a positive whole number of MiB", wrong(found)))?;
            }
            "--fpga" => options.fabric = fabric::kind_of(value()?)?,
            "--through" => options.through = value()?.split_whitespace().map(OsString::from).collect(),
            other => return Err(format!("unknown option `{other}`")),
        }
    }
    if options.tracker.is_some() && options.key.is_empty() {
        return Err("`--tracker` needs `--key KEY`: trackers identify devices by their keys".to_owned());
    }
    front::check_access(&options).map_err(|error| error.to_string())?;
    Ok(options)
}

/// Returns half of the available memory in bytes, with a lower limit.
fn half_of_free() -> usize {
    const LEAST: usize = 64 << 20;
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?.parse::<usize>().ok());
    kib.map_or(LEAST, |kib| (kib.saturating_mul(1 << 10) / 2).max(LEAST))
}
