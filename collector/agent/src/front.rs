//! The process that listens: greets clients, gives each a process of its own, and is there again when that ends.

use crate::fabric;
use crate::registration::Registration;
use crate::session::EMULATED_VARIABLE;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::socket::{MsgFlags, recv};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use remote::fabric::FabricKind;
use remote::handshake::{self, Key, Verdict};
use remote::packet::Packet;
use remote::{Address, RemoteError, Waiting};
use std::ffi::OsString;
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A client is given so long to say who it is.
const GREETING: Duration = Duration::from_secs(5);
/// How often the tracker is asked.
const TICK_MS: u16 = 2000;

/// The exit code of a session whose client wants that nobody is served after it.
pub const LEAVING: u8 = 17;

/// How an agent serves.
#[derive(Clone)]
pub struct Options {
    /// The address to listen on.
    pub bind: IpAddr,
    /// The port; 0 takes any.
    pub port: u16,
    /// The key of direct clients, and of the device at a tracker.
    pub key: String,
    /// What every client must know.
    pub secret: Option<String>,
    /// The tracker to register with.
    pub tracker: Option<Address>,
    /// A session ends after so long, whatever its client asked for.
    pub session: Duration,
    /// Memory for tensors of a session.
    pub memory_bytes: usize,
    /// What serves as a core on a fabric.
    pub fabric: Option<FabricKind>,
    /// Whether this runs on an emulator.
    pub is_emulated: bool,
    /// The program, with its arguments, that starts programs like this one, where the system cannot.
    pub through: Vec<OsString>,
}

/// Why an agent does not serve.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ServeError {
    #[error(
        "whoever reaches {0} could run code on this machine; give `--secret-file FILE`, or listen on 127.0.0.1 and bring \
         clients there through a tunnel, as `ssh -L 9090:127.0.0.1:9090 BOARD` does"
    )]
    Open(IpAddr),
    #[error("cannot listen on {0}: {1}")]
    Listen(Address, std::io::Error),
    #[error("cannot serve: {0}")]
    System(#[from] std::io::Error),
}

/// Listens.
pub fn listen(options: &Options) -> Result<TcpListener, ServeError> {
    if !options.bind.is_loopback() && options.secret.is_none() {
        return Err(ServeError::Open(options.bind));
    }
    let address = || Address { host: options.bind.to_string(), port: options.port };
    let listener =
        TcpListener::bind((options.bind, options.port)).map_err(|error| ServeError::Listen(address(), error))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves one client after the other, until one wants it to end; news goes to `tell`.
pub fn serve(listener: &TcpListener, options: &Options, tell: &dyn Fn(String)) -> Result<(), ServeError> {
    let port = listener.local_addr()?.port();
    let mut registration = options.tracker.clone().map(|tracker| Registration::new(tracker, &options.key, port));
    loop {
        if let Some(registration) = &mut registration
            && let Err(error) = registration.look()
        {
            tell(format!("the tracker is not there: {error}; trying again"));
        }
        let mut waiting = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        if poll(&mut waiting, PollTimeout::from(TICK_MS)).unwrap_or(0) == 0 {
            continue;
        }
        let Ok((stream, client)) = listener.accept() else { continue };
        stream.set_nonblocking(false)?;
        let expected =
            registration.as_ref().map(|registration| registration.match_key().unwrap_or_default().to_owned());
        match greet(&stream, options, expected.as_deref()) {
            Ok(key) => {
                match attend(&stream, options, &key) {
                    Ok(End::Fine) => {}
                    Ok(End::Leaving) => {
                        tell(format!("{client} wants that nobody is served any more"));
                        return Ok(());
                    }
                    Ok(End::Bad(end)) => tell(format!("session of {client}: {end}")),
                    Err(error) => tell(format!("session of {client} could not begin: {error}")),
                }
                if let Some(registration) = &mut registration {
                    registration.offer_again();
                }
            }
            Err(error) => tell(format!("{client} was sent away: {error}")),
        }
    }
}

/// Hears a client's key and says whether it is taken. At a tracker's agent that is the key that the tracker gave away.
fn greet(stream: &TcpStream, options: &Options, match_key: Option<&str>) -> Result<Key, RemoteError> {
    let copy = stream.try_clone().map_err(|error| RemoteError::Malformed(error.to_string()))?;
    let mut waiting = Waiting::new(copy, GREETING);
    waiting.begin("hearing who it is", GREETING);
    let key = handshake::hear(&mut waiting)?;
    let expected = match_key.unwrap_or(&options.key);
    let knows =
        options.secret.as_deref().is_none_or(|secret| is_same(secret, key.secret.as_deref().unwrap_or_default()));
    // An agent without a key of its own takes any.
    let is_ours = expected.is_empty() && match_key.is_none() || is_same(expected, &key.name) && !expected.is_empty();
    let verdict = if knows && is_ours { Verdict::Taken } else { Verdict::Mismatch };
    handshake::answer(verdict, &options.key, &mut waiting)?;
    match verdict {
        Verdict::Taken => Ok(key),
        _ => Err(RemoteError::Refused("its key is wrong".to_owned())),
    }
}

/// Compares in a time that does not tell how much of it was right.
fn is_same(left: &str, right: &str) -> bool {
    let differences = left.bytes().zip(right.bytes()).fold(0, |all, (left, right)| all | (left ^ right));
    differences == 0 && left.len() == right.len()
}

/// How a session ended.
enum End {
    Fine,
    /// Its client wants the agent to end, too.
    Leaving,
    Bad(String),
}

/// Sees to a session from beginning to end.
fn attend(stream: &TcpStream, options: &Options, key: &Key) -> std::io::Result<End> {
    let folder = tempfile::Builder::new().prefix("opcollect-board-").tempdir()?;
    let mut child = match start(stream, options, folder.path().to_owned()) {
        Ok(child) => child,
        Err(error) => {
            let said = format!("RPCError: the agent cannot start a session: {error}");
            let _ = Packet::exception(said).send(&mut Waiting::new(stream.try_clone()?, GREETING));
            return Err(error);
        }
    };
    let limit = key.timeout.map_or(options.session, |wanted| wanted.min(options.session));
    let (said, end) = match wait(&mut child, stream, limit)? {
        How::Left => return Ok(End::Bad("ended, since its client had gone".to_owned())),
        How::By(status) => match status.signal() {
            Some(number) => {
                let name = Signal::try_from(number).map_or("an unknown signal", Signal::as_str);
                (format!("RPCError: the session crashed with {name} ({number})"), format!("crashed with {name}"))
            }
            None if status.success() => return Ok(End::Fine),
            None if status.code() == Some(LEAVING.into()) => return Ok(End::Leaving),
            None => ("RPCError: the session ended with an error".to_owned(), format!("ended with {status}")),
        },
        How::Late => {
            let seconds = limit.as_secs_f64();
            let said = format!("RPCSessionTimeoutError: the session took longer than its {seconds} s");
            (said, format!("ended after its {seconds} s"))
        }
    };
    // A client that waits for an answer hears why there is none. One that has gone hears nothing.
    let mut waiting = Waiting::new(stream.try_clone()?, GREETING);
    let _ = Packet::exception(said).send(&mut waiting);
    Ok(End::Bad(end))
}

fn start(stream: &TcpStream, options: &Options, folder: PathBuf) -> std::io::Result<Child> {
    let mut words = options.through.iter().cloned();
    let mut command = match words.next() {
        Some(program) => {
            let mut command = Command::new(program);
            command.args(words).arg(std::env::current_exe()?);
            command
        }
        // This very program, even where another one lies in its place by now.
        None => Command::new("/proc/self/exe"),
    };
    command.arg("session").arg(folder).arg(options.memory_bytes.to_string());
    command.arg(options.fabric.map_or("none", fabric::word));
    command.stdin(Stdio::from(OwnedFd::from(stream.try_clone()?))).stdout(Stdio::null()).process_group(0);
    if options.is_emulated || !options.through.is_empty() {
        command.env(EMULATED_VARIABLE, "1");
    }
    command.spawn()
}

/// How a session's process came to its end.
enum How {
    /// It ended by itself.
    By(ExitStatus),
    /// It took too long.
    Late,
    /// Its client closed the connection.
    Left,
}

/// Waits for a session's process, and kills it if it takes too long or its client has closed the connection: an endless kernel
/// would block the board for all other clients.
fn wait(child: &mut Child, stream: &TcpStream, limit: Duration) -> std::io::Result<How> {
    const LONGEST: Duration = Duration::from_millis(20);
    /// A session that sees the end of its client's requests ends by itself, if it is not at work.
    const LEAVING: Duration = Duration::from_millis(500);
    let process = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
    let until = Instant::now() + limit;
    let mut gone_since: Option<Instant> = None;
    let mut pause = Duration::from_millis(1);
    let how = loop {
        if has_ended(process)? {
            break None;
        }
        gone_since = if has_gone(stream) { gone_since.or_else(|| Some(Instant::now())) } else { None };
        if gone_since.is_some_and(|since| since.elapsed() > LEAVING) {
            break Some(How::Left);
        }
        if Instant::now() >= until {
            break Some(How::Late);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST);
    };
    // What a session started ends with it. Until it is waited for, its number is no other process's.
    let _ = killpg(process, Signal::SIGKILL);
    let status = child.wait()?;
    Ok(how.unwrap_or(How::By(status)))
}

/// Returns whether a child has ended, without reaping it.
fn has_ended(process: Pid) -> std::io::Result<bool> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    Ok(waitid(Id::Pid(process), flags)? != WaitStatus::StillAlive)
}

/// Returns whether a client has closed its connection and all that it sent has been read.
fn has_gone(stream: &TcpStream) -> bool {
    let mut byte = [0];
    match recv(stream.as_raw_fd(), &mut byte, MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) {
        Ok(count) => count == 0,
        Err(errno) => errno != Errno::EAGAIN && errno != Errno::EINTR,
    }
}
