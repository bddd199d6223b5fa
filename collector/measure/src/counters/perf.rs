//! Perf events of the Linux kernel: one file descriptor per event, opened for the calling thread. Events are scheduled
//! as a group, but read one by one, because older kernels cannot read groups with descendants.

use std::{
    fs::File,
    io::Read,
    os::fd::{AsRawFd, FromRawFd},
};

use nix::errno::Errno;
use perf_event_open_sys::{self as perf, bindings as sys};

use super::{Reading, names::PerfEvent};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    pub with_descendants: bool,
    /// Whether only user mode is counted, which requires fewer privileges.
    pub is_user_only: bool,
}

#[derive(Debug)]
pub struct PerfCounter(File);

impl PerfCounter {
    /// Opens an event for the calling thread on any CPU. Without a leader, it starts disabled and may lead a group.
    pub fn open_event(event: PerfEvent, mode: Mode, leader: Option<&PerfCounter>) -> Result<Self, Errno> {
        let mut attributes = sys::perf_event_attr {
            type_: event.kind,
            size: u32::try_from(size_of::<sys::perf_event_attr>()).expect("a small structure"),
            config: event.config,
            read_format: u64::from(sys::PERF_FORMAT_TOTAL_TIME_ENABLED | sys::PERF_FORMAT_TOTAL_TIME_RUNNING),
            ..Default::default()
        };
        attributes.set_disabled(u64::from(leader.is_none()));
        attributes.set_inherit(u64::from(mode.with_descendants));
        attributes.set_exclude_kernel(u64::from(mode.is_user_only));
        attributes.set_exclude_hv(1);
        let group = leader.map_or(-1, |leader| leader.0.as_raw_fd());
        // SAFETY: `attributes` is a valid structure that contains its size and outlives the call; the group is -1 or
        // the descriptor of an open event, kept open by the borrow of its leader.
        let descriptor =
            unsafe { perf::perf_event_open(&mut attributes, 0, -1, group, u64::from(sys::PERF_FLAG_FD_CLOEXEC)) };
        if descriptor < 0 {
            return Err(Errno::last());
        }
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        Ok(Self(unsafe { File::from_raw_fd(descriptor) }))
    }

    /// Opens a sampling event on one CPU, for the calling thread and the threads that it starts later.
    pub(super) fn open_sampling(mut attributes: sys::perf_event_attr, cpu: i32) -> Result<Self, Errno> {
        // SAFETY: `attributes` is a valid structure that contains its size and outlives the call.
        let descriptor =
            unsafe { perf::perf_event_open(&mut attributes, 0, cpu, -1, u64::from(sys::PERF_FLAG_FD_CLOEXEC)) };
        if descriptor < 0 {
            return Err(Errno::last());
        }
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        Ok(Self(unsafe { File::from_raw_fd(descriptor) }))
    }

    pub(super) fn sample_file(&self) -> &File {
        &self.0
    }

    pub fn set_enabled(&self, is_on: bool) {
        let descriptor = self.0.as_raw_fd();
        // SAFETY: the descriptor is an open perf event, and the argument a plain flag.
        unsafe {
            match is_on {
                true => perf::ioctls::ENABLE(descriptor, sys::PERF_IOC_FLAG_GROUP),
                false => perf::ioctls::DISABLE(descriptor, sys::PERF_IOC_FLAG_GROUP),
            };
        }
    }

    /// Returns the count, or None if the kernel cannot schedule the group.
    pub fn read_count(&mut self) -> Option<Reading> {
        let mut bytes = [0_u8; 24];
        self.0.read_exact(&mut bytes).ok()?;
        let word = |place: usize| u64::from_ne_bytes(bytes[place * 8..][..8].try_into().expect("eight bytes"));
        Some(Reading { value: word(0), enabled_ns: word(1), running_ns: word(2) })
    }
}

/// Tries to open an event, in user and kernel mode or else in user mode only; returns the mode that worked.
pub fn probe_event(event: PerfEvent, with_descendants: bool) -> Result<Mode, Errno> {
    let mode = Mode { with_descendants, is_user_only: false };
    match PerfCounter::open_event(event, mode, None) {
        Err(Errno::EACCES | Errno::EPERM) => {
            let mode = Mode { is_user_only: true, ..mode };
            PerfCounter::open_event(event, mode, None).map(|_| mode)
        }
        opened => opened.map(|_| mode),
    }
}

pub fn explain_errno(errno: Errno) -> String {
    match errno {
        Errno::ENOENT | Errno::ENODEV | Errno::EOPNOTSUPP => {
            "this machine lacks the counter; virtual machines often have no hardware counters".into()
        }
        Errno::EACCES | Errno::EPERM => {
            let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
            format!(
                "not permitted with kernel.perf_event_paranoid = {}; set it to 2 or lower, or grant CAP_PERFMON",
                paranoid.trim()
            )
        }
        Errno::ENOSYS => "this kernel has no perf events, or a sandbox hides them".into(),
        Errno::EBUSY => "another process uses the counter; stop other profilers".into(),
        Errno::EMFILE | Errno::ENFILE => "too many open files; raise the limit (`ulimit -n`)".into(),
        Errno::EINVAL => {
            "this kernel or processor does not support the event, or not in one group with the others".into()
        }
        other => other.desc().into(),
    }
}
