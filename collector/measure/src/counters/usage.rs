//! The kernel's resource accounting of processes and threads, which is always available.

use nix::{
    sys::resource::{UsageWho, getrusage},
    time::ClockId,
};
use serde::{Deserialize, Serialize};

/// Resources used so far, or between two moments, by the whole process unless the field's name mentions the thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time of the thread, including kernel mode.
    pub thread_cpu_ns: u64,
    pub process_cpu_ns: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub voluntary_switches: u64,
    pub involuntary_switches: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageParts {
    pub thread_clock: bool,
    pub process_clock: bool,
    pub events: bool,
}

impl UsageParts {
    pub const ALL: UsageParts = UsageParts { thread_clock: true, process_clock: true, events: true };

    pub fn union_with(self, other: UsageParts) -> UsageParts {
        UsageParts {
            thread_clock: self.thread_clock || other.thread_clock,
            process_clock: self.process_clock || other.process_clock,
            events: self.events || other.events,
        }
    }
}

impl Usage {
    /// Reads all fields; those that are unavailable are 0.
    pub fn now() -> Self {
        Usage::read_parts(UsageParts::ALL)
    }

    pub fn read_parts(parts: UsageParts) -> Self {
        let clock = |clock: ClockId| {
            let time = clock.now().map(std::time::Duration::from).unwrap_or_default();
            u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
        };
        let count = |value: std::ffi::c_long| u64::try_from(value).unwrap_or(0);
        let mut usage = Self::default();
        if parts.thread_clock {
            usage.thread_cpu_ns = clock(ClockId::CLOCK_THREAD_CPUTIME_ID);
        }
        if parts.process_clock {
            usage.process_cpu_ns = clock(ClockId::CLOCK_PROCESS_CPUTIME_ID);
        }
        if parts.events
            && let Ok(process) = getrusage(UsageWho::RUSAGE_SELF)
        {
            usage.minor_faults = count(process.minor_page_faults());
            usage.major_faults = count(process.major_page_faults());
            usage.voluntary_switches = count(process.voluntary_context_switches());
            usage.involuntary_switches = count(process.involuntary_context_switches());
        }
        usage
    }

    /// Returns the change since an earlier reading, which must be from the same thread.
    pub fn since_reading(&self, earlier: &Self) -> Self {
        self.combine_with(earlier, u64::saturating_sub)
    }

    pub fn add(&mut self, other: &Self) {
        *self = self.combine_with(other, u64::saturating_add);
    }

    fn combine_with(&self, other: &Self, operation: fn(u64, u64) -> u64) -> Self {
        Self {
            thread_cpu_ns: operation(self.thread_cpu_ns, other.thread_cpu_ns),
            process_cpu_ns: operation(self.process_cpu_ns, other.process_cpu_ns),
            minor_faults: operation(self.minor_faults, other.minor_faults),
            major_faults: operation(self.major_faults, other.major_faults),
            voluntary_switches: operation(self.voluntary_switches, other.voluntary_switches),
            involuntary_switches: operation(self.involuntary_switches, other.involuntary_switches),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_pages_and_used_time_are_seen() {
        let before = Usage::now();
        let mut pages = vec![0_u8; 64 << 20];
        for page in pages.iter_mut().step_by(4096) {
            *page = 1;
        }
        std::hint::black_box(&pages);
        let used = Usage::now().since_reading(&before);
        // One fault may map a huge page of 512 pages.
        assert!(used.minor_faults >= 16, "{used:?}");
        assert!(used.thread_cpu_ns > 0 && used.process_cpu_ns > 0, "{used:?}");
    }
}
