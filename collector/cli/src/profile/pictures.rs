//! What of a profile is there to look at: traces and a page.

use super::super::{Result, packing};
use crate::profile::arguments::ProfilePictures;
use capture::writer::sink::Format;
use datasets::output::Output;
use engine::failure::{Failure, chain};
use profile::{Profile, export, page};
use std::path::PathBuf;

/// The files, tried before the work.
pub struct Pictures {
    traces: Vec<(Format, Output)>,
    page: Option<Output>,
    limit: u64,
}

impl Pictures {
    /// Begins those that are wanted.
    pub fn create(wanted: &ProfilePictures) -> Result<Pictures> {
        let create = |path: &PathBuf| Output::create(path).map_err(|error| Failure::usage(chain(&error)));
        let mut traces = Vec::new();
        for (format, path) in [(Format::Perfetto, &wanted.perfetto), (Format::Chrome, &wanted.chrome_trace)] {
            traces.extend(path.as_ref().map(|path| create(path).map(|file| (format, file))).transpose()?);
        }
        let page = wanted.html.as_ref().map(create).transpose()?;
        Ok(Pictures { traces, page, limit: u64::from(wanted.trace_mib) << 20 })
    }

    /// Writes them, and says what a trace was too short for.
    pub fn keep(self, profile: &Profile) -> Result<()> {
        for (format, file) in self.traces {
            let place = file.path().display().to_string();
            let written = packing::write(file, |out| Ok(export::write(profile, format, out, self.limit)?.0))?;
            if written.left_out > 0 {
                let left_out = written.left_out;
                eprintln!("note: `{place}` is as long as `--trace-mib` allows; {left_out} events are left out");
            }
        }
        if let Some(file) = self.page {
            packing::write(file, |out| out.write_all(page::page(profile).as_bytes()))?;
        }
        Ok(())
    }
}
