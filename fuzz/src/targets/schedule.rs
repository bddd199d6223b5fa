//! Parses arbitrary texts as schedules from records and saved traces of TVM's tuner; accepted schedules must survive a
//! round trip. Useful seeds are the column `schedule` of a store and the lines of a trace file.

use super::valid_text;
use job::space::Schedule;
use serde_json::Value;

pub fn run(bytes: &[u8]) {
    let text = valid_text(bytes);
    let Ok(schedule) = Schedule::from_json(text) else { return };
    if let Schedule::MetaSchedule { trace: Some(moves), .. } | Schedule::Trace { trace: moves } = &schedule {
        moves.check_again().expect("accepted moves are on the list");
        assert!(has_only_words(moves.as_json()), "{text}");
    }
    let _ = (schedule.describe_knobs(), schedule.data_layout(), schedule.operand_rounding(), schedule.has_fragments());
    let again = Schedule::from_json(&schedule.to_json()).expect("a written schedule is readable");
    assert_eq!(again.stable_hash(), schedule.stable_hash());
}

fn has_only_words(value: &Value) -> bool {
    let is_sign = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '_' | '.' | '"');
    match value {
        Value::String(text) => text.chars().all(is_sign),
        Value::Array(items) => items.iter().all(has_only_words),
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}
