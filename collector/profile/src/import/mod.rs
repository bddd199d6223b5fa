//! Profiles out of traces that other programs wrote: torch.profiler and DeepLink, ONNX Runtime, and whatever else writes slices.
//!
//! Slices become spans, nested by time on their track as torch.profiler nests them; what a device did belongs to the operator
//! that asked for it, where the trace says which. Nothing is invented: a trace without shapes gives operators without shapes.

pub mod gather;
pub mod nest;
pub mod rows;
pub mod shapes;
pub mod tvm;

use crate::data::Profile;
use capture::events::{self, Found, open};
use gather::Gather;
use std::io::Read;
use std::path::Path;

/// How much an imported trace may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Spans, of which each takes about [`SPAN_BYTES`].
    pub spans: usize,
}

/// What a span takes while it is read and put in order, and in tables.
pub const SPAN_BYTES: usize = 200;

impl Bounds {
    /// Those of so much memory.
    pub fn of_memory(mib: u32) -> Bounds {
        let spans = (mib as usize) * ((1 << 20) / SPAN_BYTES);
        // Spans refer to each other by 32 bits.
        Bounds { spans: spans.min(u32::MAX as usize / 2) }
    }
}

/// A profile that was read, and what else there was.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The profile.
    pub profile: Profile,
    /// What the reader counted.
    pub found: Found,
}

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read as a trace.
    #[error(transparent)]
    Trace(#[from] events::Error),
    /// The trace has nothing that lasts.
    #[error("`{path}` has {events} events and none that begins and ends{why}")]
    Empty {
        /// The file.
        path: String,
        /// How many events it has.
        events: u64,
        /// What was wrong with the first record that could not be read.
        why: String,
    },
}

/// Reads a profile out of a trace.
pub fn read(path: &Path, bounds: &Bounds) -> Result<Imported, Error> {
    let (format, input) = open::open(path)?;
    read_from(path, format, input, bounds)
}

/// The same from an open file.
pub fn read_from(path: &Path, format: open::Format, input: Box<dyn Read>, bounds: &Bounds) -> Result<Imported, Error> {
    let mut gather = Gather::new(*bounds);
    let found = open::read_from(path, format, input, &mut |event| gather.take(&event))?;
    let model = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (events, example) = (found.events, found.examples.first());
    let why = example.map(|example| format!("; {example}")).unwrap_or_default();
    let profile = gather.finish(model, &found);
    if profile.spans.is_empty() {
        return Err(Error::Empty { path: path.display().to_string(), events, why });
    }
    debug_assert_eq!(profile.check(), Ok(()));
    Ok(Imported { profile, found })
}
