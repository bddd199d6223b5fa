//! Times of whole passes.

use crate::device::GpuFacts;
use crate::error::Result;
use crate::plan::{CallWork, KernelCall};
use crate::times::{Estimate, KernelTimes, LAUNCH_SECONDS, SLOWEST, Source};
use serde::Serialize;

/// The time of a pass with the calls behind it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PassTime {
    /// Seconds of all calls, one after the other.
    pub seconds: f64,
    /// Lower end of the 90 % interval, as if the errors of all calls had one cause.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The calls in order.
    pub calls: Vec<CallTime>,
}

/// The time of all calls of a kernel in a pass.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallTime {
    /// The calls.
    #[serde(flatten)]
    pub call: KernelCall,
    /// Seconds of all calls together.
    pub seconds: f64,
    /// Lower end of the 90 % interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Origin of the estimate.
    pub source: Source,
}

impl PassTime {
    /// Estimates the calls of a pass on a device.
    pub fn estimate(calls: Vec<KernelCall>, device: &GpuFacts, times: &dyn KernelTimes) -> Result<PassTime> {
        let timed = |call: KernelCall| {
            let Estimate { seconds, low, high, source } = estimate(&call.work, device, times)?;
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

    /// Returns the share of the time that calls of a kind take.
    pub fn share(&self, is_of_kind: impl Fn(&KernelCall) -> bool) -> f64 {
        let seconds: f64 = self.calls.iter().filter(|call| is_of_kind(&call.call)).map(|call| call.seconds).sum();
        seconds / self.seconds
    }
}

fn estimate(work: &CallWork, device: &GpuFacts, times: &dyn KernelTimes) -> Result<Estimate> {
    match work {
        CallWork::Kernel(kernel) => times.time(kernel, device),
        CallWork::Bounded { flops, dtype, bytes } => {
            let bound = (flops / device.peak(*dtype)?).max(bytes / device.bandwidth_bytes_per_s);
            Ok(bounded(bound, bound + LAUNCH_SECONDS))
        }
        CallWork::Collective(collective) => {
            let bound = collective.bound_seconds(device);
            Ok(bounded(bound, bound))
        }
    }
}

fn bounded(low: f64, seconds: f64) -> Estimate {
    Estimate { seconds, low, high: SLOWEST * seconds, source: Source::Bound }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::Architecture;
    use crate::device::find;
    use crate::plan::{Formats, ForwardPass, Parallelism, plan};
    use crate::scheme::{Dtype, Scheme};
    use crate::times::Roofline;

    #[test]
    fn a_decoding_step_reads_all_weights_once() {
        let model = Architecture::load("llama-3.1-70b").expect("a shipped model");
        let device = find("h100_sxm").expect("a known device");
        let formats = Formats { weights: Scheme::Fp8, cache: Dtype::Fp8 };
        let four = Parallelism { tensor: 4, ..Parallelism::SINGLE };
        let time = |sequences, context| {
            let calls = plan(&model, ForwardPass::Decode { sequences, context }, formats, four).expect("a plan");
            PassTime::estimate(calls, device, &Roofline).expect("a time")
        };
        let one = time(1, 1024);
        let least = 70e9 / 4.0 / device.bandwidth_bytes_per_s;
        assert!(one.seconds > least && one.seconds < 2.0 * least, "{} {least}", one.seconds);
        assert!(one.low <= one.seconds && one.seconds <= one.high);
        let many = time(32, 4096);
        assert!(many.seconds > one.seconds && many.share(|call| matches!(call.work, CallWork::Collective(_))) > 0.0);
        let parts: f64 = many.calls.iter().map(|call| call.seconds).sum();
        assert!((parts - many.seconds).abs() < 1e-12);
    }
}
