//! Report of a comparison as terminal text and as GitHub-flavoured Markdown.

use super::causes::Cause;
use super::cell::shorten_hash;
use super::change_points::ChangePoint;
use super::history::LineIdentity;
use super::judge::{Change, Drift, Verdict};
use report::{Paper, Table, format_count, format_duration, format_number, format_percent, number_column, text_column};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Maximum number of rows of a table. The JSON document contains all rows.
const ROWS: usize = 40;
/// Maximum number of differing settings in a sentence.
const CAUSES: usize = 3;

pub fn render_text(drift: &Drift, change_points: &[ChangePoint], paper: &Paper) -> String {
    let mut parts = Vec::new();
    let shown: Vec<&Change> = changed_lines(drift).take(ROWS).collect();
    if !shown.is_empty() {
        let mut table = Table::new([
            text_column("operator").min_width(24),
            number_column("threads"),
            number_column("before"),
            number_column("after").drop_order(2),
            number_column("ratio"),
            number_column("95 % interval"),
            number_column("q-value").drop_order(1),
            text_column("code").drop_order(3),
        ]);
        for change in &shown {
            table.add_row([
                report::Cell::from(line_title(&change.identity)),
                format_threads(&change.identity).into(),
                format_duration(change.before_ns).into(),
                format_duration(change.after_ns).into(),
                ratio_cell(change),
                format!("{} … {}", format_ratio(change.interval.0), format_ratio(change.interval.1)).into(),
                format_q_value(change.q_value).into(),
                code_causes(&change.causes).into(),
            ]);
        }
        parts.push(table.format_for(paper));
    }
    let rest = changed_lines(drift).count() - shown.len();
    if rest > 0 {
        parts.push(format!("{} in `--json` and `--html`", format_count(rest, "more line")));
    }
    parts.extend(drift.lost.iter().take(ROWS).map(|lost| format!("no longer has a time: {}", line_title(lost))));
    parts.extend(change_points.iter().take(ROWS).map(describe_change_point));
    parts.extend(describe_causes(drift));
    let more_causes = drift.causes.iter().skip(CAUSES);
    parts.extend(more_causes.map(|cause| format!("{}: {}", cause.name, before_after(cause))));
    parts.push(verdict_sentence(drift));
    parts.join("\n")
}

pub fn render_markdown(drift: &Drift, change_points: &[ChangePoint]) -> String {
    let mut text = format!("{}\n", verdict_sentence(drift));
    let shown: Vec<&Change> = changed_lines(drift).take(ROWS).collect();
    if !shown.is_empty() {
        text.push_str(
            "\n| operator | threads | before | after | ratio | 95 % interval | code |\n| --- | ---: | ---: | ---: | \
             ---: | ---: | --- |\n",
        );
        for change in shown {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | **{}** | {} … {} | {} |",
                escape_cell(&line_title(&change.identity)),
                format_threads(&change.identity),
                format_duration(change.before_ns),
                format_duration(change.after_ns),
                format_number(change.ratio),
                format_ratio(change.interval.0),
                format_ratio(change.interval.1),
                escape_cell(&code_causes(&change.causes)),
            );
        }
    }
    let more_causes = drift.causes.iter().skip(CAUSES);
    let lists = [
        drift.lost.iter().map(|lost| format!("no longer has a time: {}", line_title(lost))).collect::<Vec<_>>(),
        change_points.iter().map(describe_change_point).collect(),
        describe_causes(drift).into_iter().collect(),
        more_causes.map(|cause| format!("`{}`: {}", cause.name, before_after(cause))).collect(),
        drift.notes.iter().map(|note| format!("note: {note}")).collect(),
    ];
    for list in lists.iter().filter(|list| !list.is_empty()) {
        text.push('\n');
        list.iter().take(ROWS).for_each(|item| {
            let _ = writeln!(text, "- {}", escape_cell(item));
        });
    }
    text
}

fn escape_cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}

pub(super) fn changed_lines(drift: &Drift) -> impl Iterator<Item = &Change> {
    drift.changes.iter().filter(|change| matches!(change.verdict, Verdict::Slower | Verdict::Faster))
}

fn ratio_cell(change: &Change) -> report::Cell {
    let cell = report::Cell::from(format_number(change.ratio));
    if change.verdict == Verdict::Slower { cell.mark_bad() } else { cell.mark_best() }
}

/// Returns the number of threads, or nothing if it is unknown.
pub(super) fn format_threads(identity: &LineIdentity) -> String {
    identity.threads.map_or(String::new(), |threads| threads.to_string())
}

pub(super) fn line_title(identity: &LineIdentity) -> String {
    let cold = identity.cache_state.filter(|state| *state != "warm").map(|state| format!(" ({state} caches)"));
    let schedule = identity.schedule_hash.as_deref().map(|hash| format!(", schedule {}", shorten_hash(hash)));
    let host = identity.host.as_deref().map(|host| format!(" on {host}"));
    let network = identity.network.as_deref().map(|hash| format!(" in the network {}", shorten_hash(hash)));
    [Some(identity.task.clone()), cold, schedule, network, host].into_iter().flatten().collect()
}

pub(super) fn code_causes(causes: &[Cause]) -> String {
    match causes {
        [] => "unchanged".to_owned(),
        causes => {
            causes.iter().map(|cause| format!("{} {}", cause.name, before_after(cause))).collect::<Vec<_>>().join("; ")
        }
    }
}

/// Formats the end of an interval of a ratio. The size of a ratio beyond a factor of 100 has no meaning.
pub fn format_ratio(ratio: f64) -> String {
    const MOST: f64 = 100.0;
    match ratio {
        ratio if ratio > MOST => format!("> {MOST:.0}"),
        ratio if ratio < 1.0 / MOST => format!("< {}", 1.0 / MOST),
        _ => format_number(ratio),
    }
}

/// Describes the recorded differences between the sides and whether they may explain the changes of lines.
pub(super) fn describe_causes(drift: &Drift) -> Option<String> {
    if drift.nights.len() < 2 {
        return None;
    }
    let changed = changed_lines(drift).count();
    let unchanged = changed_lines(drift).filter(|change| change.causes.is_empty()).count();
    let code = match (changed, unchanged) {
        (0, _) => String::new(),
        (_, 0) => "; the code of all changed lines differs".to_owned(),
        _ if unchanged == changed => "; the code of all changed lines is the same".to_owned(),
        _ => format!("; the code of {unchanged} of {} is the same", format_count(changed, "changed line")),
    };
    let settings: Vec<String> =
        drift.causes.iter().take(CAUSES).map(|cause| format!("{} {}", cause.name, before_after(cause))).collect();
    let settings = match drift.causes.len().saturating_sub(CAUSES) {
        _ if settings.is_empty() => return Some(format!("no recorded setting differs between before and after{code}")),
        0 => settings.join(", "),
        more => format!("{} and {more} more", settings.join(", ")),
    };
    Some(format!("recorded differences between before and after: {settings}{code}"))
}

/// Largest number of characters of a value.
const VALUE_CHARACTERS: usize = 48;
/// Number of common characters that precede the first difference of shortened values.
const CONTEXT_CHARACTERS: usize = 16;

pub(super) fn before_after(cause: &Cause) -> String {
    let skipped = common_prefix(cause).saturating_sub(CONTEXT_CHARACTERS);
    format!("{} → {}", list_values(&cause.before, skipped), list_values(&cause.after, skipped))
}

/// Returns the number of characters at the beginning that all values of both sides have in common.
fn common_prefix(cause: &Cause) -> usize {
    let mut values = cause.before.iter().chain(&cause.after);
    let Some(first) = values.next() else { return 0 };
    let common = |other: &String| first.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
    values.map(common).min().unwrap_or(0)
}

/// Lists values. Those that are too long lack `skipped` common characters at the beginning, so that the part in which
/// they differ is shown.
fn list_values(values: &BTreeSet<String>, skipped: usize) -> String {
    let short = |text: &String| {
        if text.chars().count() <= VALUE_CHARACTERS {
            return text.clone();
        }
        let start = if skipped > 0 { "…" } else { "" };
        let rest: Vec<char> = text.chars().skip(skipped).collect();
        let end = if rest.len() > VALUE_CHARACTERS { "…" } else { "" };
        let shown = if end.is_empty() { rest.len() } else { VALUE_CHARACTERS - 1 };
        format!("{start}{}{end}", rest[..shown].iter().collect::<String>())
    };
    let texts: Vec<String> = values.iter().take(4).map(short).collect();
    match (texts.is_empty(), values.len() > 4) {
        (true, _) => "unknown".to_owned(),
        (false, true) => format!("{} and {} more", texts.join(", "), values.len() - 4),
        (false, false) => texts.join(", "),
    }
}

/// Formats the expected share of false discoveries; an estimate is never exactly zero.
pub(super) fn format_q_value(q_value: f64) -> String {
    if q_value < 5e-4 { "< 0.1 %".to_owned() } else { format_percent(q_value) }
}

pub(super) fn describe_change_point(change_point: &ChangePoint) -> String {
    let threads = change_point
        .identity
        .threads
        .map_or(String::new(), |threads| format!(" on {}", format_count(threads, "thread")));
    let when = if change_point.nights_after == 1 { "one night, " } else { "since " };
    // The label, not the title, because `STORE@night=LABEL` selects a night.
    format!(
        "{when}{}, × {}: {}{threads}",
        change_point.night,
        format_number(change_point.ratio),
        line_title(&change_point.identity)
    )
}

/// Returns the numbers of lines by verdict, and [`comparison_facts`].
pub fn verdict_sentence(drift: &Drift) -> String {
    if drift.nights.len() < 2 {
        return "there is only one nightly run, and none to compare it with".to_owned();
    }
    let count = |verdict: Verdict| drift.count_verdict(verdict);
    let (compared, slower, faster) = (drift.changes.len(), count(Verdict::Slower), count(Verdict::Faster));
    format!(
        "{} on both sides: {slower} slower, {faster} faster, {} the same within {}, no significant change in {}; {}",
        format_count(compared, "line"),
        count(Verdict::Same),
        format_percent(drift.bounds.threshold),
        count(Verdict::Unclear),
        comparison_facts(drift)
    )
}

/// Returns the machine's change, the smallest change that is usually detected, and the numbers of one-sided lines.
pub(super) fn comparison_facts(drift: &Drift) -> String {
    let mut text = match drift.machine.sentinels {
        0 if drift.machine_ratio == 1.0 => "no sentinels".to_owned(),
        0 => format!("no sentinels; machine × {} by the median of all lines", format_number(drift.machine_ratio)),
        sentinels => {
            let aspects: Vec<String> = drift
                .machine_aspects
                .iter()
                .filter(|(_, ratio)| ratio.is_finite())
                .map(|(aspect, ratio)| format!("{} × {}", aspect.name(), format_number(*ratio)))
                .collect();
            format!(
                "machine × {} by {} ({})",
                format_number(drift.machine_ratio),
                format_count(sentinels, "sentinel"),
                aspects.join(", ")
            )
        }
    };
    if let Some(from) = drift.seen_from {
        text.push_str(&format!("; a change of {} would be detected in half of the lines", format_percent(from)));
    }
    if drift.only != (0, 0) {
        text.push_str(&format!("; {} lines only before, {} only after", drift.only.0, drift.only.1));
    }
    text
}
