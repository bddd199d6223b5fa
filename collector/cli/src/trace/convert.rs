//! `trace convert` and `trace merge`: traces in another format, and several in one.

use super::super::{DONE, DONE_WITH_LOSSES, Result, packing, print, print_json};
use super::arguments::{Alignment, Convert, Merge, WriteBounds};
use super::{tell_skipped, unread};
use capture::events::convert::{self, Align, Part};
use capture::events::held::{self, Trace};
use capture::writer::sink::{Format, Written};
use datasets::output::Output;
use engine::failure::Failure;
use serde_json::json;
use std::path::Path;

/// Writes a trace in another format.
pub fn run(convert: &Convert) -> Result<u8> {
    let (place, format) = (&convert.output, format(&convert.output)?);
    let output = Output::create(place).map_err(Failure::environment)?;
    let trace = held::read(&convert.input, convert.bounds.memory_mib).map_err(unread)?;
    let code = tell_skipped(&trace.found);
    let parts = [Part { name: String::new(), trace, offset_ns: 0 }];
    let written = write(&parts, format, output, &convert.bounds)?;
    tell(&written, place, convert.json, &[])?;
    Ok(code.max(losses(&written)))
}

/// Puts several into one.
pub fn merge(merge: &Merge) -> Result<u8> {
    let (place, inputs) = merge.files.split_last().expect("there are three at least");
    let format = format(place)?;
    if !merge.offset_ns.is_empty() && merge.offset_ns.len() != inputs.len() {
        let (given, wanted) = (merge.offset_ns.len(), inputs.len());
        return Err(Failure::usage(format!("`--offset-ns` has {given} numbers for {wanted} traces"))
            .with_hint("give one for each, such as `--offset-ns 0,-1250000`"));
    }
    let output = Output::create(place).map_err(Failure::environment)?;
    let (mut traces, mut code) = (Vec::new(), DONE);
    for input in inputs {
        let trace = held::read(input, merge.bounds.memory_mib).map_err(unread)?;
        code = code.max(tell_skipped(&trace.found));
        traces.push(trace);
    }
    let offsets = offsets(merge, &traces)?;
    let part = |((trace, offset_ns), path): ((Trace, i64), &std::path::PathBuf)| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Part { name, trace, offset_ns }
    };
    let parts: Vec<Part> = traces.into_iter().zip(offsets).zip(inputs).map(part).collect();
    let written = write(&parts, format, output, &merge.bounds)?;
    tell(&written, place, merge.json, &parts)?;
    Ok(code.max(losses(&written)))
}

fn offsets(merge: &Merge, traces: &[Trace]) -> Result<Vec<i64>> {
    if !merge.offset_ns.is_empty() {
        return Ok(merge.offset_ns.clone());
    }
    let align = match merge.align {
        Alignment::Clock => Align::Clock,
        Alignment::Start => Align::Start,
        Alignment::Keep => Align::Keep,
    };
    convert::offsets(&traces.iter().collect::<Vec<_>>(), align).ok_or_else(|| {
        Failure::usage("not every trace says what time of day its zero is (`baseTimeNanoseconds`)")
            .with_hint("use `--align start`, `--align keep`, or `--offset-ns`")
    })
}

/// What the name of a file says.
fn format(path: &Path) -> Result<Format> {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("json") => Ok(Format::Chrome),
        Some("pftrace" | "perfetto-trace" | "pb") => Ok(Format::Perfetto),
        _ => Err(Failure::usage(format!("`{}` does not say which format to write", path.display()))
            .with_hint("end it in `.json` for Chrome's, or `.pftrace` for Perfetto's, and `.gz` to pack it")),
    }
}

fn write(parts: &[Part], format: Format, output: Output, bounds: &WriteBounds) -> Result<Written> {
    let limit = u64::from(bounds.max_mib) << 20;
    packing::write(output, |out| Ok(convert::write(parts, format, out, limit)?.0))
}

fn tell(written: &Written, place: &Path, json: bool, parts: &[Part]) -> Result<()> {
    let Written { events, left_out, bytes } = written;
    if json {
        let inputs: Vec<_> =
            parts.iter().map(|part| json!({ "file": part.name, "offset_ns": part.offset_ns })).collect();
        return print_json(&json!({ "events": events, "left_out": left_out, "bytes": bytes, "inputs": inputs }));
    }
    for Part { name, offset_ns, .. } in parts {
        print(&format!("`{name}`: {offset_ns} ns were added to its times"))?;
    }
    print(&format!("wrote {events} events, {bytes} bytes before packing, into `{}`", place.display()))
}

fn losses(written: &Written) -> u8 {
    if written.left_out == 0 {
        return DONE;
    }
    eprintln!("{} events were left out: the file is as long as `--max-mib` allows", written.left_out);
    DONE_WITH_LOSSES
}
