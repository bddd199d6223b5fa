//! Abstraction of a peer (such as a worker process) that processes jobs sent over a byte stream.

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

pub trait PeerStream: AsFd {
    fn read_within(&self, limit: Duration, buffer: &mut [u8]) -> Result<usize>;
    fn write_within(&self, limit: Duration, buffer: &[u8]) -> Result<usize>;
}

macro_rules! stream {
    ($($socket:ty),*) => {$(
        impl PeerStream for $socket {
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

/// A peer that processes jobs. Dropping the value ends the peer.
pub trait Peer {
    fn frame_stream(&self) -> &dyn PeerStream;
    fn peer_hello(&self) -> &Hello;
    /// Returns whether the peer is known to have ended by itself.
    fn has_ended(&self) -> bool;
    /// Ends the peer and returns the fault, derived from the failed transfer and the way in which the peer ended.
    fn end_with_fault(self, error: FrameError, limit: Duration) -> Fault;
}

pub trait PeerSource {
    type Peer: Peer;
    /// Starts a peer and receives its greeting, or returns why that failed.
    fn start_peer(&self) -> std::result::Result<Self::Peer, String>;
    /// Returns the criteria by which a peer that still works is replaced.
    fn recycle_criteria(&self) -> &Recycle;
}

pub struct TimedReply<'a> {
    pub stream: &'a dyn PeerStream,
    pub deadline: Moment,
}

impl TimedReply<'_> {
    /// Repeats a transfer in short waits until it succeeds or the deadline expires.
    fn retry_until_deadline(&self, mut transfer: impl FnMut(Duration) -> Result<usize>) -> Result<usize> {
        loop {
            let rest = self.deadline.time_left();
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

impl Read for TimedReply<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.retry_until_deadline(|limit| self.stream.read_within(limit, buffer))
    }
}

impl Write for TimedReply<'_> {
    fn write(&mut self, buffer: &[u8]) -> Result<usize> {
        self.retry_until_deadline(|limit| self.stream.write_within(limit, buffer))
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
