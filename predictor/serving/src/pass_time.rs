//! Times of whole forward passes.

use crate::device::GpuFacts;
use crate::error::Result;
use crate::plan::{CallWork, KernelCall};
use crate::times::{Estimate, KernelTimes, LAUNCH_SECONDS, SLOWEST, Source};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PassTime {
    pub seconds: f64,
    /// Lower end of the 90 % interval, under the assumption that errors of the calls are fully correlated.
    pub low: f64,
    pub high: f64,
    pub calls: Vec<CallTime>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallTime {
    #[serde(flatten)]
    pub call: KernelCall,
    pub seconds: f64,
    pub low: f64,
    pub high: f64,
    pub source: Source,
}

impl PassTime {
    /// Adds up the times of all calls. Kernels were measured with their weights in the shared cache; if the operands of
    /// the pass do not fit there, each call reads its own from memory.
    pub fn from_calls(calls: Vec<KernelCall>, device: &GpuFacts, times: &dyn KernelTimes) -> Result<PassTime> {
        let all_bytes: f64 = calls.iter().map(|call| call.count as f64 * kernel_bytes(&call.work)).sum();
        let timed = |call: KernelCall| {
            let Estimate { seconds, low, high, source } = estimate_call(&call.work, device, times)?;
            let count = call.count as f64;
            let is_cached = all_bytes <= device.l2_bytes;
            let least = if is_cached { 0.0 } else { kernel_bytes(&call.work) / device.bandwidth_bytes_per_s };
            let [seconds, low, high] = [seconds, low, high].map(|time| count * time.max(least));
            Ok(CallTime { call, seconds, low, high, source })
        };
        let calls = calls.into_iter().map(timed).collect::<Result<Vec<_>>>()?;
        let sum = |part: fn(&CallTime) -> f64| calls.iter().map(part).sum();
        Ok(PassTime {
            seconds: sum(|call| call.seconds),
            low: sum(|call| call.low),
            high: sum(|call| call.high),
            calls,
        })
    }

    pub fn share_of(&self, is_of_kind: impl Fn(&KernelCall) -> bool) -> f64 {
        let seconds: f64 = self.calls.iter().filter(|call| is_of_kind(&call.call)).map(|call| call.seconds).sum();
        seconds / self.seconds
    }
}

fn kernel_bytes(work: &CallWork) -> f64 {
    match work {
        CallWork::Kernel(kernel) => kernel.kernel_work().bytes,
        CallWork::Bounded { .. } | CallWork::Collective(_) => 0.0,
    }
}

fn estimate_call(work: &CallWork, device: &GpuFacts, times: &dyn KernelTimes) -> Result<Estimate> {
    match work {
        CallWork::Kernel(kernel) => times.kernel_time(kernel, device),
        CallWork::Bounded { flops, dtype, bytes } => {
            let bound = (flops / device.peak_flops(*dtype)?).max(bytes / device.bandwidth_bytes_per_s);
            Ok(bounded_estimate(bound, bound + LAUNCH_SECONDS))
        }
        CallWork::Collective(collective) => {
            let bound = collective.bound_seconds(device);
            Ok(bounded_estimate(bound, bound))
        }
    }
}

fn bounded_estimate(low: f64, seconds: f64) -> Estimate {
    Estimate { seconds, low, high: SLOWEST * seconds, source: Source::Bound }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::Architecture;
    use crate::device::find_device;
    use crate::kernel::Kernel;
    use crate::plan::{Formats, ForwardPass, Parallelism, plan_pass};
    use crate::scheme::{Dtype, Scheme};
    use crate::times::Roofline;

    /// Times of kernels that find everything in the cache.
    struct Instant;

    impl KernelTimes for Instant {
        fn kernel_time(&self, _: &Kernel, _: &GpuFacts) -> Result<Estimate> {
            Ok(Estimate { seconds: 1e-9, low: 1e-9, high: 1e-9, source: Source::Learned })
        }
    }

    #[test]
    fn a_pass_is_not_faster_than_memory() {
        let device = find_device("l4").expect("a known device");
        let formats = Formats { weights: Scheme::Bf16, cache: Dtype::Bf16 };
        let model = Architecture::load_architecture("llama-3.1-8b").expect("a shipped model");
        let step = ForwardPass::Decode { sequences: 1, context: 128 };
        let calls = plan_pass(&model, step, formats, Parallelism::SINGLE).expect("a plan");
        let time = PassTime::from_calls(calls, device, &Instant).expect("a time");
        // All weights without the embeddings, which are looked up.
        let least = 2.0 * 7.5e9 / device.bandwidth_bytes_per_s;
        assert!(time.seconds > least && time.low > least, "{} {least}", time.seconds);
    }

    #[test]
    fn a_decoding_step_reads_all_weights_once() {
        let model = Architecture::load_architecture("llama-3.1-70b").expect("a shipped model");
        let device = find_device("h100_sxm").expect("a known device");
        let formats = Formats { weights: Scheme::Fp8, cache: Dtype::Fp8 };
        let four = Parallelism { tensor: 4, ..Parallelism::SINGLE };
        let time = |sequences, context| {
            let calls = plan_pass(&model, ForwardPass::Decode { sequences, context }, formats, four).expect("a plan");
            PassTime::from_calls(calls, device, &Roofline).expect("a time")
        };
        let one = time(1, 1024);
        let least = 70e9 / 4.0 / device.bandwidth_bytes_per_s;
        assert!(one.seconds > least && one.seconds < 2.0 * least, "{} {least}", one.seconds);
        assert!(one.low <= one.seconds && one.seconds <= one.high);
        let many = time(32, 4096);
        assert!(many.seconds > one.seconds && many.share_of(|call| matches!(call.work, CallWork::Collective(_))) > 0.0);
        let parts: f64 = many.calls.iter().map(|call| call.seconds).sum();
        assert!((parts - many.seconds).abs() < 1e-12);
    }
}
