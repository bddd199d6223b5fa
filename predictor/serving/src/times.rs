//! Times of kernels on devices: the interface, and the roofline as its simplest implementation.

use crate::device::GpuFacts;
use crate::error::Result;
use crate::kernel::Kernel;
use serde::Serialize;

/// The time of a kernel with its 90 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Seconds of one call.
    pub seconds: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Origin of the estimate.
    pub source: Source,
}

/// Origin of an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Learned from measurements of kernels.
    Learned,
    /// The bound by peak rate and bandwidth plus the launch overhead.
    Bound,
}

/// Estimates times of kernels.
pub trait KernelTimes {
    /// Returns the time of one call, or an error if the device does not multiply numbers of the kernel's type.
    fn time(&self, kernel: &Kernel, device: &GpuFacts) -> Result<Estimate>;

    /// Returns the mean power in watts while the kernel runs in a loop, where it is known.
    fn watts(&self, _kernel: &Kernel, _device: &GpuFacts) -> Option<f64> {
        None
    }
}

/// The bound by peak rate and bandwidth plus the launch overhead.
#[derive(Clone, Copy, Debug, Default)]
pub struct Roofline;

/// Seconds between the starts of two empty kernels in a replayed graph.
pub const LAUNCH_SECONDS: f64 = 2.5e-6;
/// How much slower than its bound a kernel usually is at most, for the interval of the roofline.
pub(crate) const SLOWEST: f64 = 4.0;

/// Returns the least seconds that a device needs for the work of a kernel.
pub fn bound_seconds(kernel: &Kernel, device: &GpuFacts) -> Result<f64> {
    let work = kernel.work();
    Ok((work.flops / device.peak(kernel.products())?).max(work.bytes / device.bandwidth_bytes_per_s))
}

impl KernelTimes for Roofline {
    fn time(&self, kernel: &Kernel, device: &GpuFacts) -> Result<Estimate> {
        let bound = bound_seconds(kernel, device)?;
        let seconds = bound + LAUNCH_SECONDS;
        Ok(Estimate { seconds, low: bound, high: SLOWEST * seconds, source: Source::Bound })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::find;

    #[test]
    fn the_roofline_follows_the_slower_of_products_and_memory() {
        let h100 = find("NVIDIA H100 80GB HBM3").expect("a known device");
        let time = |text: &str| {
            let kernel: Kernel = text.parse().expect("a kernel");
            Roofline.time(&kernel, h100).expect("a time").seconds - LAUNCH_SECONDS
        };
        let product = time("gemm:m=8192,n=8192,k=8192");
        assert!((product - 2.0 * 8192f64.powi(3) / 989e12).abs() < 1e-9, "{product}");
        let read = time("gemm:m=1,n=8192,k=8192");
        assert!((read - 2.0 * (8192.0 * 8192.0 + 2.0 * 8192.0) / 3.35e12).abs() < 1e-9, "{read}");
    }

    #[test]
    fn a_type_without_a_peak_is_refused() {
        let a100 = find("NVIDIA A100-SXM4-80GB").expect("a known device");
        let kernel: Kernel = "gemm:m=1,n=2,k=3,dtype=fp8".parse().expect("a kernel");
        let error = Roofline.time(&kernel, a100).expect_err("no fp8").to_string();
        assert_eq!(error, "NVIDIA A100-SXM4-80GB has no peak rate for fp8; it multiplies bf16, int8");
    }
}
