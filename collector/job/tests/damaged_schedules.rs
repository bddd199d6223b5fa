//! Tests that any bytes are either rejected or read as a schedule that can be used.
#![allow(missing_docs)]

#[path = "../../../tests/damage.rs"]
mod damage;

use damage::with_words;
use job::space::{Layout, Schedule};
use proptest::prelude::*;

proptest! {
    #[test]
    fn schedules_are_read_or_refused(
        which in 0..3usize,
        damages in prop::collection::vec(with_words(&[
            "-9223372036854775808", "9223372036854775807", "0", "1e300", "null", "[[\"Tensorize\"]]", "\"tensor\"", "{", "}", "[",
        ]), 0..6),
    ) {
        let mut bytes = SCHEDULES[which].as_bytes().to_vec();
        damages.iter().for_each(|damage| damage.apply(&mut bytes));
        if let Ok(schedule) = Schedule::from_json(&String::from_utf8_lossy(&bytes)) {
            let _ = (schedule.describe_knobs(), schedule.data_layout(), schedule.operand_rounding(), schedule.has_fragments());
            let again = Schedule::from_json(&schedule.to_json()).unwrap();
            prop_assert_eq!(again.stable_hash(), schedule.stable_hash());
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
            let _ = (schedule.describe_knobs(), schedule.stable_hash());
            // Lowering divides by the number of columns; the number of a block it checks itself.
            if let Layout::Columns { multiple } = schedule.data_layout() {
                assert!((1..1 << 32).contains(&multiple), "{multiple}");
            }
        }
    }
}
