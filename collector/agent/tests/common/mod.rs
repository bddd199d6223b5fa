//! Helpers that start the real program and compile kernels for it.
#![allow(dead_code, missing_docs)]

use nix::unistd::Pid;
use remote::handshake::Key;
use remote::wire::Value;
use remote::{Address, Session};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub const LONG: Duration = Duration::from_secs(120);

pub struct Agent {
    pub child: Child,
    pub address: Address,
}

impl Agent {
    pub fn start(options: &[&str]) -> Agent {
        Agent::spawn(Command::new(env!("CARGO_BIN_EXE_opcollect-board")).args(["serve", "--port", "0"]).args(options))
    }

    pub fn spawn(command: &mut Command) -> Agent {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program was built");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("it is piped"))
            .read_line(&mut line)
            .expect("it says where it listens");
        let address = line.trim().strip_prefix("listening on ").expect(&line).parse().expect("an address");
        Agent { child, address }
    }

    pub fn session(&self) -> Session {
        Session::open(&self.address, &Key::default(), LONG).expect("the agent listens")
    }

    pub fn process(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub fn process_of_session(&self) -> Pid {
        let id = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).expect("it runs");
        Pid::from_raw(children.trim().parse().expect("one session"))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Returns the compiled kernels, or `None` with a message if there is no compiler.
pub fn kernels() -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, library) = (concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels.c"), folder.path().join("kernels.so"));
    let made = Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
    match made {
        Ok(status) if status.success() => Some(std::fs::read(&library).expect("it was just made")),
        _ => {
            // Bypasses the output capture of libtest.
            let _ = std::io::stderr().write_all(b"skipped: there is no C compiler `cc` here\n");
            None
        }
    }
}

pub fn load(session: &mut Session, kernels: &[u8]) -> u64 {
    session.upload_file("kernels.so", kernels.to_vec()).expect("a file");
    session.load_library("kernels.so").expect("a library")
}

pub fn kernel(session: &mut Session, library: u64, name: &str) -> u64 {
    let arguments = vec![Value::Module(library), Value::Text(name.to_owned()), Value::Bool(false)];
    match session.call_named("tvm.rpc.server.ModuleGetFunction", arguments) {
        Ok(Value::Function(handle)) => handle,
        other => panic!("{other:?}"),
    }
}
