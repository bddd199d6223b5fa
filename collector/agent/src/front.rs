//! Listening process of the agent. It starts one process per session, and continues if that process crashes.

use crate::admission::{Admission, greet_all, has_hung_up};
use crate::fabric;
use crate::folder::{self, CORE_AT_WORK, MarkedFolder, SessionFolder};
use crate::native::detect_dead_peer;
use crate::registration::Registration;
use crate::session::EMULATED_VARIABLE;
use nix::sys::signal::{Signal, killpg};
use nix::sys::socket::{MsgFlags, recv};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use remote::fabric::FabricKind;
use remote::handshake::Key;
use remote::packet::Packet;
use remote::{Address, Waiting};
use std::ffi::OsString;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Time limit for sending the reason of a session's end to the client.
const FAREWELL: Duration = Duration::from_secs(5);
/// Delay before a session is killed after its client has disconnected.
const CLOSED_GRACE: Duration = Duration::from_millis(500);
/// `CLOSED_GRACE` if requests of the client are still unread.
const CLOSED_GRACE_UNREAD: Duration = Duration::from_millis(5000);
const TICK: Duration = Duration::from_secs(2);

/// Exit code of a session process whose client has requested to stop the agent.
pub const LEAVING: u8 = 17;

#[derive(Clone)]
pub struct Options {
    pub bind: IpAddr,
    /// TCP port; 0 selects a free one.
    pub port: u16,
    /// Key that direct clients must send, and name of the device at a tracker.
    pub key: String,
    pub secret: Option<String>,
    pub tracker: Option<Address>,
    /// Time limit of a session; overrides the limit that the client requests.
    pub session: Duration,
    pub memory_bytes: usize,
    pub fabric: Option<FabricKind>,
    pub is_emulated: bool,
    /// Command that starts session processes, such as an emulator where the system cannot run this architecture.
    pub through: Vec<OsString>,
}

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ServeError {
    #[error(
        "any client that reaches {0} could run code on this machine; give `--secret-file FILE`, or listen on 127.0.0.1 and connect clients through a tunnel such as `ssh -L 9090:127.0.0.1:9090 BOARD`"
    )]
    Open(IpAddr),
    #[error("cannot listen on {0}: {1}")]
    Listen(Address, std::io::Error),
    #[error("the thread that greets clients has ended")]
    Greeting,
    #[error("cannot serve: {0}")]
    System(#[from] std::io::Error),
}

/// Checks that a secret protects addresses beyond this machine.
pub fn check_access(options: &Options) -> Result<(), ServeError> {
    if options.bind.is_loopback() || options.secret.is_some() { Ok(()) } else { Err(ServeError::Open(options.bind)) }
}

pub fn bind_listener(options: &Options) -> Result<TcpListener, ServeError> {
    check_access(options)?;
    let address = || Address { host: options.bind.to_string(), port: options.port };
    TcpListener::bind((options.bind, options.port)).map_err(|error| ServeError::Listen(address(), error))
}

/// Serves clients one after another until a client stops the agent. Log messages go to `log`.
pub fn serve_clients(listener: TcpListener, options: &Options, log: fn(String)) -> Result<(), ServeError> {
    let port = listener.local_addr()?.port();
    let serves_devmem = options.fabric == Some(FabricKind::Devmem);
    let mut marked = folder::sweep_folders(&std::env::temp_dir(), serves_devmem);
    let registration = options.tracker.clone().map(|tracker| Registration::new(tracker, &options.key, port));
    let admission = Arc::new(Admission::new(&options.key, options.secret.as_deref(), registration, log));
    let (admit, admitted) = channel();
    std::thread::spawn({
        let admission = Arc::clone(&admission);
        move || greet_all(&listener, &admission, &admit)
    });
    loop {
        admission.offer_session();
        let (client, key) = match admitted.recv_timeout(TICK) {
            Ok(admitted) => admitted,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Err(ServeError::Greeting),
        };
        let end = run_session(&client.stream, options, &key, &mut marked);
        admission.release_client(&client);
        let address = client.address;
        match end {
            Ok(SessionEnd::Fine) => {}
            Ok(SessionEnd::Leaving) => {
                log(format!("{address} requested the agent to end"));
                return Ok(());
            }
            Ok(SessionEnd::Bad(end)) => log(format!("session of {address} {end}")),
            Err(error) => log(format!("cannot start a session for {address}: {error}")),
        }
    }
}

enum SessionEnd {
    Fine,
    Leaving,
    Bad(String),
}

/// Runs one session. Marks of a core that may still run are kept until the next session has set its own mark.
fn run_session(
    stream: &TcpStream,
    options: &Options,
    key: &Key,
    marked: &mut Vec<MarkedFolder>,
) -> std::io::Result<SessionEnd> {
    let folder = SessionFolder::new()?;
    if !marked.is_empty() {
        std::fs::write(folder.path().join(CORE_AT_WORK), "")?;
        marked.drain(..).for_each(MarkedFolder::remove_folder);
    }
    detect_dead_peer(stream);
    let end = supervise_session(stream, options, key, folder.path());
    marked.extend(folder.into_marked());
    end
}

fn supervise_session(stream: &TcpStream, options: &Options, key: &Key, folder: &Path) -> std::io::Result<SessionEnd> {
    let mut child = match spawn_session(stream, options, folder) {
        Ok(child) => child,
        Err(error) => {
            let said = format!("RPCError: the agent cannot start a session: {error}");
            let _ = Packet::error_reply(said).send(&mut Waiting::new(stream.try_clone()?, FAREWELL));
            return Err(error);
        }
    };
    let limit = key.timeout.map_or(options.session, |wanted| wanted.min(options.session));
    let (said, end) = match wait_for_end(&mut child, stream, limit)? {
        SessionExit::Left => return Ok(SessionEnd::Bad("ended because its client disconnected".to_owned())),
        SessionExit::By(status) => match status.signal() {
            Some(number) if number == Signal::SIGALRM as i32 => {
                let why = "a request exceeded the client's time limit";
                (format!("RPCSessionTimeoutError: {why}"), format!("ended because {why}"))
            }
            Some(number) => {
                let name = Signal::try_from(number).map_or("an unknown signal", Signal::as_str);
                (format!("RPCError: the session crashed with {name} ({number})"), format!("crashed with {name}"))
            }
            None if status.success() => return Ok(SessionEnd::Fine),
            None if status.code() == Some(LEAVING.into()) => return Ok(SessionEnd::Leaving),
            None => ("RPCError: the session ended with an error".to_owned(), format!("ended with {status}")),
        },
        SessionExit::Late => {
            let seconds = limit.as_secs_f64();
            let said = format!("RPCSessionTimeoutError: the session exceeded its limit of {seconds} s");
            (said, format!("ended after its limit of {seconds} s"))
        }
    };
    // A client that waits for a reply receives the reason. A client that has gone receives nothing.
    let mut waiting = Waiting::new(stream.try_clone()?, FAREWELL);
    let _ = Packet::error_reply(said).send(&mut waiting);
    Ok(SessionEnd::Bad(end))
}

fn spawn_session(stream: &TcpStream, options: &Options, folder: &Path) -> std::io::Result<Child> {
    let mut words = options.through.iter().cloned();
    let mut command = match words.next() {
        Some(program) => {
            let mut command = Command::new(program);
            command.args(words).arg(std::env::current_exe()?);
            command
        }
        // The running executable, even if its file was replaced.
        None => Command::new("/proc/self/exe"),
    };
    command.arg("session").arg(folder).arg(options.memory_bytes.to_string());
    command.arg(options.fabric.map_or("none", fabric::fabric_word)).arg(std::process::id().to_string());
    command.stdin(Stdio::from(OwnedFd::from(stream.try_clone()?))).stdout(Stdio::null()).process_group(0);
    if options.is_emulated || !options.through.is_empty() {
        command.env(EMULATED_VARIABLE, "1");
    }
    command.spawn()
}

enum SessionExit {
    By(ExitStatus),
    Late,
    Left,
}

/// Waits for the session. Kills it at the limit or after its client has left, as an endless kernel blocks the board.
fn wait_for_end(child: &mut Child, stream: &TcpStream, limit: Duration) -> std::io::Result<SessionExit> {
    const LONGEST: Duration = Duration::from_millis(20);
    let process = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
    let until = Instant::now() + limit;
    let (mut leaving, mut leaving_since) = (None, Instant::now());
    let mut pause = Duration::from_millis(1);
    let how = loop {
        if has_ended(process)? {
            break None;
        }
        let current = leaving_limit(stream);
        if leaving != current {
            (leaving, leaving_since) = (current, Instant::now());
        }
        if leaving.is_some_and(|limit| leaving_since.elapsed() > limit) {
            break Some(SessionExit::Left);
        }
        if Instant::now() >= until {
            break Some(SessionExit::Late);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST);
    };
    // Kills the session's remaining process group. Its id cannot be reused before the child is reaped.
    let _ = killpg(process, Signal::SIGKILL);
    let status = child.wait()?;
    Ok(how.unwrap_or(SessionExit::By(status)))
}

/// Checks whether a child process has ended, without reaping it.
fn has_ended(process: Pid) -> std::io::Result<bool> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    Ok(waitid(Id::Pid(process), flags)? != WaitStatus::StillAlive)
}

fn leaving_limit(stream: &TcpStream) -> Option<Duration> {
    let mut byte = [0];
    let has_unread = || recv(stream.as_raw_fd(), &mut byte, MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) == Ok(1);
    has_hung_up(stream).then(has_unread).map(|has_unread| if has_unread { CLOSED_GRACE_UNREAD } else { CLOSED_GRACE })
}
