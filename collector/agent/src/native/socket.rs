//! Socket options that `nix` does not provide with the enabled features.

use nix::libc::{
    IPPROTO_TCP, SO_KEEPALIVE, SOL_SOCKET, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_USER_TIMEOUT, c_int,
    setsockopt, socklen_t,
};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// Makes the system close a connection whose peer vanishes. Errors are ignored, because sessions have time limits, too.
pub fn detect_dead_peer(stream: &TcpStream) {
    for (level, option, value) in [
        (SOL_SOCKET, SO_KEEPALIVE, 1),
        (IPPROTO_TCP, TCP_KEEPIDLE, 15),
        (IPPROTO_TCP, TCP_KEEPINTVL, 15),
        (IPPROTO_TCP, TCP_KEEPCNT, 3),
        // Limit in milliseconds for sent data without acknowledgement.
        (IPPROTO_TCP, TCP_USER_TIMEOUT, 60_000),
    ] {
        let value: c_int = value;
        let bytes = size_of::<c_int>() as socklen_t;
        // SAFETY: the socket is open as long as the stream, and the system reads one integer of the given size.
        unsafe { setsockopt(stream.as_raw_fd(), level, option, (&raw const value).cast(), bytes) };
    }
}
