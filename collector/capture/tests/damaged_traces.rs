//! Tests that damaged host traces and Perfetto traces are read or rejected, and that results are usable.
#![allow(missing_docs)]

#[allow(dead_code, reason = "other tests use all of it")]
#[path = "tpu/card.rs"]
mod card;
#[path = "../../../tests/damage.rs"]
mod damage;

use capture::tpu::{Reading, Timeline, loss::Losses, read_capture, trace};
use capture::trace::{QueryBounds, load_tables, query_trace, run_query};
use damage::with_words;
use proptest::prelude::*;
use std::path::Path;
use std::sync::OnceLock;

fn timeline() -> &'static Timeline {
    static TIMELINE: OnceLock<Timeline> = OnceLock::new();
    TIMELINE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let capture = card::write(folder.path(), &[(0, card::small_core(0))]);
        read_capture(&capture, &Reading::default()).unwrap()
    })
}

const HOST: &str = r#"{"traceEvents":[{"ph":"B","cat":"cpu_op","name":"outer","ts":"10","pid":1,"tid":1},
    {"ph":"X","cat":"cpu_op","name":"inner","ts":12,"dur":3,"pid":1,"tid":1},{"ph":"E","ts":20,"pid":1,"tid":1},
    {"ph":"X","cat":"tpudnn","name":"disable_profile","ts":30,"dur":10,"pid":1,"tid":1},
    {"ph":"X","cat":"tpudnn","name":"mm","ts":-5,"dur":10,"pid":1,"tid":1}]}"#;

fn merge(host: &[u8], tail_offset_ns: i64) -> Option<usize> {
    let tail = (timeline().tail_ns, Some(tail_offset_ns));
    let host = trace::host::parse_host_trace(Path::new("host"), host, tail, &mut Losses::default()).ok()?;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perfetto.pftrace");
    trace::write_trace(timeline(), Some(&host), &path).unwrap();
    let calls = "select s.dur from slice s join track t on t.id = s.track_id where t.name like '%op%'";
    let rows = query_trace(&path, calls, &QueryBounds::default()).unwrap().rows;
    assert!(rows.iter().all(|row| matches!(row[0], capture::trace::Value::Integer(0..))), "{rows:?}");
    assert_eq!(rows.len(), host.slices.len());
    Some(rows.len())
}

#[test]
fn extreme_times_are_merged_or_omitted() {
    assert_eq!(merge(HOST.as_bytes(), 1000), Some(3), "the undamaged event is kept");
    for time in ["1e300", "-1e300", "9223372036854775807", "\"inf\"", "\"nan\"", "1e15", "-2.3e15", "2.3e15", "1e400"] {
        for (place, field) in [("12", "ts"), ("10", "dur"), ("30", "ts"), ("20", "ts"), ("-5", "ts")] {
            let text = HOST.replace(&format!("\"{field}\":{place}"), &format!("\"{field}\":{time}"));
            for offset in [0, 1_000_000_000_000_000, -1_000_000_000_000_000] {
                // An invalid event does not affect others.
                assert!(merge(text.as_bytes(), offset).is_none_or(|calls| calls >= 1), "{text}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn host_traces_are_merged_or_rejected(
        damages in prop::collection::vec(with_words(&[
            "1e300", "-1e18", "\"ts\":9e15", "\"dur\":-1", "null", "[", "]", "{", "}", "\"", "\"ph\":\"E\"", "\"ph\":\"B\"",
            "\u{0}",
        ]), 1..6),
        offset in -1_000_000_000_000_000i64..1_000_000_000_000_000,
    ) {
        let mut bytes = HOST.as_bytes().to_vec();
        damages.iter().for_each(|damage| damage.apply(&mut bytes));
        merge(&bytes, offset);
    }

    #[test]
    fn perfetto_traces_are_queried_or_rejected(
        damages in prop::collection::vec(with_words(&[
            vec![0xff; 10], vec![0; 4], vec![0x0a, 0x00], vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f],
            vec![0x5b, 0x5a, 0x5a], vec![0x8a, 0x01, 0x02], vec![0x80; 9],
        ]), 1..8),
    ) {
        static ORIGINAL: OnceLock<Vec<u8>> = OnceLock::new();
        let original = ORIGINAL.get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("perfetto.pftrace");
            let tail = (timeline().tail_ns, Some(0));
            let mut losses = Losses::default();
            let host = trace::host::parse_host_trace(Path::new("host"), HOST.as_bytes(), tail, &mut losses).unwrap();
            trace::write_trace(timeline(), Some(&host), &path).unwrap();
            std::fs::read(path).unwrap()
        });
        let mut bytes = original.clone();
        damages.iter().for_each(|damage| damage.apply(&mut bytes));
        let bounds = QueryBounds::default();
        if let Ok(mut database) = load_tables(&bytes, &bounds) {
            let question = "select count(*), sum(1.0 * s.dur), max(t.name), max(a.display_value) from slice s
                left join track t on t.id = s.track_id left join args a on a.arg_set_id = s.arg_set_id";
            prop_assert_eq!(run_query(&mut database, question, &bounds).unwrap().rows.len(), 1);
        }
    }
}
