//! The other end of a conversation, wherever it runs: whoever answers frames over a stream of bytes.

use std::io::{ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::{
    Fault, Hello, Recycle,
    awake::{LONGEST_WAIT, Moment},
    frame::FrameError,
};

/// A stream whose every transfer may be given a limit.
pub trait Stream: AsFd {
    /// Reads what is there, after waiting for it for at most so long.
    fn read_within(&self, limit: Duration, buffer: &mut [u8]) -> Result<usize>;
    /// Writes what there is room for, likewise.
    fn write_within(&self, limit: Duration, buffer: &[u8]) -> Result<usize>;
}

macro_rules! stream {
    ($($socket:ty),*) => {$(
        impl Stream for $socket {
            fn read_within(&self, limit: Duration, buffer: &mut [u8]) -> Result<usize> {
                self.set_read_timeout(Some(limit))?;
                (&mut &*self).read(buffer)
            }

            fn write_within(&self, limit: Duration, buffer: &[u8]) -> Result<usize> {
                self.set_write_timeout(Some(limit))?;
                (&mut &*self).write(buffer)
            }
        }
    )*};
}
stream!(UnixStream, TcpStream);

/// Somebody who does jobs, from the greeting to the end; dropping it ends it.
pub trait Peer {
    /// Where its frames come from.
    fn stream(&self) -> &dyn Stream;
    /// Its greeting.
    fn hello(&self) -> &Hello;
    /// Whether it is known to have ended by itself.
    fn has_ended(&self) -> bool;
    /// Ends it, and names what happened, from the transfer that failed and what is known of its end.
    fn fault(self, error: FrameError, limit: Duration) -> Fault;
}

/// Where such a one is found, as often as one is needed.
pub trait Place {
    /// Who is found there.
    type Peer: Peer;
    /// Finds one and hears its greeting, or says why there is none.
    fn find(&self) -> std::result::Result<Self::Peer, String>;
    /// When to replace one that still works.
    fn recycle(&self) -> &Recycle;
}

/// A stream whose every read and write ends at one deadline.
pub struct Timed<'a> {
    pub stream: &'a dyn Stream,
    pub deadline: Moment,
}

impl Timed<'_> {
    /// Does a transfer whose every wait is short, until it is done or the deadline has passed.
    fn in_time(&self, mut transfer: impl FnMut(Duration) -> Result<usize>) -> Result<usize> {
        loop {
            let rest = self.deadline.rest();
            if rest.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            match transfer(rest.min(LONGEST_WAIT)) {
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                done => return done,
            }
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.in_time(|limit| self.stream.read_within(limit, buffer))
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buffer: &[u8]) -> Result<usize> {
        self.in_time(|limit| self.stream.write_within(limit, buffer))
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
