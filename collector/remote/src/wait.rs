//! A connection whose every wait has an end.

use crate::{Address, RemoteError};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Memory that is reserved before anything arrived.
const TRUSTED_BYTES: usize = 64 << 10;
/// What is asked of the connection at once: most answers are shorter.
const READ_BYTES: usize = 4 << 10;

/// Connects within this time.
pub fn connect(address: &Address, within: Duration) -> Result<Waiting, RemoteError> {
    let unreachable = |why: std::io::Error| RemoteError::Unreachable { address: address.clone(), why: why.to_string() };
    let until = Instant::now() + within;
    let found = (address.host.as_str(), address.port).to_socket_addrs().map_err(unreachable)?;
    let mut last = std::io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in found {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(Waiting::new(stream, within)),
            Err(error) => last = error,
        }
    }
    Err(unreachable(last))
}

/// A connection with the moment at which waiting for the other side ends.
pub struct Waiting {
    stream: TcpStream,
    until: Instant,
    limit: Duration,
    doing: &'static str,
    /// What came and was not asked for yet, from this place on.
    ahead: Vec<u8>,
    taken: usize,
    /// How long the connection itself waits to send and to receive.
    waits: [Option<Duration>; 2],
}

/// Places in `waits`.
const TO_SEND: usize = 0;
const TO_RECEIVE: usize = 1;

impl Waiting {
    /// A connection that waits at most so long from now on.
    pub fn new(stream: TcpStream, within: Duration) -> Waiting {
        // Requests are small and each waits for its answer. Where it cannot be set it is only slower.
        let _ = stream.set_nodelay(true);
        Waiting {
            stream,
            until: Instant::now() + within,
            limit: within,
            doing: "connecting",
            ahead: Vec::new(),
            taken: 0,
            waits: [None; 2],
        }
    }

    /// From now on something else is waited for, until so much later at most.
    pub fn begin(&mut self, doing: &'static str, within: Duration) {
        (self.doing, self.limit, self.until) = (doing, within, Instant::now() + within);
    }

    /// Sends all of it.
    pub fn send(&mut self, mut bytes: &[u8]) -> Result<(), RemoteError> {
        while !bytes.is_empty() {
            self.wait_at_most(TO_SEND)?;
            match self.stream.write(bytes) {
                Ok(0) => return Err(RemoteError::Closed { doing: self.doing }),
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) => self.pass(&error, TO_SEND)?,
            }
        }
        Ok(())
    }

    /// Fills a buffer.
    pub fn fill(&mut self, buffer: &mut [u8]) -> Result<(), RemoteError> {
        let mut filled = 0;
        while filled < buffer.len() {
            let wanted = &mut buffer[filled..];
            let here = &self.ahead[self.taken..];
            filled += if !here.is_empty() {
                let count = here.len().min(wanted.len());
                wanted[..count].copy_from_slice(&here[..count]);
                self.taken += count;
                count
            } else if wanted.len() < READ_BYTES {
                self.look_ahead()?;
                0
            } else {
                self.receive(wanted)?
            };
        }
        Ok(())
    }

    /// The next four bytes as a number.
    pub fn number(&mut self) -> Result<i32, RemoteError> {
        let mut bytes = [0; 4];
        self.fill(&mut bytes)?;
        Ok(i32::from_le_bytes(bytes))
    }

    /// So many bytes; memory is taken as they arrive.
    pub fn take(&mut self, count: usize) -> Result<Vec<u8>, RemoteError> {
        let mut bytes = Vec::with_capacity(count.min(TRUSTED_BYTES));
        while bytes.len() < count {
            let old = bytes.len();
            bytes.resize(count.min(old + TRUSTED_BYTES.max(old)), 0);
            self.fill(&mut bytes[old..])?;
        }
        Ok(bytes)
    }

    /// Takes what has come, all at once.
    fn look_ahead(&mut self) -> Result<(), RemoteError> {
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.resize(READ_BYTES, 0);
        let received = self.receive(&mut ahead)?;
        ahead.truncate(received);
        (self.ahead, self.taken) = (ahead, 0);
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, RemoteError> {
        loop {
            self.wait_at_most(TO_RECEIVE)?;
            match self.stream.read(buffer) {
                Ok(0) => return Err(RemoteError::Closed { doing: self.doing }),
                Ok(received) => return Ok(received),
                Err(error) => self.pass(&error, TO_RECEIVE)?,
            }
        }
    }

    /// The connection itself waits no longer than is left. One that waits a little shorter is left as it is: who waited in vain
    /// asks once more.
    fn wait_at_most(&mut self, way: usize) -> Result<(), RemoteError> {
        let left = self.left()?;
        if self.waits[way].is_none_or(|waits| waits > left) {
            let set = if way == TO_SEND { TcpStream::set_write_timeout } else { TcpStream::set_read_timeout };
            set(&self.stream, Some(left)).map_err(|error| self.failed(&error))?;
            self.waits[way] = Some(left);
        }
        Ok(())
    }

    /// An error that only says to try again passes; how long is up to `left`.
    fn pass(&mut self, error: &std::io::Error, way: usize) -> Result<(), RemoteError> {
        match error.kind() {
            ErrorKind::Interrupted => Ok(()),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                self.waits[way] = None;
                Ok(())
            }
            _ => Err(self.failed(error)),
        }
    }

    fn failed(&self, _: &std::io::Error) -> RemoteError {
        // Resets, broken pipes and the like: whichever it is, the other side has gone.
        RemoteError::Closed { doing: self.doing }
    }

    fn left(&self) -> Result<Duration, RemoteError> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let limit_ms = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
            return Err(RemoteError::TimedOut { doing: self.doing, limit_ms });
        }
        Ok(left)
    }
}
