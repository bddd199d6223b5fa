//! Tests of the record: its JSON, its rules, and the order of attempts.
#![allow(missing_docs)]

mod common;

use common::{any_record, failed, measured};
use datasets::{COLUMNS, Choose, Json, Key, Outcome, Record, choose_records};
use expect_test::{Expect, expect};
use proptest::prelude::*;

fn check_refusal(change: impl FnOnce(&mut Record), expected: Expect) {
    let mut record = measured(1);
    change(&mut record);
    expected.assert_eq(&record.check().unwrap_err().to_string());
}

fn check_json_refusal(change: impl FnOnce(String) -> String, expected: Expect) {
    let text = change(serde_json::to_string(&measured(1)).unwrap());
    expected.assert_eq(&Record::from_json(text.as_bytes()).unwrap_err().to_string());
}

#[test]
fn the_plain_records_are_fit() {
    measured(1).check().unwrap();
    failed(1).check().unwrap();
}

#[test]
fn rules_name_the_column_they_defend() {
    check_refusal(
        |r| r.key = Key::default(),
        expect![[r#"
        the key is empty
          at field `key`"#]],
    );
    check_refusal(
        |r| r.n = 0,
        expect![[r#"
            a record with the outcome `ok` needs at least one sample
              at field `n`"#]],
    );
    check_refusal(
        |r| r.n = 2,
        expect![[r#"
            the record has more samples than `n`
              at field `samples_ns`"#]],
    );
    check_refusal(
        |r| r.median_ns = None,
        expect![[r#"
            a record with the outcome `ok` needs this value
              at field `median_ns`"#]],
    );
    check_refusal(
        |r| r.min_ns = Some(2000.0),
        expect![[r#"
        the minimum is above the median
          at field `min_ns`"#]],
    );
    check_refusal(
        |r| r.p95_ns = Some(995.0),
        expect![[r#"
        the 95th percentile is below the median
          at field `p95_ns`"#]],
    );
    check_refusal(
        |r| r.std_ns = Some(f64::NAN),
        expect![[r#"
        the value is NaN or infinite
          at field `std_ns`
        hint: leave the column empty"#]],
    );
    check_refusal(
        |r| r.samples_ns[1] = -1.0,
        expect![[r#"
        a value of the list is negative, NaN or infinite
          at field `samples_ns`
        hint: drop the sample and add a warning to `warnings`"#]],
    );
    check_refusal(
        |r| r.flops = Some(-1),
        expect![[r#"
        the value is negative
          at field `flops`"#]],
    );
    check_refusal(
        |r| r.board = Some(String::new()),
        expect![[r#"
        the text is empty
          at field `board`
        hint: leave the column empty instead"#]],
    );
    check_refusal(
        |r| r.host = String::new(),
        expect![[r#"
        the text is empty, but the column is required
          at field `host`"#]],
    );
    check_refusal(
        |r| r.plan = Some(Json::null()),
        expect![[r#"
        the JSON is `null`
          at field `plan`
        hint: leave the column empty instead"#]],
    );
    check_refusal(
        |r| r.schema_version = 9,
        expect![[r#"
            written with schema version 9, but this program supports only versions up to 7
              at field `schema_version`
            hint: update the program"#]],
    );
    check_refusal(
        |r| r.outcome = Outcome::Crashed,
        expect![[r#"
        a record whose outcome is not `ok` needs a reason
          at field `reason`"#]],
    );
    check_refusal(
        |r| *r = Record { median_ns: Some(1.0), ..failed(1) },
        expect![[r#"
            a record whose outcome is not `ok` must not have times
              at field `median_ns`"#]],
    );
}

#[test]
fn reading_refuses_what_it_does_not_know() {
    check_json_refusal(
        |text| text.replace("\"host\"", "\"hots\""),
        expect![[r#"
            unknown column `hots`
              at field `hots`
            hint: did you mean `host` or `os`? rename or drop it"#]],
    );
    check_json_refusal(
        |text| text.replace("\"host\":\"bench-1\",", ""),
        expect![[r#"
            required column `host` is missing
              at field `host`
            hint: the column is required; see the column table in docs/reference/dataset-format.md"#]],
    );
    check_json_refusal(
        |text| text.replace("{", "{\"extra\":[{}],").replace("version\":5", "version\":6"),
        expect![[r#"
            unknown column `extra`
              at field `extra`
            hint: drop it; docs/reference/dataset-format.md has the table of columns"#]],
    );
    check_json_refusal(
        |text| text.replace("\"n\":3", "\"n\":\"three\""),
        expect![[r#"
            invalid type: string "three", expected i64 at column 434
              at field `n`"#]],
    );
    check_json_refusal(
        |text| text.replace("\"n\":3", "\"n\":3,\"n\":3"),
        expect![[r#"
            duplicate column
              at field `n`"#]],
    );
    check_json_refusal(
        |text| text.replace("\"source\":\"measured\"", "\"source\":\"guessed\""),
        expect![[r#"
        unknown word `guessed`; known: `measured`, `emulated`, `simulated`, `imported`
          at field `source`"#]],
    );
    check_json_refusal(
        |text| text[..text.len() / 2].to_owned(),
        expect![[r#"
            EOF while parsing a value at column 302
              at field `schedule_hash`"#]],
    );
    check_json_refusal(
        |_| "[1, 2]".to_owned(),
        expect![
            "`[1, 2]` is not a JSON object of columns: invalid type: sequence, expected a record: an object of columns at column 0"
        ],
    );
}

#[test]
fn the_same_experiment_has_the_same_key_and_another_has_another() {
    let (first, mut again, mut other) = (measured(1), failed(1), measured(1));
    again.started_at_us += 5;
    other.threads = Some(4);
    assert_eq!(first.experiment_key(), again.experiment_key());
    assert_ne!(first.experiment_key(), other.experiment_key());
}

#[test]
fn the_key_of_an_experiment_does_not_drift() {
    // Keys identify rows in existing stores: a change here makes every old row look unmeasured.
    expect!["d5653047deb968e6fa13601744a72893"].assert_eq(&measured(1).experiment_key().to_string());
}

#[test]
fn attempts_are_numbered_by_time_and_met_twice_count_once() {
    let at = |time: i64, median: f64, attempt| {
        let times = [Some(median); 4];
        let [median_ns, mean_ns, p95_ns, min_ns] = times;
        Record { started_at_us: time, attempt, median_ns, mean_ns, p95_ns, min_ns, ..measured(1) }
    };
    let failure = Record { started_at_us: 2, attempt: 1, ..failed(1) };
    // Two independent nightly runs, a duplicate under another number, and another experiment.
    let all = vec![at(9, 30.0, 1), at(5, 10.0, 1), failure, at(9, 30.0, 4), measured(2), at(7, 20.0, 2)];
    let chosen = |how| -> Vec<(i64, i64)> {
        let chosen = choose_records(all.clone(), how);
        chosen.iter().filter(|row| row.key == all[0].key).map(|row| (row.started_at_us, row.attempt)).collect()
    };
    assert_eq!(chosen(Choose::All), [(2, 1), (5, 2), (7, 3), (9, 4)]);
    assert_eq!((chosen(Choose::Middle), chosen(Choose::Latest)), (vec![(7, 3)], vec![(9, 4)]));
    assert_eq!(choose_records(all.clone(), Choose::Middle).len(), 2);
}

#[test]
fn a_name_stands_once_in_the_table() {
    let mut names: Vec<_> = COLUMNS.iter().map(|column| column.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), COLUMNS.len());
}

/// Operators of one profile at several places have the same key, time and run, and may have the same median.
#[test]
fn rows_of_other_places_are_no_copies() {
    let at = |place: &str| Record { place: Some(place.to_owned()), ..measured(1) };
    let spaced = Record { input_shapes: Some(Json::parse("[ [1,3,8,8], [4,3,3,3] ]").unwrap()), ..at("a") };
    assert_eq!(choose_records(vec![at("a"), at("b"), spaced], Choose::All).len(), 2);
}

proptest! {
    #[test]
    fn json_keeps_every_record(record in any_record()) {
        record.check().unwrap();
        let text = serde_json::to_string(&record).unwrap();
        prop_assert!(!text.contains('\n'));
        prop_assert_eq!(&Record::from_json(text.as_bytes()).unwrap(), &record);
        prop_assert_eq!(&serde_json::from_str::<Record>(&text).unwrap(), &record);
    }

    #[test]
    fn the_choice_of_attempts_does_not_depend_on_the_order_of_files(left in any_record(), right in any_record()) {
        let right = Record { key: left.key, ..right };
        // Copies of one attempt with other content.
        let copy = Record { places: right.places.clone(), visits_ns: right.visits_ns.clone(), ..left.clone() };
        for other in [right, copy, Record { attempt: 7, ..left.clone() }] {
            let chosen = |records: [&Record; 2]| choose_records(records.map(Record::clone).to_vec(), Choose::All);
            prop_assert_eq!(chosen([&left, &other]), chosen([&other, &left]));
        }
    }
}
