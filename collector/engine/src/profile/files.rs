//! Writes the files of a profile.

use crate::Result;
use crate::failure::{Failure, format_chain};
use crate::observer::Observer;
use crate::packing;
use crate::report::styled::StyledTable;
use capture::writer::sink::Format;
use datasets::output::{Output, check_distinct};
use profile::summary::{GroupBy, Row, csv};
use profile::{Profile, export, page};
use std::io::Write;
use std::path::Path;

/// Default limit on the size of a trace before compression, in MiB.
pub const DEFAULT_TRACE_MIB: u32 = 1024;

/// Paths of the files to write; files without a path are not written.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileOptions<'a> {
    /// The whole profile as JSON.
    pub profile: Option<&'a Path>,
    /// The rows of the table as CSV.
    pub csv: Option<&'a Path>,
    /// A trace in Perfetto's format; compressed if the name ends in `.gz`.
    pub perfetto: Option<&'a Path>,
    /// A trace in the format of torch.profiler; compressed if the name ends in `.gz`.
    pub chrome_trace: Option<&'a Path>,
    /// An HTML page of the profile.
    pub page: Option<&'a Path>,
    /// Largest size of a trace before compression, in MiB.
    pub trace_mib: u32,
}

impl FileOptions<'_> {
    /// Fails if two outputs are the same file.
    pub fn check_distinct(&self) -> Result<()> {
        let outputs = [
            ("--out", self.profile),
            ("--csv", self.csv),
            ("--perfetto", self.perfetto),
            ("--chrome-trace", self.chrome_trace),
            ("--html", self.page),
        ];
        check_distinct(&outputs).map_err(|error| Failure::usage(format_chain(&error)))
    }

    /// Returns the largest size of a trace in bytes.
    pub fn trace_bytes(&self) -> u64 {
        u64::from(self.trace_mib) << 20
    }
}

/// Output files, which are opened before the work so that a wrong path is reported early.
pub struct ProfileFiles {
    profile: Option<Output>,
    csv: Option<Output>,
    traces: Vec<(Format, Output)>,
    page: Option<Output>,
    trace_bytes: u64,
}

impl ProfileFiles {
    pub fn create(options: &FileOptions<'_>) -> Result<ProfileFiles> {
        let create = |path: Option<&Path>| {
            path.map(Output::create).transpose().map_err(|error| Failure::usage(format_chain(&error)))
        };
        let trace = |format: Format, path: Option<&Path>| Ok(create(path)?.map(|file| (format, file)));
        let traces = [trace(Format::Perfetto, options.perfetto), trace(Format::Chrome, options.chrome_trace)];
        Ok(ProfileFiles {
            traces: traces.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect(),
            page: create(options.page)?,
            profile: create(options.profile)?,
            csv: create(options.csv)?,
            trace_bytes: options.trace_bytes(),
        })
    }

    /// Writes the files. The CSV file contains the table `styled` if given, otherwise `rows`.
    pub fn write(
        self,
        profile: &Profile,
        rows: &[Row],
        styled: Option<&StyledTable>,
        observer: &dyn Observer,
    ) -> Result<()> {
        if let Some(mut file) = self.profile {
            serde_json::to_writer(&mut file, profile).map_err(Failure::environment)?;
            file.keep().map_err(Failure::environment)?;
        }
        if let Some(mut file) = self.csv {
            match styled {
                Some(styled) => file.write_all(&styled.to_csv()?).map_err(Failure::environment)?,
                None => csv::write_rows(rows, &mut file).map_err(Failure::environment)?,
            }
            file.keep().map_err(Failure::environment)?;
        }
        for (format, file) in self.traces {
            let write = |out: &mut dyn Write| Ok(export::write_trace(profile, format, out, self.trace_bytes)?.0);
            packing::write_trace(file, observer, write)?;
        }
        if let Some(file) = self.page {
            packing::write_packed(file, |out| {
                out.write_all(page::render_page(profile, GroupBy::InputShape).as_bytes())
            })?;
        }
        Ok(())
    }
}
