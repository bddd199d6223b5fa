//! Tests of conversions between trace formats.
#![allow(missing_docs)]

use capture::events::convert::{Part, write_merged};
use capture::events::{check, in_memory};
use capture::trace::{QueryBounds, Value, query_trace};
use capture::writer::sink::Format;
use report::Paper;
use std::path::Path;

fn convert(from: &Path, to: &Path, format: Format) {
    let trace = in_memory::read_trace(from, 16).expect("it is a trace");
    let part = Part { name: "a".to_owned(), trace, offset_ns: 0 };
    let (_, bytes) = write_merged(&[part], format, Vec::new(), u64::MAX).expect("memory can be written");
    std::fs::write(to, bytes).expect("it can be written");
}

/// A process that crashed leaves slices without an end. Their durations are unknown in every format.
#[test]
fn unfinished_slices_stay_unfinished() {
    let folder = tempfile::tempdir().expect("a folder");
    let [chrome, perfetto, again] = ["a.json", "b.pftrace", "c.json"].map(|name| folder.path().join(name));
    let text = r#"[{"ph":"X","name":"before","pid":1,"tid":1,"ts":0,"dur":1},
        {"ph":"B","name":"open","pid":1,"tid":1,"ts":2,"args":{"size":7}},
        {"ph":"X","name":"inside","pid":1,"tid":1,"ts":3,"dur":4},
        {"ph":"B","name":"closed","pid":1,"tid":1,"ts":8},{"ph":"E","pid":1,"tid":1,"ts":9},
        {"ph":"X","name":"far","pid":1,"tid":2,"ts":1000000000000,"dur":2},
        {"ph":"B","name":"last","pid":1,"tid":2,"ts":1000000000001}]"#;
    std::fs::write(&chrome, text).expect("it can be written");
    convert(&chrome, &perfetto, Format::Perfetto);
    convert(&perfetto, &again, Format::Chrome);
    for path in [&chrome, &perfetto, &again] {
        let trace = in_memory::read_trace(path, 16).expect("it is a trace");
        assert_eq!((trace.slices.len(), trace.losses.begins_without_end), (6, 2), "{}", path.display());
        let open = trace.slices.iter().find(|slice| trace.text(slice.name) == "open").expect("it is kept");
        assert!(open.is_unfinished && trace.integer_argument(open, "size") == Some(7), "{}", path.display());
        assert_eq!(check::check_trace(&trace).faults.len(), 1, "{}", path.display());
    }
    let sql = "select name, dur from slice order by ts";
    let rows = query_trace(&perfetto, sql, &QueryBounds::default()).expect("rows").rows;
    let expected = [("before", 1000), ("open", -1), ("inside", 4000), ("closed", 1000), ("far", 2000), ("last", -1)];
    let expected = expected.map(|(name, dur)| vec![Value::Text(name.to_owned()), Value::Integer(dur)]);
    assert_eq!(rows, expected);
}

#[test]
fn a_check_counts_with_singular_and_plural() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("one.json");
    std::fs::write(&path, r#"[{"ph":"X","name":"a","pid":1,"tid":1,"ts":0,"dur":1}]"#).expect("it can be written");
    let trace = in_memory::read_trace(&path, 16).expect("it is a trace");
    let text = check::check_trace(&trace).format_text(&Paper::without_colours(80));
    assert_eq!(text, "1 slice, 0 counter values and 0 flow arrows on 1 track: no errors");
}
