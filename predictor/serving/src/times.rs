//! Times of kernels on devices: the trait, and the roofline as its simplest implementation.

use crate::device::GpuFacts;
use crate::error::Result;
use crate::kernel::Kernel;
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    pub seconds: f64,
    pub low: f64,
    pub high: f64,
    pub source: Source,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Learned,
    /// Roofline bound plus launch overhead.
    Bound,
}

pub trait KernelTimes {
    /// Returns the time of one call; an error if the device does not support the kernel's type.
    fn kernel_time(&self, kernel: &Kernel, device: &GpuFacts) -> Result<Estimate>;

    /// Returns the mean power in watts of a kernel that runs in a loop, if known.
    fn kernel_watts(&self, _kernel: &Kernel, _device: &GpuFacts) -> Option<f64> {
        None
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Roofline;

/// Seconds from the start of an empty kernel to the start of the next one, in a replayed CUDA graph.
pub const LAUNCH_SECONDS: f64 = 2.5e-6;
/// Usual upper limit of the ratio of time to roofline bound, for the interval of roofline predictions.
pub(crate) const SLOWEST: f64 = 4.0;

pub fn bound_seconds(kernel: &Kernel, device: &GpuFacts) -> Result<f64> {
    let work = kernel.kernel_work();
    Ok((work.flops / device.peak_flops(kernel.product_dtype())?).max(work.bytes / device.bandwidth_bytes_per_s))
}

impl KernelTimes for Roofline {
    fn kernel_time(&self, kernel: &Kernel, device: &GpuFacts) -> Result<Estimate> {
        let bound = bound_seconds(kernel, device)?;
        let seconds = bound + LAUNCH_SECONDS;
        Ok(Estimate { seconds, low: bound, high: SLOWEST * seconds, source: Source::Bound })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::find_device;

    #[test]
    fn the_roofline_follows_the_slower_of_products_and_memory() {
        let h100 = find_device("NVIDIA H100 80GB HBM3").expect("a known device");
        let time = |text: &str| {
            let kernel: Kernel = text.parse().expect("a kernel");
            Roofline.kernel_time(&kernel, h100).expect("a time").seconds - LAUNCH_SECONDS
        };
        let product = time("gemm:m=8192,n=8192,k=8192");
        assert!((product - 2.0 * 8192f64.powi(3) / 989e12).abs() < 1e-9, "{product}");
        let read = time("gemm:m=1,n=8192,k=8192");
        assert!((read - 2.0 * (8192.0 * 8192.0 + 2.0 * 8192.0) / 3.35e12).abs() < 1e-9, "{read}");
    }

    #[test]
    fn a_type_without_a_peak_is_refused() {
        let a100 = find_device("NVIDIA A100-SXM4-80GB").expect("a known device");
        let kernel: Kernel = "gemm:m=1,n=2,k=3,dtype=fp8".parse().expect("a kernel");
        let error = Roofline.kernel_time(&kernel, a100).expect_err("no fp8").to_string();
        assert_eq!(error, "NVIDIA A100-SXM4-80GB does not support fp8 products; supported: bf16, int8");
    }
}
