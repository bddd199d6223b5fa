use super::*;
use expect_test::{Expect, expect};

/// Two operators of a network, one of them known badly, and one that gave no time.
fn summary() -> Summary {
    let row = Row {
        task: "conv2d f32[1,64,56,56] w[64,64,3,3] p=1 +bias +add +relu".to_owned(),
        task_hash: String::new(),
        count: 2,
        schedule: String::new(),
        difference: "outer=space pad_at=outer parallel=3 split_r=16 tile_x=2 tile_y=2".to_owned(),
        threads: 2,
        median_ns: 1.06e6,
        spread: 0.008,
        gflops: 220.4,
        roofline: Some(0.72),
        share: 0.984,
        default_over_best: Some(1.9),
        measured: (8, 8),
    };
    let uncertain = Row {
        task: "dense f32[1,512] w[1000,512] +bias".to_owned(),
        count: 1,
        difference: "default".to_owned(),
        median_ns: 35.0e3,
        spread: 2.09,
        gflops: 29.2,
        roofline: Some(0.11),
        share: 0.016,
        default_over_best: None,
        ..row.clone()
    };
    let missing = vec!["softmax f32[1,1000]".to_owned()];
    Summary { model: "small".to_owned(), batch: 1, rows: vec![row, uncertain], missing, total_ns: 2.155e6 }
}

fn check(width: usize, wanted: Expect) {
    wanted.assert_eq(&render(&summary(), &Paper::plain(width)));
}

#[test]
fn at_60_columns() {
    check(60, expect![[""]]);
}

#[test]
fn at_80_columns() {
    check(80, expect![[""]]);
}

#[test]
fn at_120_columns() {
    check(120, expect![[""]]);
}

#[test]
fn at_180_columns() {
    check(180, expect![[""]]);
}

#[test]
fn what_is_known_badly_and_what_is_slow_stand_out() {
    let text = render(&summary(), &Paper { width: 120, has_colours: true });
    assert!(text.contains("\u{1b}[33m209.0 %\u{1b}[0m"), "{text:?}");
    assert!(text.contains("\u{1b}[31m11 %\u{1b}[0m"), "{text:?}");
    assert!(!text.contains("m0.8 %"), "{text:?}");
}
