//! Sort keys of operator tables, named as in torch.profiler.

/// Sort key; the largest value comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// Mean time of a call on the host.
    CpuTime,
    /// Total time on the host.
    CpuTimeTotal,
    /// Self time on the host.
    #[default]
    SelfCpuTimeTotal,
    /// Mean time of a call on the device.
    DeviceTime,
    /// Total time on the device.
    DeviceTimeTotal,
    /// Self time on the device.
    SelfDeviceTimeTotal,
    /// Memory allocated on the host.
    CpuMemoryUsage,
    /// Memory allocated on the host, without child calls.
    SelfCpuMemoryUsage,
    /// Memory allocated on the device.
    DeviceMemoryUsage,
    /// Memory allocated on the device, without child calls.
    SelfDeviceMemoryUsage,
    /// Number of calls.
    Count,
    /// Order of the first calls.
    Order,
}
