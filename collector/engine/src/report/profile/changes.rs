//! Formats the changes between two profiles.

use profile::compare::{Change, Comparison, Verdict};
use report::{Cell, Paper, Table, duration, figures, or_unknown, words};

/// Smallest change common to all operators that is described.
const MIN_COMMON_CHANGE: f64 = 0.01;

/// Formats a comparison with at most `row_limit` rows.
pub fn describe(compared: &Comparison, row_limit: usize, paper: &Paper) -> String {
    let mut table = Table::new([
        words("operator"),
        figures("before"),
        figures("after"),
        figures("ratio"),
        figures("of a run"),
        words("").least(8),
    ]);
    for change in compared.changes.iter().take(row_limit) {
        table.row(row(change));
    }
    let count = |verdict: Verdict| compared.changes.iter().filter(|change| change.verdict == verdict).count();
    let ratio = if compared.before_ns > 0.0 { compared.after_ns / compared.before_ns } else { f64::NAN };
    let mut lines = vec![table.on(paper)];
    if compared.changes.len() > row_limit {
        lines.push(format!("{} more rows", compared.changes.len() - row_limit));
    }
    lines.push(format!(
        "\nmedian run {} → {}, {ratio:.3}×; {} slower, {} faster, {} the same, {} new, {} gone",
        duration(compared.before_ns),
        duration(compared.after_ns),
        count(Verdict::Slower),
        count(Verdict::Faster),
        count(Verdict::Same) + count(Verdict::Unknown),
        count(Verdict::New),
        count(Verdict::Gone)
    ));
    lines.extend(compared.common.filter(|common| (common - 1.0).abs() >= MIN_COMMON_CHANGE).map(|common| {
        let beside = compared.beside_common;
        format!(
            "the middle operator takes {common:.3}× as long, which may be the machine; beside that {beside} changed"
        )
    }));
    lines.join("\n")
}

fn row(change: &Change) -> Vec<Cell> {
    let sign = if change.run_difference_ns > 0.0 { "+" } else { "" };
    let verdict = match change.verdict {
        Verdict::Faster => Cell::from("faster").best(),
        Verdict::Slower => Cell::from("slower").bad(),
        Verdict::Same => Cell::from("same"),
        Verdict::Unknown => Cell::from("too few calls").uncertain(),
        Verdict::New => Cell::from("new"),
        Verdict::Gone => Cell::from("gone"),
    };
    vec![
        change.name.clone().into(),
        or_unknown(change.before_ns, duration).into(),
        or_unknown(change.after_ns, duration).into(),
        or_unknown(change.ratio, |ratio| format!("{ratio:.2}×")).into(),
        format!("{sign}{}", duration(change.run_difference_ns)).into(),
        verdict,
    ]
}
