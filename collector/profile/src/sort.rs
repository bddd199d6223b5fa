//! Sort keys of operator tables, named as in torch.profiler, which says `cuda` for `device`.

models::choice! {
    /// Sort key; the largest value comes first.
    #[derive(Default)]
    pub enum SortBy {
        /// Mean time of a call
        CpuTime = "cpu_time",
        /// Time of all calls with what they are made of
        CpuTimeTotal = "cpu_time_total",
        /// Time of all calls without what they are made of
        #[default]
        SelfCpuTimeTotal = "self_cpu_time_total",
        /// Mean time of a call on a device
        DeviceTime = "device_time" | "cuda_time",
        /// Time of all calls on a device with what they are made of
        DeviceTimeTotal = "device_time_total" | "cuda_time_total",
        /// Time of all calls on a device without what they are made of
        SelfDeviceTimeTotal = "self_device_time_total" | "self_cuda_time_total",
        /// Memory that calls take, with what they are made of
        CpuMemoryUsage = "cpu_memory_usage",
        /// Memory that calls take, without what they are made of
        SelfCpuMemoryUsage = "self_cpu_memory_usage",
        /// Memory of a device that calls take, with what they are made of
        DeviceMemoryUsage = "device_memory_usage" | "cuda_memory_usage",
        /// Memory of a device that calls take, without what they are made of
        SelfDeviceMemoryUsage = "self_device_memory_usage" | "self_cuda_memory_usage",
        /// Number of calls
        Count = "count",
        /// The order of first calls
        Order = "order",
    }
}
