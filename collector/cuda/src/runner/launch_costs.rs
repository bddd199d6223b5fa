//! Measures the launch costs of a GPU, and times runs without these costs by CUDA graphs.

use crate::Image;
use crate::driver::{Device, DeviceEvent, DriverError, Prepared};
use job::device::{Count, Launch};
use measure::statistics::median_of_sorted;
use std::ffi::CStr;
use std::time::Instant;
use worker::RunnerProcess;

#[derive(Clone, Copy, Debug)]
pub(super) struct LaunchCosts {
    /// Time in nanoseconds on the device from the start of one kernel to that of the next.
    pub(super) launch_ns: f64,
    pub(super) host_ns: f64,
    /// Time in nanoseconds on the device from one kernel to the next within a graph.
    pub(super) graph_ns: f64,
}

const SAMPLES: usize = 8;

/// Returns the median device time of `work`, after one warm-up.
pub(super) fn median_ns(
    [start, end]: [&DeviceEvent<'_>; 2],
    mut work: impl FnMut() -> Result<(), DriverError>,
) -> Result<f64, DriverError> {
    let mut samples = Vec::with_capacity(SAMPLES);
    for sample in 0..=SAMPLES {
        start.record_default()?;
        work()?;
        end.record_default()?;
        end.wait_until_reached()?;
        if sample > 0 {
            samples.push(end.since_ns(start)? as f64);
        }
    }
    samples.sort_by(f64::total_cmp);
    Ok(median_of_sorted(&samples))
}

pub(super) fn graph_ns(
    device: &Device,
    marks: [&DeviceEvent<'_>; 2],
    kernels: &[Prepared<'_>],
) -> Result<f64, DriverError> {
    const LAUNCHES: usize = 256;
    let runs = (LAUNCHES / kernels.len().max(1)).max(1);
    let all: Vec<&Prepared<'_>> = (0..runs).flat_map(|_| kernels).collect();
    let graph = device.capture_launches(&all)?;
    Ok(median_ns(marks, || graph.submit_graph())? / runs as f64)
}

pub(super) fn launch_costs(device: &Device, process: RunnerProcess) -> Result<LaunchCosts, DriverError> {
    const LAUNCHES: usize = 256;
    // PTX, which the driver compiles for any device.
    const NOTHING: &CStr = c".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\n  ret;\n}\n";
    let module = device.load_image(process, Image::from_ptx(NOTHING))?;
    let launch = Launch {
        kernel: "nothing".to_owned(),
        arguments: Vec::new(),
        grid: [const { Count::Known(1) }; 3],
        block: [1; 3],
        dynamic_shared_bytes: 0,
    };
    let kernels = [module.prepare_launch(&launch, &[])?];
    let (start, end) = (device.create_event()?, device.create_event()?);
    let mut host_ns = f64::INFINITY;
    let launches_ns = median_ns([&start, &end], || {
        let begin = Instant::now();
        (0..LAUNCHES).try_for_each(|_| kernels[0].submit_kernel())?;
        host_ns = host_ns.min(begin.elapsed().as_nanos() as f64);
        Ok(())
    })?;
    let graph_ns = graph_ns(device, [&start, &end], &kernels)?;
    Ok(LaunchCosts { launch_ns: launches_ns / LAUNCHES as f64, host_ns: host_ns / LAUNCHES as f64, graph_ns })
}
