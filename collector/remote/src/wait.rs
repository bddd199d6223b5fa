//! A connection with a deadline on every wait.

use crate::{Address, RemoteError};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Maximum number of bytes reserved before any data has arrived.
const TRUSTED_BYTES: usize = 64 << 10;
/// Size of the read buffer; most replies are shorter.
const READ_BYTES: usize = 4 << 10;

pub fn connect_within(address: &Address, within: Duration) -> Result<Waiting, RemoteError> {
    let unreachable = |why: std::io::Error| RemoteError::Unreachable { address: address.clone(), why: why.to_string() };
    let until = Instant::now() + within;
    let found = (address.host.as_str(), address.port).to_socket_addrs().map_err(unreachable)?;
    let mut last = std::io::Error::new(ErrorKind::NotFound, "the host name has no address");
    for address in found {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(Waiting::new(stream, within)),
            Err(error) => last = error,
        }
    }
    Err(unreachable(last))
}

pub struct Waiting {
    stream: TcpStream,
    until: Instant,
    limit: Duration,
    doing: &'static str,
    /// Received bytes; those from index `taken` on are not consumed yet.
    ahead: Vec<u8>,
    taken: usize,
    /// Current write and read timeouts of the socket.
    waits: [Option<Duration>; 2],
}

const TO_SEND: usize = 0;
const TO_RECEIVE: usize = 1;

impl Waiting {
    /// Wraps a connection; its first deadline is `within` from now.
    pub fn new(stream: TcpStream, within: Duration) -> Waiting {
        // Requests are small and wait for their replies, so Nagle's algorithm only delays them. Without the option the
        // connection is slower but works.
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

    pub fn begin_activity(&mut self, doing: &'static str, within: Duration) {
        (self.doing, self.limit, self.until) = (doing, within, Instant::now() + within);
    }

    pub fn send(&mut self, mut bytes: &[u8]) -> Result<(), RemoteError> {
        while !bytes.is_empty() {
            self.wait_at_most(TO_SEND)?;
            match self.stream.write(bytes) {
                Ok(0) => return Err(RemoteError::Closed { doing: self.doing }),
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) => self.check_retry(&error, TO_SEND)?,
            }
        }
        Ok(())
    }

    pub fn fill_buffer(&mut self, buffer: &mut [u8]) -> Result<(), RemoteError> {
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
                self.receive_some(wanted)?
            };
        }
        Ok(())
    }

    pub fn read_i32(&mut self) -> Result<i32, RemoteError> {
        let mut bytes = [0; 4];
        self.fill_buffer(&mut bytes)?;
        Ok(i32::from_le_bytes(bytes))
    }

    /// Reads `count` bytes. Memory grows as the bytes arrive.
    pub fn read_bytes(&mut self, count: usize) -> Result<Vec<u8>, RemoteError> {
        let mut bytes = Vec::with_capacity(count.min(TRUSTED_BYTES));
        while bytes.len() < count {
            let old = bytes.len();
            bytes.resize(count.min(old + TRUSTED_BYTES.max(old)), 0);
            self.fill_buffer(&mut bytes[old..])?;
        }
        Ok(bytes)
    }

    fn look_ahead(&mut self) -> Result<(), RemoteError> {
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.resize(READ_BYTES, 0);
        let received = self.receive_some(&mut ahead)?;
        ahead.truncate(received);
        (self.ahead, self.taken) = (ahead, 0);
        Ok(())
    }

    fn receive_some(&mut self, buffer: &mut [u8]) -> Result<usize, RemoteError> {
        loop {
            self.wait_at_most(TO_RECEIVE)?;
            match self.stream.read(buffer) {
                Ok(0) => return Err(RemoteError::Closed { doing: self.doing }),
                Ok(received) => return Ok(received),
                Err(error) => self.check_retry(&error, TO_RECEIVE)?,
            }
        }
    }

    /// Lowers the socket's timeout to the time left. Keeps a shorter timeout to save a system call: the caller retries.
    fn wait_at_most(&mut self, way: usize) -> Result<(), RemoteError> {
        let left = self.time_left()?;
        if self.waits[way].is_none_or(|waits| waits > left) {
            let set = if way == TO_SEND { TcpStream::set_write_timeout } else { TcpStream::set_read_timeout };
            set(&self.stream, Some(left)).map_err(|error| self.to_remote_error(&error))?;
            self.waits[way] = Some(left);
        }
        Ok(())
    }

    /// Returns Ok if an operation that failed with `error` can be retried; `time_left` ends the retries.
    fn check_retry(&mut self, error: &std::io::Error, way: usize) -> Result<(), RemoteError> {
        match error.kind() {
            ErrorKind::Interrupted => Ok(()),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                self.waits[way] = None;
                Ok(())
            }
            _ => Err(self.to_remote_error(error)),
        }
    }

    fn to_remote_error(&self, _: &std::io::Error) -> RemoteError {
        // Resets, broken pipes and similar errors all mean that the peer has gone.
        RemoteError::Closed { doing: self.doing }
    }

    fn time_left(&self) -> Result<Duration, RemoteError> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let limit_ms = u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX);
            return Err(RemoteError::TimedOut { doing: self.doing, limit_ms });
        }
        Ok(left)
    }
}
