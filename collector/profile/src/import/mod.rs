//! Import of traces from torch.profiler, DeepLink, ONNX Runtime and other programs that write slices.
//! Slices become spans, nested by time on their track as in torch.profiler. Device work belongs to the operator that
//! launched it, if the trace identifies it. Missing information is not invented: without shapes in the trace, operators
//! have no shapes.

pub mod gather;
pub mod nest;
pub mod rows;
pub mod shapes;
pub mod tvm;

use crate::data::Profile;
use capture::events::{self, TraceContents, open};
use gather::Gather;
use std::io::Read;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportBounds {
    /// Maximum number of spans; each takes about [`SPAN_BYTES`].
    pub spans: usize,
}

/// Peak memory per span in bytes, during import and while tables are computed.
pub const SPAN_BYTES: usize = 200;

impl ImportBounds {
    pub fn of_memory(mib: u32) -> ImportBounds {
        let spans = (mib as usize) * ((1 << 20) / SPAN_BYTES);
        // Spans refer to each other by 32-bit indices.
        ImportBounds { spans: spans.min(u32::MAX as usize / 2) }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    pub profile: Profile,
    pub found: TraceContents,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Trace(#[from] events::Error),
    #[error("`{path}` has {events} events, but none with a start and an end{why}")]
    Empty {
        path: String,
        events: u64,
        /// Description of the first unreadable record.
        why: String,
    },
}

pub fn read_profile(path: &Path, bounds: &ImportBounds) -> Result<Imported, Error> {
    let (format, input) = open::open_trace(path)?;
    read_from(path, format, input, bounds)
}

pub fn read_from(
    path: &Path,
    format: open::TraceFormat,
    input: Box<dyn Read>,
    bounds: &ImportBounds,
) -> Result<Imported, Error> {
    let mut gather = Gather::new(*bounds);
    let found = open::read_from(path, format, input, &mut |event| gather.add_event(&event))?;
    let model = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (events, example) = (found.events, found.examples.first());
    let why = example.map(|example| format!("; {example}")).unwrap_or_default();
    let profile = gather.build_profile(model, &found);
    if profile.spans.is_empty() {
        return Err(Error::Empty { path: path.display().to_string(), events, why });
    }
    debug_assert_eq!(profile.check(), Ok(()));
    Ok(Imported { profile, found })
}
