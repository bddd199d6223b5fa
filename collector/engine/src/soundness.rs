//! Checks that a record's schedule columns are consistent; the crate `datasets` does not know schedules.

use datasets::Record;
use job::space::Schedule;
use std::collections::BTreeMap;

/// Returns a description of the inconsistency in a record's schedule, or None if it is consistent or absent.
pub fn wrong_schedule(record: &Record) -> Option<String> {
    let text = record.schedule.as_ref()?;
    let is_named = |hash: String| record.schedule_hash.as_ref().is_none_or(|named| *named == hash);
    const OTHER: &str = "its schedule does not match its `schedule_hash`";
    if record.is_network() {
        let schedules: BTreeMap<String, Schedule> = match text.parse_as() {
            Ok(schedules) => schedules,
            Err(error) => return Some(format!("its schedules cannot be read: {error}")),
        };
        // The hash of a staged model depends on its parallel plan, which the row does not contain.
        let is_whole = record.parallel_type.is_none();
        let hash = || crate::network::schedules_hash(schedules.iter().map(|(task, one)| (task.as_str(), one)), None);
        return (is_whole && !is_named(hash())).then(|| OTHER.to_owned());
    }
    let schedule = match Schedule::from_json(text.as_text()) {
        Ok(schedule) => schedule,
        Err(error) => return Some(error.to_string()),
    };
    if !is_named(schedule.stable_hash()) {
        return Some(OTHER.to_owned());
    }
    // Records written before this column was introduced have no value.
    let is_other = record.moves_hash.is_some() && record.moves_hash != schedule.moves_hash();
    is_other.then(|| "its moves do not match its `moves_hash`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use datasets::{Json, NETWORK};
    use expect_test::{Expect, expect};

    #[track_caller]
    fn check(record: &Record, problem: Expect) {
        problem.assert_eq(&wrong_schedule(record).unwrap_or_else(|| "sound".to_owned()));
    }

    fn json(text: &str) -> Option<Json> {
        Some(Json::parse(text).expect("JSON"))
    }

    fn drawn(block: &str) -> String {
        format!(
            r#"{{"from":"metaschedule","space":0,"seed":7,"trace":[[["GetSBlock",[],["{block}","main"],["b0"]]],[]]}}"#
        )
    }

    #[test]
    fn schedules_match_their_hashes() {
        let of = |text: &str| {
            let schedule = Schedule::from_json(text).expect("a schedule");
            Record {
                schedule: json(text),
                schedule_hash: Some(schedule.stable_hash()),
                moves_hash: schedule.moves_hash(),
                ..Record::default()
            }
        };
        let template = r#"{"from":"template","knobs":{"tile_x":4}}"#;
        check(&Record::default(), expect!["sound"]);
        check(&of(template), expect!["sound"]);
        check(&of(&drawn("sum")), expect!["sound"]);
        check(
            &Record { schedule: json(&template.replace('4', "8")), ..of(template) },
            expect!["its schedule does not match its `schedule_hash`"],
        );
        // Both have the same seed, so the hash of the sampled schedule is the same.
        let exchanged = Record { schedule: json(&drawn("other")), ..of(&drawn("sum")) };
        check(&exchanged, expect!["its moves do not match its `moves_hash`"]);
        check(&Record { moves_hash: None, ..exchanged }, expect!["sound"]);
    }

    #[test]
    fn schedules_with_code_are_rejected() {
        let text = drawn("sum").replace(
            r#""b0"]]]"#,
            r#""b0"]],["Annotate",["b0","\"module asm \\\"nop\\\"\""],["pragma_import_llvm"],[]]]"#,
        );
        check(
            &Record { schedule: json(&text), ..Record::default() },
            expect![[
                r#"cannot read the schedule: move 1 of the schedule is not allowed: `Annotate` does not accept the value `"pragma_import_llvm"`"#
            ]],
        );
        let network = Record {
            op_kind: NETWORK.to_owned(),
            schedule: json(&format!(r#"{{"0123":{text}}}"#)),
            ..Record::default()
        };
        assert!(wrong_schedule(&network).is_some_and(|why| why.contains("pragma_import_llvm")));
    }
}
