//! Whatever the bytes: host traces, Perfetto traces and schedules are read or refused, and what is read can be used.
#![allow(missing_docs)]

#[allow(dead_code, reason = "other tests use all of it")]
#[path = "tpu/capture.rs"]
mod capture;

use collector::space::{Layout, Schedule};
use collector::tpu::{Reading, Timeline, loss::Losses, read, trace};
use collector::trace::{Bounds, ask, load, query};
use proptest::prelude::*;
use proptest::sample::Index;
use std::path::Path;
use std::sync::OnceLock;

/// One damage to bytes.
#[derive(Clone, Debug)]
enum Damage {
    Truncate(Index),
    Flip(Index, u8),
    Overwrite(Index, Vec<u8>),
    Copy { from: Index, to: Index, count: usize },
}

fn damage(words: Vec<Vec<u8>>) -> impl Strategy<Value = Damage> {
    let index = any::<Index>;
    prop_oneof![
        1 => index().prop_map(Damage::Truncate),
        4 => (index(), 0..8u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        4 => (index(), prop::sample::select(words)).prop_map(|(at, word)| Damage::Overwrite(at, word)),
        1 => (index(), index(), 1..64usize).prop_map(|(from, to, count)| Damage::Copy { from, to, count }),
    ]
}

fn apply(damages: &[Damage], bytes: &mut Vec<u8>) {
    for damage in damages {
        if bytes.is_empty() {
            return;
        }
        match damage {
            Damage::Truncate(at) => bytes.truncate(at.index(bytes.len())),
            Damage::Flip(at, bit) => {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            }
            Damage::Overwrite(at, word) => {
                let at = at.index(bytes.len());
                let end = bytes.len().min(at + word.len());
                bytes.splice(at..end, word.iter().copied());
            }
            Damage::Copy { from, to, count } => {
                let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
                let copied = bytes[from..bytes.len().min(from + count)].to_vec();
                bytes.splice(to..to, copied);
            }
        }
    }
}

fn texts(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn timeline() -> &'static Timeline {
    static TIMELINE: OnceLock<Timeline> = OnceLock::new();
    TIMELINE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let capture = capture::write(folder.path(), &[(0, capture::small_core(0))]);
        read(&capture, &Reading::default()).unwrap()
    })
}

const HOST: &str = r#"{"traceEvents":[{"ph":"B","cat":"cpu_op","name":"outer","ts":"10","pid":1,"tid":1},
    {"ph":"X","cat":"cpu_op","name":"inner","ts":12,"dur":3,"pid":1,"tid":1},{"ph":"E","ts":20,"pid":1,"tid":1},
    {"ph":"X","cat":"tpudnn","name":"disable_profile","ts":30,"dur":10,"pid":1,"tid":1},
    {"ph":"X","cat":"tpudnn","name":"mm","ts":-5,"dur":10,"pid":1,"tid":1}]}"#;

/// Reads a host trace, merges it, and counts the calls that the merged trace has.
fn merge(host: &[u8], tail_offset_ns: i64) -> Option<usize> {
    let tail = (timeline().tail_ns, Some(tail_offset_ns));
    let host = trace::host::parse(Path::new("host"), host, tail, &mut Losses::default()).ok()?;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perfetto.pftrace");
    trace::write(timeline(), Some(&host), &path).unwrap();
    let calls = "select s.dur from slice s join track t on t.id = s.track_id where t.name like '%op%'";
    let rows = query(&path, calls, &Bounds::default()).unwrap().rows;
    assert!(rows.iter().all(|row| matches!(row[0], collector::trace::Value::Integer(0..))), "{rows:?}");
    assert_eq!(rows.len(), host.slices.len());
    Some(rows.len())
}

#[test]
fn times_at_the_edges_of_what_a_number_holds_are_merged_or_left_out() {
    assert_eq!(merge(HOST.as_bytes(), 1000), Some(3), "the sound one");
    for time in ["1e300", "-1e300", "9223372036854775807", "\"inf\"", "\"nan\"", "1e15", "-2.3e15", "2.3e15", "1e400"] {
        for (place, field) in [("12", "ts"), ("10", "dur"), ("30", "ts"), ("20", "ts"), ("-5", "ts")] {
            let text = HOST.replace(&format!("\"{field}\":{place}"), &format!("\"{field}\":{time}"));
            for offset in [0, 1_000_000_000_000_000, -1_000_000_000_000_000] {
                // What stands in the way of one event costs no other.
                assert!(merge(text.as_bytes(), offset).is_none_or(|calls| calls >= 1), "{text}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn host_traces_are_merged_or_refused(
        damages in prop::collection::vec(damage(texts(&[
            "1e300", "-1e18", "\"ts\":9e15", "\"dur\":-1", "null", "[", "]", "{", "}", "\"", "\"ph\":\"E\"", "\"ph\":\"B\"", "\u{0}",
        ])), 1..6),
        offset in -1_000_000_000_000_000i64..1_000_000_000_000_000,
    ) {
        let mut bytes = HOST.as_bytes().to_vec();
        apply(&damages, &mut bytes);
        merge(&bytes, offset);
    }

    #[test]
    fn perfetto_traces_are_asked_or_refused(
        damages in prop::collection::vec(damage(vec![
            vec![0xff; 10], vec![0; 4], vec![0x0a, 0x00], vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f], vec![0x5b, 0x5a, 0x5a],
            vec![0x8a, 0x01, 0x02], vec![0x80; 9],
        ]), 1..8),
    ) {
        static ORIGINAL: OnceLock<Vec<u8>> = OnceLock::new();
        let original = ORIGINAL.get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("perfetto.pftrace");
            let tail = (timeline().tail_ns, Some(0));
            let host = trace::host::parse(Path::new("host"), HOST.as_bytes(), tail, &mut Losses::default()).unwrap();
            trace::write(timeline(), Some(&host), &path).unwrap();
            std::fs::read(path).unwrap()
        });
        let mut bytes = original.clone();
        apply(&damages, &mut bytes);
        let bounds = Bounds::default();
        if let Ok(mut database) = load(&bytes, &bounds) {
            let question = "select count(*), sum(1.0 * s.dur), max(t.name), max(a.display_value) from slice s
                left join track t on t.id = s.track_id left join args a on a.arg_set_id = s.arg_set_id";
            prop_assert_eq!(ask(&mut database, question, &bounds).unwrap().rows.len(), 1);
        }
    }

    #[test]
    fn schedules_are_read_or_refused(
        which in 0..3usize,
        damages in prop::collection::vec(damage(texts(&[
            "-9223372036854775808", "9223372036854775807", "0", "1e300", "null", "[[\"Tensorize\"]]", "\"tensor\"", "{", "}", "[",
        ])), 0..6),
    ) {
        let mut bytes = SCHEDULES[which].as_bytes().to_vec();
        apply(&damages, &mut bytes);
        if let Ok(schedule) = Schedule::from_json(&String::from_utf8_lossy(&bytes)) {
            let _ = (schedule.describe(), schedule.layout(), schedule.rounding(), schedule.has_fragments());
            let again = Schedule::from_json(&schedule.to_json()).unwrap();
            prop_assert_eq!(again.hash(), schedule.hash());
        }
    }
}

const SCHEDULES: [&str; 3] = [
    r#"{"from":"template","knobs":{"layout":"blocked","block":16,"tile_x":4,"unit":"tensor","warps_x":2,"warp_tile_x":2}}"#,
    r#"{"from":"metaschedule","space":1,"seed":-3,"trace":[[["GetBlock",[],["x","main"],["b0"]],["Tensorize",["l1","wmma"],[],[]]],[]]}"#,
    r#"{"from":"trace","trace":[[["SamplePerfectTile",["l2"],[4,64],["v1"]]],[[0,[2,2,4,1]]]]}"#,
];

#[test]
fn numbers_of_knobs_at_the_edges_overflow_nothing() {
    for number in [i64::MIN, -1, 0, i64::MAX] {
        let names =
            ["block", "tile_x", "tile_y", "warps_x", "warps_y", "warp_x", "fragments_x", "warp_tile_x", "threads_x"];
        let knobs: Vec<String> = names.iter().map(|name| format!("\"{name}\":{number}")).collect();
        for choices in [r#""layout":"blocked""#, r#""unit":"tensor""#] {
            let text = format!("{{\"from\":\"template\",\"knobs\":{{{choices},{}}}}}", knobs.join(","));
            let schedule = Schedule::from_json(&text).unwrap();
            let _ = (schedule.describe(), schedule.hash());
            // Lowering divides by the number of columns; the number of a block it checks itself.
            if let Layout::Columns { multiple } = schedule.layout() {
                assert!((1..1 << 32).contains(&multiple), "{multiple}");
            }
        }
    }
}
