//! HTML pages that need no server: evaluations, heat maps and curves, as text and inline SVG without scripts.

mod curve;
mod evaluation;
mod evaluation_charts;
mod evaluation_errors;
mod evaluation_ranking;
mod evaluation_verdict;
mod heat_map;
mod lanes;
mod meanings;
mod placement;
mod plan_times;
mod slowdowns;
mod swarm;

pub use curve::{curves_page, describe_knee, point_remark};
pub use evaluation::evaluation_tables;
pub use evaluation_errors::{
    describe_repeats, format_coverage, format_error, format_error_interval, format_network_interval,
    format_signed_error, learner_label, other_coverage, sort_learners,
};
pub use evaluation_ranking::{format_rank, format_schedules, format_top1_interval, sort_ranking};
pub use heat_map::{SIGNIFICANT, format_q_value, heat_map};
pub use lanes::{Lane, MeasuredLanes, plan_page};
pub use placement::{describe_move, describe_placement, describe_time, placement_page};
pub use plan_times::{PlanFacts, describe_plan};
pub use slowdowns::slowdowns_page;
pub use swarm::swarm_page;

use report::page::{break_name, escape_html as escape, wider_note};

const STYLE: &str = include_str!("pages.css");

/// Keeps numbers and units on the same line.
fn keep_units(body: &str) -> String {
    [" %", " GB/s", " MB"].iter().fold(body.to_owned(), |body, unit| body.replace(unit, &unit.replace(' ', "\u{a0}")))
}

/// Returns the content of a cell: a value and its interval, if it has one, which narrow windows show below the value.
fn value_with_interval(value: &str, interval: Option<&str>) -> String {
    let interval = interval.map_or(String::new(), |text| format!(" <span class=\"soft under\">({text})</span>"));
    format!("{value}{interval}")
}

/// Folds a long table in narrow windows, which then show its first rows and a button for all. `id` is unique on the
/// page.
fn fold_narrow(id: &str, rows: usize, table: &str) -> String {
    /// Number of rows that narrow windows show at first; also in `pages.css`.
    const SHOWN: usize = 20;
    match rows > SHOWN {
        true => format!(
            "<div class=\"folds\"><input type=\"checkbox\" id=\"{id}\">{table}<label class=\"narrow\" for=\"{id}\">show \
             all {rows} rows</label></div>"
        ),
        false => table.to_owned(),
    }
}

/// Emphasises a sentence up to its first parenthesis.
fn emphasize_start(sentence: &str) -> String {
    let (start, rest) = sentence.split_at(sentence.find(" (").unwrap_or(sentence.len()));
    format!("<b>{}</b>{}", escape(start), escape(rest))
}

fn styled_page(title: &str, body: &str) -> String {
    let style = format!("{}{STYLE}", report::page::chart::STYLE);
    let body = keep_units(body);
    report::page::whole_page(title, &style, &format!("<main><h1>{}</h1>\n{body}</main>", escape(title)))
}

#[cfg(test)]
mod tests {
    use super::{STYLE, emphasize_start, fold_narrow};

    #[test]
    fn long_tables_are_folded() {
        assert_eq!(fold_narrow("a", 20, "<table>"), "<table>");
        assert!(fold_narrow("a", 21, "<table>").contains("<table><label class=\"narrow\" for=\"a\">show all 21 rows"));
        // The first row contains the titles.
        assert!(STYLE.contains("tr:nth-child(n + 22):not(:last-child)"));
    }

    #[test]
    fn the_start_of_a_sentence_is_emphasized() {
        assert_eq!(emphasize_start("x < 2 (y): z"), "<b>x &lt; 2</b> (y): z");
        assert_eq!(emphasize_start("x"), "<b>x</b>");
    }
}
