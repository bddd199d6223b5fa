//! Feeds arbitrary texts to the reader of schedules, which stand in records and in saved traces of TVM's tuner; it must
//! answer with an error or a schedule that can be described, written and read again.
//!
//! Run with `fuzz/run schedule`; good starts are the column `schedule` of a store and
//! the lines of a trace file.

use super::valid_text;
use job::space::Schedule;
use serde_json::Value;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let text = valid_text(bytes);
    let Ok(schedule) = Schedule::from_json(text) else { return };
    if let Schedule::MetaSchedule { trace: Some(moves), .. } | Schedule::Trace { trace: moves } = &schedule {
        moves.check().expect("what is read is on the list");
        assert!(has_only_words(moves.json()), "{text}");
    }
    let _ = (schedule.describe(), schedule.layout(), schedule.rounding(), schedule.has_fragments());
    let again = Schedule::from_json(&schedule.to_json()).expect("what we write we read");
    assert_eq!(again.hash(), schedule.hash());
}

/// Whether no text outside of index maps has signs that code would need.
fn has_only_words(value: &Value) -> bool {
    let is_sign = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '_' | '.' | '"');
    match value {
        Value::String(text) => text.chars().all(is_sign),
        Value::Array(items) => items.iter().all(has_only_words),
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}
