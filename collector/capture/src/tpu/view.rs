//! Writing of all outputs of a capture into a folder.

use super::loss::Losses;
use super::summary::CaptureSummary;
use super::{Error, Result, Timeline, book, output, page, reginfo, trace};
use std::io::Write;
use std::path::Path;

#[derive(Clone, Copy, Debug, Default)]
pub struct Outputs<'a> {
    pub has_summary: bool,
    pub has_trace: bool,
    /// Whether to write the workbook. The register reports are written whenever the workbook or the page is.
    pub has_book: bool,
    pub has_page: bool,
    pub host_trace: Option<&'a Path>,
    pub core_limit: Option<u32>,
}

/// Checks, before anything is written, that the folder can hold the outputs and that the host trace can be opened.
pub fn check_paths(folder: &Path, outputs: &Outputs<'_>) -> Result<()> {
    if let Some(file) = folder.ancestors().find(|path| path.exists()).filter(|path| !path.is_dir()) {
        return Err(Error::NoFolder { folder: folder.to_owned(), file: file.to_owned() });
    }
    outputs.host_trace.map_or(Ok(()), trace::host::check_host_trace)
}

/// Writes the outputs and returns their names. Skipped parts of the host trace are recorded as losses of the timeline.
pub fn write_outputs(
    timeline: &mut Timeline,
    summary: Option<&CaptureSummary>,
    folder: &Path,
    outputs: &Outputs<'_>,
) -> Result<Vec<String>> {
    check_paths(folder, outputs)?;
    // The host trace is read first: if that fails, nothing is written.
    let tail = (timeline.tail_ns, timeline.tail_offset_ns);
    let losses: &mut Losses = &mut timeline.losses;
    let host = outputs.host_trace.filter(|_| outputs.has_trace);
    let host = host.map(|path| trace::host::read_host_trace(path, tail, losses)).transpose()?;
    let mut written = Vec::new();
    if let (true, Some(summary)) = (outputs.has_summary, summary) {
        output::write_file(&folder.join("summary.txt"), |file| file.write_all(summary.vendor_text().as_bytes()))?;
        written.push("summary.txt".to_owned());
    }
    if outputs.has_trace {
        trace::write_trace(timeline, host.as_ref(), &folder.join("perfetto.pftrace"))?;
        written.push("perfetto.pftrace".to_owned());
    }
    if outputs.has_book || outputs.has_page {
        let count = reginfo::write_reports(timeline, folder)?;
        written.push(format!("{count} register reports (*RegInfo_*.txt)"));
    }
    if outputs.has_book {
        book::write_book(timeline, folder, outputs.core_limit)?;
        written.extend([book::BOOK, book::TABLE].map(|name| format!("{}/{name}", book::FOLDER)));
    }
    if outputs.has_page {
        page::write_page(timeline, summary, folder)?;
        written.push(format!("{}/{}", page::FOLDER, page::FILE));
    }
    Ok(written)
}
