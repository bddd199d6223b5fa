//! Sort keys of operator tables, named as in torch.profiler, which uses `cuda` in place of `device`.

models::choice! {
    /// Sort key; the largest value comes first.
    #[derive(Default)]
    pub enum SortBy {
        /// Median time of a call times the calls of a run
        #[default]
        Share = "share",
        /// Mean time of a call
        CpuTime = "cpu_time",
        /// Total time, including callees
        CpuTimeTotal = "cpu_time_total",
        /// Total time, excluding callees
        SelfCpuTimeTotal = "self_cpu_time_total",
        /// Mean device time per call
        DeviceTime = "device_time" | "cuda_time",
        /// Total device time, including callees
        DeviceTimeTotal = "device_time_total" | "cuda_time_total",
        /// Total device time, excluding callees
        SelfDeviceTimeTotal = "self_device_time_total" | "self_cuda_time_total",
        /// Memory allocated, including callees
        CpuMemoryUsage = "cpu_memory_usage",
        /// Memory allocated, excluding callees
        SelfCpuMemoryUsage = "self_cpu_memory_usage",
        /// Device memory allocated, including callees
        DeviceMemoryUsage = "device_memory_usage" | "cuda_memory_usage",
        /// Device memory allocated, excluding callees
        SelfDeviceMemoryUsage = "self_device_memory_usage" | "self_cuda_memory_usage",
        /// Number of calls
        Count = "count",
        /// Order of first calls
        Order = "order",
    }
}
