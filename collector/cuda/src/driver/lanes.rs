//! Kernels on several streams of a device: what is on different streams runs side by side, but for the marks that one waits for.
//!
//! The first stream is the one that everything else here runs on, so that what was asked for before happens before, where the
//! others wait for a mark of it. The others wait for nothing that they are not told to.

use super::{Device, Event, Graph, Handle, Prepared, Result};
use std::ffi::c_uint;
use std::ptr::null_mut;

/// What a device is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// To run a kernel behind all that this stream was asked for.
    Launch {
        /// Its place in the list.
        kernel: usize,
        /// The stream.
        stream: usize,
    },
    /// To put a mark behind all that this stream was asked for.
    Mark {
        /// The place of the mark's event.
        event: usize,
        /// The stream.
        stream: usize,
    },
    /// To begin with nothing more on this stream before a mark, as it was put last, has been passed.
    Wait {
        /// The place of the mark's event.
        event: usize,
        /// The stream.
        stream: usize,
    },
}

/// Kernels, with streams and events to run them on.
pub struct Lanes<'a> {
    device: &'a Device,
    kernels: &'a [Prepared<'a>],
    /// All streams but the first.
    streams: Vec<Stream<'a>>,
    events: Vec<Event<'a>>,
}

impl<'a> Lanes<'a> {
    /// So many streams, at least one, and so many events.
    pub fn new(device: &'a Device, kernels: &'a [Prepared<'a>], streams: usize, events: usize) -> Result<Lanes<'a>> {
        Ok(Lanes {
            device,
            kernels,
            streams: (1..streams).map(|_| Stream::new(device)).collect::<Result<_>>()?,
            events: (0..events).map(|_| device.event()).collect::<Result<_>>()?,
        })
    }

    /// Asks the device for these steps; does not wait.
    pub fn launch(&self, steps: &[Step]) -> Result<()> {
        self.ask(steps, null_mut())
    }

    /// The same steps as one graph.
    pub fn graph(&self, steps: &[Step]) -> Result<Graph<'a>> {
        self.device.capture(|first| self.ask(steps, first))
    }

    /// An event, as it was put last.
    pub fn event(&self, event: usize) -> &Event<'a> {
        &self.events[event]
    }

    fn ask(&self, steps: &[Step], first: Handle) -> Result<()> {
        let handle = |stream: usize| if stream == 0 { first } else { self.streams[stream - 1].handle };
        steps.iter().try_for_each(|step| match *step {
            Step::Launch { kernel, stream } => self.kernels[kernel].launch_on(handle(stream)),
            Step::Mark { event, stream } => self.events[event].record_on(handle(stream)),
            Step::Wait { event, stream } => self.events[event].hold(handle(stream)),
        })
    }
}

/// A stream that waits for no other by itself.
struct Stream<'a> {
    device: &'a Device,
    handle: Handle,
}

impl Stream<'_> {
    fn new(device: &Device) -> Result<Stream<'_>> {
        const NON_BLOCKING: c_uint = 1;
        let mut handle = null_mut();
        // SAFETY: writes one handle to a place that outlives the call; `Stream` destroys it.
        let status = unsafe { (device.functions.make_stream)(&raw mut handle, NON_BLOCKING) };
        device.check("cuStreamCreate", status)?;
        Ok(Stream { device, handle })
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from `new` and is destroyed once; the driver keeps it until its work is done.
        unsafe { (self.device.functions.destroy_stream)(self.handle) };
    }
}
