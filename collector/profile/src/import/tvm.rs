//! Streaming parser of the JSON report that TVM had until version 0.23.

use crate::averages::tvm::{CALLS, Metrics, TvmReport};
use capture::events::frames::{Frame, Frames};
use capture::events::{TraceContents, open};
use std::io::Read;
use std::path::Path;

/// Maximum number of calls; more indicate another format, since a report has one row per operator.
const MAX_CALLS: usize = 1_000_000;

/// Returns whether a file starts like a report: an object whose first member is one of a report's three members.
pub fn is_report(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    let Some(rest) = text.trim_start().strip_prefix('{') else { return false };
    let name = rest.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
    matches!(name, Some(CALLS | "device_metrics" | "configuration"))
}

/// Reads a report; returns `None` if the file has another format.
pub fn read_report(path: &Path) -> Result<Option<(TvmReport, TraceContents)>, capture::events::Error> {
    let (format, mut input) = open::open_trace(path)?;
    let failed = |source| capture::events::Error::Read { path: path.to_owned(), source };
    let mut head = Vec::new();
    if format != open::TraceFormat::Chrome {
        return Ok(None);
    }
    input.by_ref().take(256).read_to_end(&mut head).map_err(failed)?;
    if !is_report(&head) {
        return Ok(None);
    }
    parse_report(std::io::Cursor::new(head).chain(input)).map(Some).map_err(failed)
}

pub fn parse_report(input: impl Read) -> std::io::Result<(TvmReport, TraceContents)> {
    let mut frames = Frames::new(input, &[CALLS]);
    let (mut report, mut found) = (TvmReport::default(), TraceContents::default());
    while let Some((offset, frame)) = frames.take_next()? {
        match frame {
            Frame::Record(bytes) => match serde_json::from_slice::<Metrics>(bytes) {
                Ok(_) if report.calls.len() >= MAX_CALLS => found.skip_record(offset, "too many calls"),
                Ok(call) => {
                    found.events += 1;
                    report.calls.push(call);
                }
                Err(_) => found.skip_record(offset, "the record is not a call of TVM's report"),
            },
            Frame::Member(name, value) => {
                let read = match name {
                    b"device_metrics" => serde_json::from_slice(value).map(|metrics| report.device_metrics = metrics),
                    b"configuration" => serde_json::from_slice(value).map(|values| report.configuration = values),
                    _ => Ok(()),
                };
                if read.is_err() {
                    let name = String::from_utf8_lossy(name);
                    found.skip_record(offset, format!("the member `{name}` is not that of TVM's report"));
                }
            }
            Frame::Long(length) => found.skip_record(offset, format!("a record of more than {length} bytes")),
            Frame::Cut => {
                found.is_cut = true;
                found.skip_record(offset, "the text is not valid JSON: it is truncated or continues after its end");
            }
        }
    }
    Ok((report, found))
}
