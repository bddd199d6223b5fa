//! Round trips of profiles through exported traces.
#![allow(missing_docs)]

use capture::events::convert::{Align, clock_offsets};
use capture::events::{check, in_memory};
use capture::writer::sink::{Format, Written};
use datasets::Target;
use profile::averages::tvm::tvm_report;
use profile::averages::{Grouping, compute_averages};
use profile::data::{Count, Counter, Kind, MemoryEvent, Operator, Profile, Span, Step, Track};
use profile::export;
use profile::import::rows::Provenance;
use profile::import::{self, ImportBounds};

fn small() -> Profile {
    let track = |name: &str, id| Track { name: name.to_owned(), process: 7, id, ..Track::default() };
    let span = |kind, track, parent, start_ns, duration_ns| Span {
        kind,
        operator: u32::from(kind == Kind::Task),
        step: Some(u32::from(start_ns >= 1000)),
        parent,
        track,
        start_ns,
        duration_ns,
        cpu_ns: Some(duration_ns / 2),
    };
    Profile {
        model: "small".to_owned(),
        tracks: vec![track("caller", 7), track("worker", 8)],
        operators: vec![
            Operator {
                name: "conv2d +relu".to_owned(),
                text: "conv2d f32[1,3,8,8] relu".to_owned(),
                input_shapes: vec![vec![1, 3, 8, 8]],
                input_dtypes: vec!["f32".to_owned()],
                flops: Some(3200),
                ..Operator::default()
            },
            Operator { name: "task \u{7} \"<é>\"".to_owned(), ..Operator::default() },
        ],
        steps: vec![
            Step { number: 4, start_ns: 0, duration_ns: 900, ..Step::default() },
            Step { number: 5, start_ns: 1000, duration_ns: 900, ..Step::default() },
        ],
        spans: vec![
            span(Kind::Operator, 0, None, 100, 800),
            span(Kind::Task, 0, Some(0), 150, 600),
            span(Kind::Task, 1, Some(0), 160, 700),
            span(Kind::Operator, 0, None, 1100, 800),
            span(Kind::Task, 1, Some(3), 1160, 700),
        ],
        counters: vec![Counter { name: "cycles".to_owned(), ..Counter::default() }],
        counts: vec![Count { span: 2, counter: 0, value: 12345, running_ratio: 1.0 }],
        memory: vec![
            MemoryEvent { at_ns: 100, bytes: 64, live_bytes: 64, ..MemoryEvent::default() },
            MemoryEvent { at_ns: 900, bytes: -64, live_bytes: 0, ..MemoryEvent::default() },
        ],
        ..Profile::default()
    }
}

fn written(profile: &Profile, format: Format, limit: u64) -> (Written, Vec<u8>) {
    profile.check().expect("it fits together");
    export::write_trace(profile, format, Vec::new(), limit).expect("memory can be written")
}

#[test]
fn a_trace_has_operators_parts_arrows_and_counters() {
    let folder = tempfile::tempdir().expect("a folder");
    for (format, name) in [(Format::Chrome, "a.json"), (Format::Perfetto, "a.pftrace")] {
        let path = folder.path().join(name);
        let (summary, bytes) = written(&small(), format, u64::MAX);
        assert_eq!((summary.left_out, summary.bytes), (0, bytes.len() as u64), "{name}");
        std::fs::write(&path, bytes).expect("it can be written");
        let trace = in_memory::read_trace(&path, 16).expect("it is a trace");
        let report = check::check_trace(&trace);
        assert_eq!(report.faults, [], "{name}");
        // Five spans and two steps; counter tracks for memory, speed and share. A task on the calling thread needs no
        // arrow.
        assert_eq!((report.slices, report.values, report.flows), (7, 2 + 4 + 4, 2), "{name}");
        let task = trace
            .slices
            .iter()
            .find(|slice| trace.integer_argument(slice, "cycles").is_some())
            .expect("it was counted");
        assert_eq!(trace.text(task.name), "task \u{7} \"<é>\"", "{name}");
        assert_eq!((trace.integer_argument(task, "cycles"), task.end_ns - task.start_ns), (Some(12345), 700), "{name}");
        let again = import::read_profile(&path, &ImportBounds::of_memory(16)).expect("it is a profile").profile;
        assert_eq!(again.steps.iter().map(|step| step.number).collect::<Vec<_>>(), [4, 5], "{name}");
        let convolution = again.operators.iter().find(|one| one.name == "conv2d +relu").expect("it is there");
        assert_eq!(convolution.input_shapes, [[1, 3, 8, 8]], "{name}");
        assert_eq!(again.format, "opcollect", "{name}");
        // The time between the steps does not count, as in the profile itself.
        let total = |profile: &Profile| tvm_report(profile).device_metrics["cpu0"]["Duration (us)"].as_number();
        assert_eq!(total(&again), total(&small()), "{name}");
    }
}

/// Tasks of pool threads have the name of their call. They are parts of the call, not further calls.
#[test]
fn tasks_of_a_trace_are_no_calls() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut profile = small();
    // The first pool thread is the calling thread, as in measured profiles.
    profile.tracks.push(Track { name: "pool".to_owned(), ..profile.tracks[0].clone() });
    for (place, span) in profile.spans.iter_mut().enumerate() {
        (span.operator, span.track) = (0, if place == 1 { 2 } else { span.track });
    }
    let row = |profile: &Profile| {
        let rows = compute_averages(profile, Grouping::default()).rows;
        let row = rows.into_iter().find(|row| row.name == "conv2d +relu").expect("it is there");
        (row.count, row.self_cpu_time_total_ns, row.cpu_time_total_ns, row.median_ns)
    };
    assert_eq!(row(&profile), (2, 1600, 1600, 800));
    let [host, model, run_id, program_version, trace_hash] =
        ["elsewhere", "small", "run", "0", "0123"].map(str::to_owned);
    let provenance = Provenance { taken_at_us: 1, host, threads: None, model, run_id, program_version, trace_hash };
    for (format, name) in [(Format::Chrome, "a.json"), (Format::Perfetto, "a.pftrace")] {
        let path = folder.path().join(name);
        std::fs::write(&path, written(&profile, format, u64::MAX).1).expect("it can be written");
        let again = import::read_profile(&path, &ImportBounds::of_memory(16)).expect("it is a profile").profile;
        assert_eq!(row(&again), row(&profile), "{name}");
        let records = import::rows::to_records(&again, &provenance).expect("they are rows");
        let record = records.iter().find(|record| record.op_name == "conv2d +relu").expect("it is there");
        assert_eq!((record.n, record.median_ns), (2, Some(800.0)), "{name}");
        assert_eq!((record.op_kind.as_str(), record.target), ("opcollect.conv2d +relu", Target::Other), "{name}");
    }
}

/// Traces of two profiles are merged by the wall-clock time of their starts.
#[test]
fn a_trace_has_the_wall_clock_time_of_its_start() {
    let offsets = |starts: [Option<i64>; 2]| {
        let traces = starts.map(|wall_clock_start_ns| {
            let bytes = written(&Profile { wall_clock_start_ns, ..small() }, Format::Chrome, u64::MAX).1;
            let file = tempfile::NamedTempFile::new().expect("a file");
            std::fs::write(file.path(), bytes).expect("it can be written");
            in_memory::read_trace(file.path(), 16).expect("it is a trace")
        });
        let named = [("a".to_owned(), &traces[0]), ("b".to_owned(), &traces[1])];
        clock_offsets(&named, Align::Clock).map_err(|error| error.to_string())
    };
    let start_ns = 1_764_460_800_000_000_000;
    assert_eq!(offsets([Some(start_ns), Some(start_ns + 2500)]), Ok(vec![0, 2500]));
    let missing = "the wall-clock time of the origin (`baseTimeNanoseconds`) is missing in";
    assert_eq!(offsets([Some(start_ns), None]), Err(format!("{missing} `b`")));
    assert_eq!(offsets([None, None]), Err(format!("{missing} `a`, `b`")));
}

#[test]
fn a_trace_ends_at_its_limit_with_a_mark() {
    let mut profile = small();
    let last = profile.spans[3];
    for number in 0..1000 {
        profile.spans.push(Span { start_ns: 2000 + 1000 * number, step: None, ..last });
    }
    for format in [Format::Chrome, Format::Perfetto] {
        let (summary, bytes) = written(&profile, format, 10_000);
        assert!(summary.left_out > 100 && bytes.len() < 11_000, "{summary:?}");
        assert!(String::from_utf8_lossy(&bytes).contains("truncated"), "{format:?}");
        // Counters reach as far as operators.
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), &bytes).expect("it can be written");
        let trace = in_memory::read_trace(file.path(), 16).expect("it is a trace");
        let last_slice = trace.slices.iter().map(|slice| slice.start_ns).max().expect("slices");
        let last_value = trace.values.iter().map(|(_, at_ns, _)| *at_ns).max().expect("values");
        assert!((last_slice - last_value).abs() <= 1000, "{format:?}: {last_slice} {last_value}");
    }
}
