//! What a launch costs on a GPU, and how runs are timed without that.

use crate::Image;
use crate::driver::{Device, DriverError, Event, Prepared};
use job::device::{Count, Launch};
use measure::statistics::median;
use std::ffi::CStr;
use std::time::Instant;
use worker::RunnerProcess;

/// What it takes to launch a kernel that does nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaunchCosts {
    /// Time of the device from one to the next.
    pub(super) launch_ns: f64,
    /// Time of the host to ask for one.
    pub(super) host_ns: f64,
    /// Time of the device from one to the next in a graph.
    pub(super) graph_ns: f64,
}

/// Samples of what is measured beside the timed runs.
const SAMPLES: usize = 8;

/// The median over samples of the device's time of `work`, after one that does not count.
pub(super) fn median_ns(
    [start, end]: [&Event<'_>; 2],
    mut work: impl FnMut() -> Result<(), DriverError>,
) -> Result<f64, DriverError> {
    let mut samples = Vec::with_capacity(SAMPLES);
    for sample in 0..=SAMPLES {
        start.record()?;
        work()?;
        end.record()?;
        end.wait()?;
        if sample > 0 {
            samples.push(end.since_ns(start)? as f64);
        }
    }
    samples.sort_by(f64::total_cmp);
    Ok(median(&samples))
}

/// Time of one run where the device is asked for many at once by a graph.
pub(super) fn graph_ns(device: &Device, marks: [&Event<'_>; 2], kernels: &[Prepared<'_>]) -> Result<f64, DriverError> {
    const LAUNCHES: usize = 256;
    let runs = (LAUNCHES / kernels.len().max(1)).max(1);
    let all: Vec<&Prepared<'_>> = (0..runs).flat_map(|_| kernels).collect();
    let graph = device.graph(&all)?;
    Ok(median_ns(marks, || graph.launch())? / runs as f64)
}

/// Measures it.
pub(super) fn launch_costs(device: &Device, process: RunnerProcess) -> Result<LaunchCosts, DriverError> {
    const LAUNCHES: usize = 256;
    // The driver itself compiles this for any device.
    const NOTHING: &CStr = c".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\n  ret;\n}\n";
    let module = device.load(process, Image::text(NOTHING))?;
    let launch = Launch {
        kernel: "nothing".to_owned(),
        arguments: Vec::new(),
        grid: [const { Count::Known(1) }; 3],
        block: [1; 3],
        dynamic_shared_bytes: 0,
    };
    let kernels = [module.prepare(&launch, &[])?];
    let (start, end) = (device.event()?, device.event()?);
    let mut host_ns = f64::INFINITY;
    let in_turn = median_ns([&start, &end], || {
        let begin = Instant::now();
        (0..LAUNCHES).try_for_each(|_| kernels[0].launch())?;
        host_ns = host_ns.min(begin.elapsed().as_nanos() as f64);
        Ok(())
    })?;
    let graph_ns = graph_ns(device, [&start, &end], &kernels)?;
    Ok(LaunchCosts { launch_ns: in_turn / LAUNCHES as f64, host_ns: host_ns / LAUNCHES as f64, graph_ns })
}
