//! A predictor is corrected for a device it did not learn from by a few measurements of it.
#![allow(missing_docs)]

mod common;

use predictor::features::Work;
use predictor::learn::predictor::Ask;
use predictor::{adaptation, bundle, train};

#[test]
fn few_measurements_of_a_new_device_correct_a_predictor_and_its_file() {
    let (samples, _) = common::samples();
    let of = |name: &str, step: usize| {
        let rows: Vec<usize> = (0..samples.rows.len()).filter(|row| (samples.device_name(*row) == "large") == (name == "large")).collect();
        let mut some = samples.clone();
        some.keep(&rows.into_iter().step_by(step).collect::<Vec<usize>>());
        some
    };
    let mut predictor = train::train(&of("others", 1), 0, false).expect("a predictor");
    let work = Work::contraction(2.0, 300.0, 300.0, 300.0, false);
    let ask = Ask { operator: "product", work: &work, device: "large", threads: None, extras: &Default::default() };
    let before = predictor.ask(&ask).expect("devices of a table are described");
    assert!(before.outside[0].contains("not learned from"), "{before:?}");

    let changes = adaptation::adapt(&mut predictor, of("large", 3)).expect("measurements");
    assert_eq!(changes.iter().map(|change| change.operator.as_str()).collect::<Vec<_>>(), ["product", "soft"]);
    for change in &changes {
        let after = change.after.expect("there are two halves");
        assert!(change.device == "large" && change.rows > 50 && after < 0.8 * change.before, "{change:?}");
    }
    let after = predictor.ask(&ask).expect("an answer");
    let width = |answer: &predictor::learn::predictor::Answer| answer.high_ns / answer.low_ns;
    assert!(after.outside.is_empty() && width(&after) < width(&before), "{before:?} {after:?}");

    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("adapted.opp");
    bundle::write(&predictor, &path).expect("a file");
    assert_eq!(bundle::read(&path).expect("the file").ask(&ask).expect("an answer"), after);

    let error = adaptation::adapt(&mut predictor, of("others", 9)).expect_err("all devices are known").to_string();
    assert!(error.contains("train again"), "{error}");
}
