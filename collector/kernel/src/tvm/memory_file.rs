//! Files in memory that TVM opens by a path.

use nix::sys::memfd::{MFdFlags, memfd_create};
use std::os::fd::{AsRawFd, OwnedFd};

/// In-memory file, removed on drop.
pub(super) struct MemoryFile {
    pub(super) path: String,
    _descriptor: OwnedFd,
}

impl MemoryFile {
    /// Creates an empty file; `name` appears in `/proc/PID/fd`.
    pub(super) fn new(name: &str) -> nix::Result<MemoryFile> {
        let descriptor = memfd_create(name, MFdFlags::MFD_CLOEXEC)?;
        Ok(MemoryFile { path: format!("/proc/self/fd/{}", descriptor.as_raw_fd()), _descriptor: descriptor })
    }
}
