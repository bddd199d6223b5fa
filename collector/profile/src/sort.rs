//! What rows are ordered by, whichever table they stand in; the words are torch.profiler's.

/// The largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// Mean time of a call on the host.
    CpuTime,
    /// Time of all calls on the host, parts included.
    CpuTimeTotal,
    /// The same without parts.
    #[default]
    SelfCpuTimeTotal,
    /// Mean time of a call on the device.
    DeviceTime,
    /// Time of all calls on the device, parts included.
    DeviceTimeTotal,
    /// The same without parts.
    SelfDeviceTimeTotal,
    /// What was taken of the host's memory.
    CpuMemoryUsage,
    /// The same without parts.
    SelfCpuMemoryUsage,
    /// What was taken of the device's memory.
    DeviceMemoryUsage,
    /// The same without parts.
    SelfDeviceMemoryUsage,
    /// Number of calls.
    Count,
    /// As they are called first.
    Order,
}
