//! Tests of the table of a model's operators.

use super::*;
use expect_test::{Expect, expect};

fn summary() -> Summary {
    let row = OperatorRow {
        task: "conv2d f32[1,64,56,56] w[64,64,3,3] p=1 +bias +add +relu".to_owned(),
        task_hash: String::new(),
        count: 2,
        schedule: String::new(),
        difference: "outer=space pad_at=outer parallel=3 split_r=16 tile_x=2 tile_y=2".to_owned(),
        threads: 2,
        median_ns: 1.06e6,
        spread: Some(0.008),
        visits_ns: Vec::new(),
        gflops: 220.4,
        roofline: Some(0.72),
        saves_products: false,
        share: 0.984,
        share_spread: Some(0.012),
        default_over_best: Some(1.9),
        attempts: 1,
        measured: (8, 8),
    };
    let uncertain = OperatorRow {
        task: "dense f32[1,512] w[1000,512] +bias".to_owned(),
        count: 1,
        difference: "default".to_owned(),
        median_ns: 35.0e3,
        spread: Some(2.09),
        gflops: 29.2,
        roofline: Some(0.11),
        share: 0.016,
        default_over_best: None,
        ..row.clone()
    };
    let missing = vec!["softmax f32[1,1000]".to_owned()];
    Summary {
        model: "small".to_owned(),
        batch: Some(1),
        rows: vec![row, uncertain],
        missing,
        total_ns: 2.155e6,
        total_spread: Some(0.035),
        totals_by_caches: Vec::new(),
        uncertain_share: 0.016,
        simulated: None,
    }
}

fn check(width: usize, wanted: Expect) {
    wanted.assert_eq(&render_summary(&summary(), &Paper::without_colours(width)));
}

#[test]
fn a_model_without_operators_has_no_total() {
    let empty = Summary { rows: Vec::new(), missing: Vec::new(), ..summary() };
    let text = render_summary(&empty, &Paper::without_colours(80));
    assert_eq!(text, "small (batch 1): no operators; each output is an input or a constant");
}

#[test]
fn at_60_columns() {
    check(
        60,
        expect![[r#"
            small (batch 1)
            operator                   median        ±  roofline   share
            ────────────────────────────────────────────────────────────
            conv2d f32[1,64,56,56]    1.06 ms    0.8 %      72 %  98.4 %
            w[64,64,3,3] p=1 +bias
            +add +relu
            dense f32[1,512]          35.0 µs  209.0 %      11 %   1.6 %
            w[1000,512] +bias
            columns omitted for lack of width: ×, threads, GFLOP/s, ±
            share, default, best schedule, where it differs
            total of 3 operators with their best schedules: 2.15 ms ± 3.5 %
            1.6 % of the total are medians that are not known to 10 %
            best: lowest upper end of the median's interval
            no time for softmax f32[1,1000]"#]],
    );
}

#[test]
fn at_80_columns() {
    check(
        80,
        expect![[r#"
            small (batch 1)
            operator                          ×  threads   median        ±  roofline   share
            ────────────────────────────────────────────────────────────────────────────────
            conv2d f32[1,64,56,56]            2        2  1.06 ms    0.8 %      72 %  98.4 %
            w[64,64,3,3] p=1 +bias +add
            +relu
            dense f32[1,512] w[1000,512]      1        2  35.0 µs  209.0 %      11 %   1.6 %
            +bias
            columns omitted for lack of width: GFLOP/s, ± share, default, best schedule,
            where it differs
            total of 3 operators with their best schedules: 2.15 ms ± 3.5 %
            1.6 % of the total are medians that are not known to 10 %
            best: lowest upper end of the median's interval
            no time for softmax f32[1,1000]"#]],
    );
}

#[test]
fn at_120_columns() {
    check(
        120,
        expect![[r#"
            small (batch 1)
            operator                  ×  threads   median        ±  GFLOP/s  roofline   share       ±  default  best schedule, where
                                                                                                share           it differs
            ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
            conv2d f32[1,64,56,56]    2        2  1.06 ms    0.8 %      220      72 %  98.4 %   1.2 %    1.90×  outer=space
            w[64,64,3,3] p=1 +bias                                                                              pad_at=outer
            +add +relu                                                                                          parallel=3
                                                                                                                split_r=16 tile_x=2
                                                                                                                tile_y=2
            dense f32[1,512]          1        2  35.0 µs  209.0 %     29.2      11 %   1.6 %   1.2 %        –  default
            w[1000,512] +bias
            total of 3 operators with their best schedules: 2.15 ms ± 3.5 %
            1.6 % of the total are medians that are not known to 10 %
            best: lowest upper end of the median's interval
            no time for softmax f32[1,1000]"#]],
    );
}

#[test]
fn at_180_columns() {
    check(
        180,
        expect![[r#"
            small (batch 1)
            operator                                              ×  threads   median        ±  GFLOP/s  roofline   share  ± share  default  best schedule, where it differs
            ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
            conv2d f32[1,64,56,56] w[64,64,3,3] p=1 +bias +add    2        2  1.06 ms    0.8 %      220      72 %  98.4 %    1.2 %    1.90×  outer=space pad_at=outer parallel=3 split_r=16
            +relu                                                                                                                            tile_x=2 tile_y=2
            dense f32[1,512] w[1000,512] +bias                    1        2  35.0 µs  209.0 %     29.2      11 %   1.6 %    1.2 %        –  default
            total of 3 operators with their best schedules: 2.15 ms ± 3.5 %
            1.6 % of the total are medians that are not known to 10 %
            best: lowest upper end of the median's interval
            no time for softmax f32[1,1000]"#]],
    );
}

#[test]
fn uncertain_and_slow_operators_are_highlighted() {
    let text = render_summary(&summary(), &Paper { width: 120, has_colours: true });
    assert!(text.contains("\u{1b}[33m209.0 %\u{1b}[0m"), "{text:?}");
    assert!(text.contains("\u{1b}[31m11 %\u{1b}[0m"), "{text:?}");
    assert!(!text.contains("m0.8 %"), "{text:?}");
}

#[test]
fn a_rate_above_the_peak_has_its_reason() {
    let mut summary = summary();
    summary.rows[0].roofline = Some(1.8);
    let text = |summary: &Summary| render_summary(summary, &Paper::without_colours(200));
    assert!(
        text(&summary).contains("roofline above 100 % in 1: single measurements do not raise the peak"),
        "{}",
        text(&summary)
    );
    summary.rows[0].attempts = 2;
    assert!(
        text(&summary).contains("roofline above 100 % in 1: some counted bytes stay in caches"),
        "{}",
        text(&summary)
    );
    summary.rows[0].saves_products = true;
    assert!(text(&summary).contains("above 100 % in 1: not all counted products are computed"), "{}", text(&summary));
    // The schedule is written as in a campaign.
    let knobs =
        job::space::Knobs([("algorithm".to_owned(), job::space::Setting::Choice("winograd2".to_owned()))].into());
    let schedule = Schedule::Template { knobs }.to_json();
    let schedule = serde_json::from_str::<serde_json::Value>(&schedule).expect("JSON");
    let record = Record { schedule: Some(datasets::Json::from(schedule)), ..Record::default() };
    assert!(record.saves_products());
    assert!(!Record::default().saves_products());
}

#[test]
fn a_default_faster_than_the_best_is_noted() {
    let mut summary = summary();
    summary.rows[0].default_over_best = Some(0.97);
    let text = render_summary(&summary, &Paper::without_colours(180));
    assert!(text.contains("0.97×") && text.contains("default below 1× in 1: its median is lower"), "{text}");
}

#[test]
fn several_cache_states_have_a_total_each() {
    let record = |caches: CacheState, median_ns: f64, outcome: Outcome| Record {
        outcome,
        cache_state: Some(caches),
        median_ns: Some(median_ns),
        median_interval_ns: Some(median_ns / 1000.0),
        ..Record::default()
    };
    let ok = |caches, median_ns| record(caches, median_ns, Outcome::Ok);
    let first = [ok(CacheState::Warm, 10.0), ok(CacheState::Network, 14.0), ok(CacheState::Cold, 20.0)];
    let second =
        [ok(CacheState::Warm, 5.0), ok(CacheState::Network, 6.0), record(CacheState::Cold, 7.0, Outcome::Crashed)];
    let (first, second): (Vec<&Record>, Vec<&Record>) = (first.iter().collect(), second.iter().collect());
    let total = |cache_state, total_ns| CachesTotal { cache_state, total_ns };
    let totals = totals_by_caches(&[(2, &first), (1, &second)]);
    assert_eq!(totals, [total("warm", 25.0), total("network", 34.0)], "one operator has no time with cold caches");
    assert_eq!(totals_by_caches(&[(2, &first[..1]), (1, &second[..1])]), [], "a single state is the total");
    assert_eq!(totals_by_caches(&[]), []);
    let text = render_summary(&Summary { totals_by_caches: totals, ..summary() }, &Paper::without_colours(80));
    assert!(text.contains("\ntotals by state of the caches: warm 25.0 ns, network 34.0 ns\n"), "{text}");
}
