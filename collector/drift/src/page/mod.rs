//! HTML report: changed lines with their intervals, change points, the history of each changed line, and a heat map of
//! operators by night.

mod changes;
mod curves;
mod heat_map;
mod parts;

use super::change_points::ChangePoint;
use super::history::{History, LineIdentity, Side};
use super::judge::{Drift, Verdict};
use super::text::{
    before_after, changed_lines, comparison_facts, describe_causes, format_q_value, format_ratio, format_threads,
    line_title, verdict_sentence,
};
use super::title::night_title;
use parts::{LINES, more_lines};
use report::page::chart::STYLE;
use report::page::{escape_html, whole_page, wider_note};
use report::{format_count, format_number, format_percent, to_sentence};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Renders the page; `appendix` contains further sections as HTML.
pub fn render_page(
    title: &str,
    history: &History,
    drift: &Drift,
    change_points: &[ChangePoint],
    appendix: &str,
) -> String {
    let mut body = format!("<main><h1>{}</h1>\n{}", escape_html(title), answer_paragraph(drift));
    // The answer and the tiles have the numbers of lines.
    let facts = if drift.nights.len() < 2 { verdict_sentence(drift) } else { comparison_facts(drift) };
    // The machine's factor occurs only in a comparison.
    let explained = match drift.nights.len() > 1 && drift.machine.sentinels > 0 {
        true => " Machine: change of the sentinels, which are fixed operators; the ratios are corrected for it.",
        false => "",
    };
    body += &format!("<p class=\"soft\">{}{explained}</p>\n", escape_html(&to_sentence(&facts)));
    if drift.nights.len() > 1 {
        body += &format!("<p class=\"soft\">{}</p>\n", escape_html(&describe_sides(drift)));
        body += &verdict_tiles(drift);
    }
    for note in &drift.notes {
        let _ = write!(body, "<p class=\"soft\">note: {}</p>", escape_html(note));
    }
    let lines = curves::lines_with_curves(history, drift, change_points);
    body += &causes_section(drift);
    body += &changes::changes_section(drift, &lines);
    body += &lost_section(drift);
    body += &change_points_section(history, drift, change_points, &lines);
    body += &curves::curves_section(&lines, history, drift, change_points);
    // With two nights, the table shows everything.
    if history.nights.len() > 2 {
        body += &heat_map::heat_map_section(history, drift);
    }
    body += appendix;
    whole_page(title, &format!("{STYLE}{}", include_str!("page.css")), &format!("{body}</main>"))
}

fn verdict_tiles(drift: &Drift) -> String {
    let tiles = [
        ("slower", "slower".to_owned(), Verdict::Slower),
        ("faster", "faster".to_owned(), Verdict::Faster),
        (
            "same",
            format!("same within {}", format_percent(drift.bounds.threshold).replace(' ', "\u{a0}")),
            Verdict::Same,
        ),
        ("unclear", "no significant change".to_owned(), Verdict::Unclear),
    ];
    let tile = |(class, name, verdict): (&str, String, Verdict)| {
        format!("<li class=\"{class}\"><b>{}</b>{name}</li>", drift.count_verdict(verdict))
    };
    format!("<ul class=\"tiles\">{}</ul>\n", tiles.map(tile).concat())
}

fn causes_section(drift: &Drift) -> String {
    if drift.causes.is_empty() {
        return String::new();
    }
    let row = |cause: &super::Cause| {
        format!("<tr><td>{}</td><td>{}</td></tr>", escape_html(&cause.name), escape_html(&before_after(cause)))
    };
    format!(
        "<h2>What differs between before and after</h2>\n<div class=\"wide\"><table class=\"texts\"><tr><th>setting</th>\
         <th>before → after</th></tr>{}</table></div>\n",
        drift.causes.iter().map(row).collect::<String>()
    )
}

fn lost_section(drift: &Drift) -> String {
    if drift.lost.is_empty() {
        return String::new();
    }
    let item = |lost: &super::LineIdentity| format!("<li>{}</li>", escape_html(&line_title(lost)));
    format!(
        "<h2>No longer have a time</h2>\n<ul>{}</ul>\n{}",
        drift.lost.iter().take(LINES).map(item).collect::<String>(),
        more_lines(drift.lost.len())
    )
}

/// Returns the change points that the table of changes does not show already: those of lines that it does not contain,
/// and those elsewhere than between the sides.
fn change_points_section(
    history: &History,
    drift: &Drift,
    change_points: &[ChangePoint],
    lines: &[curves::CurveLine<'_>],
) -> String {
    if change_points.is_empty() {
        return String::new();
    }
    let changed: BTreeSet<&LineIdentity> = changed_lines(drift).map(|change| &change.identity).collect();
    // Each host has its own nights, and a line may have no time in the first of them.
    let first_nights: BTreeMap<&LineIdentity, usize> = history
        .lines
        .iter()
        .filter_map(|line| Some((&line.identity, line.first_night_after(&history.nights)?)))
        .collect();
    let is_in_table = |point: &ChangePoint| {
        changed.contains(&point.identity) && first_nights.get(&point.identity) == Some(&point.night_index)
    };
    let others: Vec<&ChangePoint> = change_points.iter().filter(|point| !is_in_table(point)).collect();
    let mut body = format!(
        "<h2>Change points</h2>\n<p class=\"soft\">{}",
        describe_change_points(change_points.len() - others.len(), changed.len(), others.len())
    );
    if others.is_empty() {
        return body + "</p>\n";
    }
    body += " From the night of a change point on, the line has another level. The ratio compares the times from that \
             night on with those before, corrected for the machine. A level of one night may be an outlier.</p>\n";
    let row = |point: &&ChangePoint| {
        format!(
            "<tr><td>{}</td><td class=\"{}\">{}</td><td>{}</td><td>{}</td><td class=\"rest\">{}</td>\
             <td class=\"rest\">{}</td></tr>\n",
            curves::linked_title(&point.identity, lines),
            if point.ratio > 1.0 { "up" } else { "down" },
            format_number(point.ratio),
            escape_html(&night_title(&point.night)),
            format_count(point.nights_after, "night"),
            format_threads(&point.identity),
            format_q_value(point.q_value)
        )
    };
    body + &format!(
        "<div class=\"wide points\"><table><tr><th>operator</th><th>ratio</th><th>since</th><th>for</th>\
         <th class=\"rest\">threads</th><th class=\"rest\">q-value</th></tr>\n{}</table></div>\n{}\n{}",
        others.iter().take(LINES).map(row).collect::<String>(),
        wider_note(&["threads", "q-value"]),
        more_lines(others.len())
    )
}

/// Describes how many of the changed lines have a change point between the sides, and how many other change points the
/// table lists.
fn describe_change_points(between: usize, changed: usize, others: usize) -> String {
    let listed = match (changed, others) {
        (_, 0) => "There are no others.".to_owned(),
        (0, others) => format!("The table lists {}.", format_count(others, "change point")),
        (_, others) => format!("The table lists {}.", format_count(others, "other change point")),
    };
    if changed == 0 {
        return listed;
    }
    let verb = if between == 1 { "has" } else { "have" };
    let reason = match between < changed {
        true => "; the search over all nights estimates the variance between nights differently than the comparison",
        false => "",
    };
    format!(
        "{between} of the {} above {verb} a change point between the two sides{reason}. {listed}",
        format_count(changed, "changed line")
    )
}

/// Names the nights of each side.
fn describe_sides(drift: &Drift) -> String {
    let side = |side: Side| {
        let nights: Vec<&str> =
            drift.nights.iter().filter(|night| night.side == side).map(|night| night.label.as_str()).collect();
        match nights[..] {
            [] => "no nightly run".to_owned(),
            [only] => night_title(only),
            // Each host has its own nights.
            [first, .., last] => {
                let count = format_count(nights.len(), "nightly run");
                format!("{count} from {} to {}", night_title(first), night_title(last))
            }
        }
    };
    format!("Before: {}. After: {}.", side(Side::Before), side(Side::After))
}

/// Returns how many lines changed and the largest significant change, of the slower lines if there are any.
fn answer_paragraph(drift: &Drift) -> String {
    if drift.nights.len() < 2 {
        return String::new();
    }
    let lines = format_count(drift.changes.len(), "line");
    let largest = changed_lines(drift).next().map(|change| {
        format!(
            "{} of {lines} became significantly slower, {} faster. Largest {}: × {} (95 % between {} and {}), {}.",
            drift.count_verdict(Verdict::Slower),
            drift.count_verdict(Verdict::Faster),
            if change.verdict == Verdict::Slower { "slowdown" } else { "speed-up" },
            format_number(change.ratio),
            format_ratio(change.interval.0),
            format_ratio(change.interval.1),
            line_title(&change.identity)
        )
    });
    let answer = match largest {
        Some(largest) => largest,
        None if drift.changes.is_empty() => "No line has times on both sides.".to_owned(),
        None => format!("None of {lines} became significantly slower or faster."),
    };
    let causes = describe_causes(drift).map_or(String::new(), |text| format!(" {}", to_sentence(&text)));
    format!(
        "<p class=\"answer\">{} A line is an operator with its schedule, threads and host.</p>\n",
        escape_html(&format!("{answer}{causes}"))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_without_a_change_point_are_counted() {
        let text = "18 of the 19 changed lines above have a change point between the two sides; the search over all \
                    nights estimates the variance between nights differently than the comparison.";
        assert_eq!(describe_change_points(18, 19, 0), format!("{text} There are no others."));
        assert_eq!(describe_change_points(18, 19, 2), format!("{text} The table lists 2 other change points."));
        assert_eq!(
            describe_change_points(1, 1, 0),
            "1 of the 1 changed line above has a change point between the two sides. There are no others."
        );
        assert_eq!(describe_change_points(0, 0, 1), "The table lists 1 change point.");
    }
}
