//! Exercises an imported trace: sums, an HTML page, checks, and a round trip through both formats.

use capture::events::convert::{self, Part};
use capture::events::open::TraceFormat;
use capture::events::{check, in_memory};
use capture::writer::sink;
use profile::averages::{Grouping, compute_averages, style, tvm};
use profile::import::{self, ImportBounds};
use profile::summary::GroupBy;
use profile::{export, page};
use std::io::Cursor;
use std::path::Path;

/// Memory limit of a trace, in MiB.
const MEMORY: u32 = 64;
const LENGTH: u64 = 1 << 20;

pub fn exercise(format: TraceFormat, bytes: &[u8]) {
    let path = Path::new("fuzz");
    let input = || Box::new(Cursor::new(bytes.to_vec()));
    if let Ok(imported) = import::read_from(path, format, input(), &ImportBounds::of_memory(MEMORY)) {
        let profile = imported.profile;
        profile.check().expect("an imported profile is consistent");
        let sums = compute_averages(&profile, Grouping { by_input_shape: true, by_scope: Some(2) });
        let own: u64 = profile.self_ns().iter().sum();
        assert!(sums.self_cpu_time_total_ns + sums.self_device_time_total_ns <= own, "self times are counted once");
        style::torch_table(&sums, 100);
        tvm::tvm_report(&profile).to_table(100);
        page::render_page(&profile, GroupBy::Name);
        for format in [sink::Format::Chrome, sink::Format::Perfetto] {
            export::write_trace(&profile, format, Vec::new(), LENGTH).expect("writing to memory succeeds");
        }
    }
    let Ok(trace) = in_memory::read_from(path, format, input(), MEMORY) else { return };
    check::check_trace(&trace);
    let slices = trace.slices.len();
    let mut parts = [Part { name: "fuzz".to_owned(), trace, offset_ns: 0 }];
    for (to, again) in [(sink::Format::Chrome, TraceFormat::Chrome), (sink::Format::Perfetto, TraceFormat::Perfetto)] {
        if convert::fit_times(&mut parts, to).is_err() {
            continue;
        }
        let (written, bytes) =
            convert::write_merged(&parts, to, Vec::new(), LENGTH).expect("writing to memory succeeds");
        let read = in_memory::read_from(path, again, Box::new(Cursor::new(bytes)), 4 * MEMORY)
            .expect("a written trace is readable");
        assert_eq!(read.found.malformed, 0, "{:?}", read.found.examples);
        assert!(written.left_out > 0 || read.slices.len() == slices, "{} slices of {slices}", read.slices.len());
    }
}
