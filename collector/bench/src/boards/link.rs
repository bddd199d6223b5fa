//! Links object files into shared libraries for a board through a C compiler, which adds routines that the processor
//! lacks, such as integer division.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linker {
    words: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum LinkError {
    #[error("cannot start the linker `{0}`: {1}")]
    Missing(String, String),
    #[error("the linker `{0}` failed: {1}")]
    Refused(String, String),
    #[error("the linker `{0}` took longer than one minute")]
    TimedOut(String),
    #[error("cannot write or read files of the linker: {0}")]
    Folder(String),
}

impl Linker {
    /// Parses a command line, such as `zig cc -target aarch64-linux-gnu`.
    pub fn new(command: &str) -> Linker {
        Linker { words: command.split_whitespace().map(str::to_owned).collect() }
    }

    /// Returns the default linker of an architecture in Rust's naming.
    pub fn for_architecture(architecture: &str) -> Linker {
        let program = match architecture {
            own if own == std::env::consts::ARCH => "cc",
            "arm" => "arm-linux-gnueabihf-gcc",
            "aarch64" => "aarch64-linux-gnu-gcc",
            "x86_64" => "x86_64-linux-gnu-gcc",
            _ => "cc",
        };
        Linker::new(program)
    }

    pub fn check_program(&self) -> Result<(), LinkError> {
        let mut command = self.to_command()?;
        let started =
            command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        started.map(drop).map_err(|error| LinkError::Missing(self.command_line(), error.to_string()))
    }

    pub fn link_object(&self, object: &[u8]) -> Result<Vec<u8>, LinkError> {
        let folder = |error: std::io::Error| LinkError::Folder(error.to_string());
        let place = tempfile::Builder::new().prefix("opcollect-link-").tempdir().map_err(folder)?;
        let file = |name: &str| -> PathBuf { place.path().join(name) };
        std::fs::write(file("kernel.o"), object).map_err(folder)?;
        let said = std::fs::File::create(file("said")).map_err(folder)?;
        let mut command = self.to_command()?;
        command.args(["-shared", "-fPIC", "-o"]).arg(file("kernel.so")).arg(file("kernel.o")).arg("-lm");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let mut child = command.spawn().map_err(|error| LinkError::Missing(self.command_line(), error.to_string()))?;
        let until = Instant::now() + LIMIT;
        let status = loop {
            match child.try_wait().map_err(folder)? {
                Some(status) => break status,
                None if Instant::now() >= until => {
                    let _ = child.kill().and_then(|()| child.wait());
                    return Err(LinkError::TimedOut(self.command_line()));
                }
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        if status.success() {
            return std::fs::read(file("kernel.so")).map_err(folder);
        }
        let mut text = String::new();
        let _ = std::fs::File::open(file("said")).and_then(|said| said.take(2000).read_to_string(&mut text));
        Err(LinkError::Refused(self.command_line(), text.trim().to_owned()))
    }

    fn command_line(&self) -> String {
        self.words.join(" ")
    }

    fn to_command(&self) -> Result<Command, LinkError> {
        let (program, rest) = self
            .words
            .split_first()
            .ok_or_else(|| LinkError::Missing(String::new(), "the command is empty".to_owned()))?;
        let mut command = Command::new(program);
        command.args(rest);
        Ok(command)
    }
}
