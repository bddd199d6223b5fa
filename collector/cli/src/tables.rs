//! How tables of operators are made, as it is typed, wherever the operators come from.

use clap::ValueEnum;
use profile::SortBy;

/// Words to order by; those of torch.profiler, and the order of first calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum SortKey {
    /// Mean time of a call
    CpuTime,
    /// Time of all calls with what they are made of
    CpuTimeTotal,
    /// Time of all calls without what they are made of
    SelfCpuTimeTotal,
    /// Mean time of a call on a device
    #[value(alias = "cuda_time")]
    DeviceTime,
    /// Time of all calls on a device with what they are made of
    #[value(alias = "cuda_time_total")]
    DeviceTimeTotal,
    /// Time of all calls on a device without what they are made of
    #[value(alias = "self_cuda_time_total")]
    SelfDeviceTimeTotal,
    /// Memory that calls take, with what they are made of
    CpuMemoryUsage,
    /// Memory that calls take, without what they are made of
    SelfCpuMemoryUsage,
    /// Memory of a device that calls take, with what they are made of
    #[value(alias = "cuda_memory_usage")]
    DeviceMemoryUsage,
    /// Memory of a device that calls take, without what they are made of
    #[value(alias = "self_cuda_memory_usage")]
    SelfDeviceMemoryUsage,
    /// Number of calls
    Count,
    /// The order of first calls
    Order,
}

impl SortKey {
    /// What it means.
    pub fn meaning(self) -> SortBy {
        match self {
            SortKey::CpuTime => SortBy::CpuTime,
            SortKey::CpuTimeTotal => SortBy::CpuTimeTotal,
            SortKey::SelfCpuTimeTotal => SortBy::SelfCpuTimeTotal,
            SortKey::DeviceTime => SortBy::DeviceTime,
            SortKey::DeviceTimeTotal => SortBy::DeviceTimeTotal,
            SortKey::SelfDeviceTimeTotal => SortBy::SelfDeviceTimeTotal,
            SortKey::CpuMemoryUsage => SortBy::CpuMemoryUsage,
            SortKey::SelfCpuMemoryUsage => SortBy::SelfCpuMemoryUsage,
            SortKey::DeviceMemoryUsage => SortBy::DeviceMemoryUsage,
            SortKey::SelfDeviceMemoryUsage => SortBy::SelfDeviceMemoryUsage,
            SortKey::Count => SortBy::Count,
            SortKey::Order => SortBy::Order,
        }
    }
}

/// Whose table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Style {
    /// torch.profiler's
    Torch,
    /// That of the report TVM had
    Tvm,
}
