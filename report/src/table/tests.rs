//! Tests of tables at several widths.

use super::*;
use expect_test::expect;
use proptest::prelude::*;

fn operators() -> Table {
    let mut table = Table::new([
        text_column("operator").min_width(24),
        number_column("×").drop_order(2),
        number_column("threads").drop_order(5),
        number_column("median"),
        number_column("±"),
        number_column("GFLOP/s").drop_order(4),
        number_column("roofline").drop_order(3),
        number_column("share"),
        text_column("best schedule, where it differs").min_width(20).drop_order(1),
    ]);
    let row = |text: &str, median: &str, spread: Cell, schedule: &str| -> Vec<Cell> {
        let figures = ["87.2", "62 %", "31.5 %"].map(Cell::from);
        let first = [text.into(), "2".into(), "4".into(), Cell::from(median).mark_best(), spread];
        first.into_iter().chain(figures).chain([schedule.into()]).collect()
    };
    let long = "conv2d f32[1,64,56,56] w[64,64,3,3] stride 1 pad 1 + add + relu";
    table.add_row(row(long, "1.24 ms", "0.8 %".into(), "tile_x=8 tile_y=4 unroll=16 vectorise=16 layout=blocked"));
    table.add_row(row("dense f32[1,512] w[1000,512]", "92.0 µs", Cell::from("209 %").mark_uncertain(), ""));
    table.add_row(row("softmax f32[1,1000]", "–", Cell::from("–").mark_uncertain(), "the default"));
    table
}

fn check(width: usize, wanted: expect_test::Expect) {
    wanted.assert_eq(&operators().format_for(&Paper::without_colours(width)));
}

#[test]
fn a_name_with_line_breaks_takes_one_line() {
    let mut table = Table::new([text_column("name"), number_column("calls")]);
    table.add_row(["first\nsecond", "1"]);
    let text = table.format_for(&Paper::without_colours(80));
    assert!(text.lines().count() == 3 && text.contains("first\\nsecond"), "{text}");
}

#[test]
fn at_180_columns_nothing_is_dropped() {
    check(
        180,
        expect![[r#"
        operator                                                         ×  threads   median      ±  GFLOP/s  roofline   share  best schedule, where it differs
        ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
        conv2d f32[1,64,56,56] w[64,64,3,3] stride 1 pad 1 + add + relu  2        4  1.24 ms  0.8 %     87.2      62 %  31.5 %  tile_x=8 tile_y=4 unroll=16 vectorise=16 layout=blocked
        dense f32[1,512] w[1000,512]                                     2        4  92.0 µs  209 %     87.2      62 %  31.5 %
        softmax f32[1,1000]                                              2        4        –      –     87.2      62 %  31.5 %  the default"#]],
    );
}

#[test]
fn at_120_columns_words_wrap() {
    check(
        120,
        expect![[r#"
        operator                          ×  threads   median      ±  GFLOP/s  roofline   share  best schedule, where it differs
        ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
        conv2d f32[1,64,56,56]            2        4  1.24 ms  0.8 %     87.2      62 %  31.5 %  tile_x=8 tile_y=4 unroll=16
        w[64,64,3,3] stride 1 pad 1 +                                                            vectorise=16 layout=blocked
        add + relu
        dense f32[1,512] w[1000,512]      2        4  92.0 µs  209 %     87.2      62 %  31.5 %
        softmax f32[1,1000]               2        4        –      –     87.2      62 %  31.5 %  the default"#]],
    );
}

#[test]
fn at_80_columns_the_least_important_column_is_dropped() {
    check(
        80,
        expect![[r#"
            operator                    ×   median      ±   share  best schedule, where it
                                                                   differs
            ────────────────────────────────────────────────────────────────────────────────
            conv2d f32[1,64,56,56]      2  1.24 ms  0.8 %  31.5 %  tile_x=8 tile_y=4
            w[64,64,3,3] stride 1 pad                              unroll=16 vectorise=16
            1 + add + relu                                         layout=blocked
            dense f32[1,512]            2  92.0 µs  209 %  31.5 %
            w[1000,512]
            softmax f32[1,1000]         2        –      –  31.5 %  the default
            columns omitted for lack of width: threads, GFLOP/s, roofline"#]],
    );
}

#[test]
fn at_60_columns_more_drops() {
    check(
        60,
        expect![[r#"
            operator                               median      ±   share
            ────────────────────────────────────────────────────────────
            conv2d f32[1,64,56,56] w[64,64,3,3]   1.24 ms  0.8 %  31.5 %
            stride 1 pad 1 + add + relu
            dense f32[1,512] w[1000,512]          92.0 µs  209 %  31.5 %
            softmax f32[1,1000]                         –      –  31.5 %
            columns omitted for lack of width: ×, threads, GFLOP/s,
            roofline, best schedule, where it differs"#]],
    );
}

#[test]
fn at_40_columns_rows_stack() {
    check(
        40,
        expect![[r#"
            operator       conv2d f32[1,64,56,56]
                           w[64,64,3,3] stride 1 pad
                           1 + add + relu
            ×              2
            threads        4
            median         1.24 ms
            ±              0.8 %
            GFLOP/s        87.2
            roofline       62 %
            share          31.5 %
            best           tile_x=8 tile_y=4
            schedule,      unroll=16 vectorise=16
            where it       layout=blocked
            differs

            operator       dense f32[1,512]
                           w[1000,512]
            ×              2
            threads        4
            median         92.0 µs
            ±              209 %
            GFLOP/s        87.2
            roofline       62 %
            share          31.5 %

            operator       softmax f32[1,1000]
            ×              2
            threads        4
            median         –
            ±              –
            GFLOP/s        87.2
            roofline       62 %
            share          31.5 %
            best           the default
            schedule,
            where it
            differs"#]],
    );
}

#[test]
fn colours_highlight_and_need_no_width() {
    let plain = operators().format_for(&Paper::without_colours(80));
    let coloured = operators().format_for(&Paper { width: 80, has_colours: true });
    assert!(coloured.contains("\u{1b}[32m1.24 ms\u{1b}[0m"), "{coloured:?}");
    assert!(coloured.contains("\u{1b}[33m209 %\u{1b}[0m"), "{coloured:?}");
    let without = coloured.replace("\u{1b}[32m", "").replace("\u{1b}[33m", "").replace("\u{1b}[0m", "");
    assert_eq!(without, plain);
    assert!(!plain.contains('\u{1b}'));
}

#[test]
fn wide_letters_take_two_places() {
    let mut table = Table::new([text_column("name"), number_column("n")]);
    table.add_row(["畳み込み", "1"]);
    table.add_row(["abc", "22"]);
    expect![[r#"
        name       n
        ────────────
        畳み込み   1
        abc       22"#]]
    .assert_eq(&table.format_for(&Paper::without_colours(80)));
}

#[test]
fn a_long_word_breaks_and_a_short_row_is_filled() {
    let mut table = Table::new([text_column("path").min_width(8), number_column("rows")]);
    table.add_row(["a/very/long/path/without/any/blank"]);
    expect![[r#"
        path                rows
        ────────────────────────
        a/very/long/path/w
        ithout/any/blank"#]]
    .assert_eq(&table.format_for(&Paper::without_colours(24)));
}

#[test]
fn a_table_without_rows_shows_its_headings() {
    expect![[r#"
        a  b
        ────"#]]
    .assert_eq(&Table::new([text_column("a"), number_column("b")]).format_for(&Paper::without_colours(80)));
    assert_eq!(Table::new([]).format_for(&Paper::without_colours(80)), "");
}

proptest! {
    #[test]
    fn tables_fit_their_width_and_numbers_are_never_cut(
        width in 24usize..200,
        texts in prop::collection::vec(("[a-z ]{0,60}", "[0-9]{1,9}", "[0-9]{1,9}", "[a-z]{0,40}"), 0..6),
    ) {
        let mut table = Table::new([
            text_column("what"),
            number_column("so many"),
            number_column("more").drop_order(1),
            text_column("rest").drop_order(2),
        ]);
        for (what, many, more, rest) in &texts {
            table.add_row([what.as_str(), many, more, rest]);
        }
        let text = table.format_for(&Paper::without_colours(width));
        prop_assert!(text.lines().all(|line| display_width(line) <= width), "{text}");
        prop_assert!(texts.iter().all(|(_, many, _, _)| text.contains(many.as_str())), "{text}");
    }
}

#[test]
fn a_page_has_the_same_cells() {
    let mut table = Table::new([text_column("name"), number_column("time")]);
    table.add_row(["<a>", "1 µs"]);
    let wanted = "<table>\n<tr><th>name</th><th>time</th></tr>\n<tr><td>&lt;a&gt;</td><td>1 µs</td></tr>\n</table>\n";
    assert_eq!(table.to_html(), wanted);
}
