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
    pub fn from_calls(calls: Vec<KernelCall>, device: &GpuFacts, times: &dyn KernelTimes) -> Result<PassTime> {
        let timed = |call: KernelCall| {
            let Estimate { seconds, low, high, source } = estimate_call(&call.work, device, times)?;
            let count = call.count as f64;
            Ok(CallTime { call, seconds: count * seconds, low: count * low, high: count * high, source })
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
    use crate::plan::{Formats, ForwardPass, Parallelism, plan_pass};
    use crate::scheme::{Dtype, Scheme};
    use crate::times::Roofline;

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
