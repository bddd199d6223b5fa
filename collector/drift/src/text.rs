//! Report of a comparison as terminal text and as GitHub-flavoured Markdown.

use super::causes::Cause;
use super::cell::first_signs;
use super::history::LineIdentity;
use super::judge::{Change, Drift, Verdict};
use super::turns::Turn;
use report::{Paper, Table, duration, figures, number, percent, words};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Maximum number of table rows. The JSON document is complete.
const ROWS: usize = 40;

/// Renders the report for a terminal.
pub fn render(drift: &Drift, turns: &[Turn], paper: &Paper) -> String {
    let mut parts = Vec::new();
    let told: Vec<&Change> = changed(drift).take(ROWS).collect();
    if !told.is_empty() {
        let mut table = Table::new([
            words("operator").least(24),
            figures("threads"),
            figures("before"),
            figures("after").drops(2),
            figures("ratio"),
            figures("95 % interval"),
            figures("by chance").drops(1),
            words("its code").drops(3),
        ]);
        for change in &told {
            table.row([
                report::Cell::from(title(&change.identity)),
                change.identity.threads.map_or(String::new(), |threads| threads.to_string()).into(),
                duration(change.before_ns).into(),
                duration(change.after_ns).into(),
                toned(change),
                format!("{} … {}", number(change.interval.0), number(change.interval.1)).into(),
                percent(change.q_value).into(),
                code(&change.causes).into(),
            ]);
        }
        parts.push(table.on(paper));
    }
    let rest = changed(drift).count() - told.len();
    if rest > 0 {
        parts.push(format!("and {rest} more, in `--json` and `--html`"));
    }
    parts.extend(drift.lost.iter().take(ROWS).map(|lost| format!("lost its time: {}", title(lost))));
    parts.extend(turns.iter().take(ROWS).map(describe_turn));
    let differing = drift.causes.iter().map(|cause| format!("{}: {}", cause.name, sides(cause)));
    parts.extend(differing);
    parts.push(verdict(drift));
    parts.join("\n")
}

/// Renders the report as GitHub-flavoured Markdown.
pub fn markdown(drift: &Drift, turns: &[Turn]) -> String {
    let mut text = format!("{}\n", verdict(drift));
    let told: Vec<&Change> = changed(drift).take(ROWS).collect();
    if !told.is_empty() {
        text.push_str("\n| operator | threads | before | after | ratio | 95 % interval | its code |\n| --- | ---: | ---: | ---: | ---: | ---: | --- |\n");
        for change in told {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | **{}** | {} … {} | {} |",
                cell(&title(&change.identity)),
                change.identity.threads.map_or(String::new(), |threads| threads.to_string()),
                duration(change.before_ns),
                duration(change.after_ns),
                number(change.ratio),
                number(change.interval.0),
                number(change.interval.1),
                cell(&code(&change.causes)),
            );
        }
    }
    let lists = [
        drift.lost.iter().map(|lost| format!("lost its time: {}", title(lost))).collect::<Vec<_>>(),
        turns.iter().map(describe_turn).collect(),
        drift.causes.iter().map(|cause| format!("`{}`: {}", cause.name, sides(cause))).collect(),
        drift.notes.iter().map(|note| format!("note: {note}")).collect(),
    ];
    for list in lists.iter().filter(|list| !list.is_empty()) {
        text.push('\n');
        list.iter().take(ROWS).for_each(|item| {
            let _ = writeln!(text, "- {}", cell(item));
        });
    }
    text
}

/// Escapes untrusted text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}

fn changed(drift: &Drift) -> impl Iterator<Item = &Change> {
    drift.changes.iter().filter(|change| matches!(change.verdict, Verdict::Slower | Verdict::Faster))
}

fn toned(change: &Change) -> report::Cell {
    let cell = report::Cell::from(number(change.ratio));
    if change.verdict == Verdict::Slower { cell.bad() } else { cell.best() }
}

pub(super) fn title(identity: &LineIdentity) -> String {
    let cold = identity.cache_state.filter(|state| *state != "warm").map(|state| format!(" ({state} caches)"));
    let schedule = identity.schedule_hash.as_deref().map(|hash| format!(" by {}", first_signs(hash)));
    let host = identity.host.as_deref().map(|host| format!(" on {host}"));
    let network = identity.network.as_deref().map(|hash| format!(" in the network {}", first_signs(hash)));
    [Some(identity.task.clone()), cold, schedule, network, host].into_iter().flatten().collect()
}

pub(super) fn code(causes: &[Cause]) -> String {
    match causes {
        [] => "the same".to_owned(),
        causes => causes.iter().map(|cause| format!("{} {}", cause.name, sides(cause))).collect::<Vec<_>>().join("; "),
    }
}

pub(super) fn sides(cause: &Cause) -> String {
    format!("{} → {}", values(&cause.before), values(&cause.after))
}

fn values(values: &BTreeSet<String>) -> String {
    let short = |text: &String| {
        if text.chars().count() > 48 {
            format!("{}…", text.chars().take(47).collect::<String>())
        } else {
            text.clone()
        }
    };
    let told: Vec<String> = values.iter().take(4).map(short).collect();
    match (told.is_empty(), values.len() > 4) {
        (true, _) => "not known".to_owned(),
        (false, true) => format!("{} and {} more", told.join(", "), values.len() - 4),
        (false, false) => told.join(", "),
    }
}

pub(super) fn describe_turn(turn: &Turn) -> String {
    let threads = turn.identity.threads.map_or(String::new(), |threads| format!(" on {threads} threads"));
    format!("from {} on × {}: {}{threads}", turn.night, number(turn.ratio), title(&turn.identity))
}

/// Summarises a comparison in one sentence.
pub fn verdict(drift: &Drift) -> String {
    if drift.nights.len() < 2 {
        return "there is only one nightly run: nothing to compare it with yet".to_owned();
    }
    let count = |verdict: Verdict| drift.count(verdict);
    let (compared, slower, faster) = (drift.changes.len(), count(Verdict::Slower), count(Verdict::Faster));
    let machine = match drift.machine.sentinels {
        0 => "no sentinels".to_owned(),
        sentinels => {
            let aspects: Vec<String> = drift
                .machine_aspects
                .iter()
                .filter(|(_, ratio)| ratio.is_finite())
                .map(|(aspect, ratio)| format!("{} × {}", aspect.name(), number(*ratio)))
                .collect();
            format!("the machine × {} by {sentinels} sentinels ({})", number(drift.machine_ratio), aspects.join(", "))
        }
    };
    let mut text = format!(
        "{compared} lines on both sides: {slower} slower, {faster} faster, {} the same within {}, {} not known well enough; {machine}",
        count(Verdict::Same),
        percent(drift.bounds.threshold),
        count(Verdict::Unclear),
    );
    if let Some(from) = drift.seen_from {
        text.push_str(&format!("; a change of {} would be detected in half of the lines", percent(from)));
    }
    if drift.only != (0, 0) {
        text.push_str(&format!("; {} only before, {} only after", drift.only.0, drift.only.1));
    }
    text
}
