//! Launches kernels on several streams of a device, which run concurrently. The first is the default stream, whose work
//! is ordered after all earlier requests; other streams wait only for events.

use super::{Device, DeviceEvent, DriverHandle, Graph, Prepared, Result};
use std::ffi::c_uint;
use std::ptr::null_mut;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Launches a kernel after all earlier requests of the stream.
    Launch { kernel: usize, stream: usize },
    /// Records an event after all earlier requests of the stream.
    Mark { event: usize, stream: usize },
    /// Blocks later requests of the stream until the latest recording of an event is reached.
    Wait { event: usize, stream: usize },
}

pub struct Lanes<'a> {
    device: &'a Device,
    kernels: &'a [Prepared<'a>],
    streams: Vec<LaneStream<'a>>,
    events: Vec<DeviceEvent<'a>>,
}

impl<'a> Lanes<'a> {
    /// Creates `streams` streams, at least one, and `events` events.
    pub fn new(device: &'a Device, kernels: &'a [Prepared<'a>], streams: usize, events: usize) -> Result<Lanes<'a>> {
        Ok(Lanes {
            device,
            kernels,
            streams: (1..streams).map(|_| LaneStream::new(device)).collect::<Result<_>>()?,
            events: (0..events).map(|_| device.create_event()).collect::<Result<_>>()?,
        })
    }

    pub fn submit_steps(&self, steps: &[Step]) -> Result<()> {
        self.request_steps(steps, null_mut())
    }

    pub fn capture_graph(&self, steps: &[Step]) -> Result<Graph<'a>> {
        self.device.capture_requests(|first| self.request_steps(steps, first))
    }

    pub fn event_at(&self, event: usize) -> &DeviceEvent<'a> {
        &self.events[event]
    }

    fn request_steps(&self, steps: &[Step], first: DriverHandle) -> Result<()> {
        let handle = |stream: usize| if stream == 0 { first } else { self.streams[stream - 1].handle };
        steps.iter().try_for_each(|step| match *step {
            Step::Launch { kernel, stream } => self.kernels[kernel].launch_on(handle(stream)),
            Step::Mark { event, stream } => self.events[event].record_on(handle(stream)),
            Step::Wait { event, stream } => self.events[event].block_stream(handle(stream)),
        })
    }
}

/// A stream that is not implicitly ordered with the default stream.
struct LaneStream<'a> {
    device: &'a Device,
    handle: DriverHandle,
}

impl LaneStream<'_> {
    fn new(device: &Device) -> Result<LaneStream<'_>> {
        const NON_BLOCKING: c_uint = 1;
        let mut handle = null_mut();
        // SAFETY: the call writes one handle to a variable that outlives it; `LaneStream` destroys the
        // handle.
        let status = unsafe { (device.functions.make_stream)(&raw mut handle, NON_BLOCKING) };
        device.check_status("cuStreamCreate", status)?;
        Ok(LaneStream { device, handle })
    }
}

impl Drop for LaneStream<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from `new` and is destroyed once; the driver keeps the stream
        // until its work is done.
        unsafe { (self.device.functions.destroy_stream)(self.handle) };
    }
}
