//! Formats the changes between two profiles.

use profile::compare::{ProfileChange, ProfileComparison, ProfileVerdict};
use report::{
    Cell, Paper, Table, format_count, format_duration, format_percent, number_column, or_unknown, text_column,
};

/// Smallest change common to all operators that is described to the user.
const MIN_COMMON_CHANGE: f64 = 0.01;

/// Formats a comparison with at most `row_limit` rows.
pub fn describe_comparison(compared: &ProfileComparison, row_limit: usize, paper: &Paper) -> String {
    let mut table = Table::new([
        text_column("operator"),
        number_column("before"),
        number_column("after"),
        number_column("ratio"),
        number_column("of a run"),
        text_column("").min_width(8),
    ]);
    for change in compared.changes.iter().take(row_limit) {
        table.add_row(change_row(change));
    }
    let count = |verdict: ProfileVerdict| compared.changes.iter().filter(|change| change.verdict == verdict).count();
    let ratio = if compared.before_ns > 0.0 { compared.after_ns / compared.before_ns } else { f64::NAN };
    let mut lines = vec![table.format_for(paper)];
    if compared.changes.len() > row_limit {
        lines.push(format_count(compared.changes.len() - row_limit, "more row"));
    }
    lines.push(format!(
        "\nmedian run {} → {}, {ratio:.3}×; {} slower, {} faster, {} within the noise, {} new, {} gone",
        format_duration(compared.before_ns),
        format_duration(compared.after_ns),
        count(ProfileVerdict::Slower),
        count(ProfileVerdict::Faster),
        count(ProfileVerdict::Same) + count(ProfileVerdict::Unknown),
        count(ProfileVerdict::New),
        count(ProfileVerdict::Gone)
    ));
    lines.extend(compared.common.filter(|common| (common - 1.0).abs() >= MIN_COMMON_CHANGE).map(|common| {
        let beside = compared.beside_common;
        format!(
            "the median operator takes {common:.3}× as long, possibly because of the machine; relative to that, \
             {} changed",
            format_count(beside, "operator")
        )
    }));
    lines.push(match compared.detectable {
        Some(least) => {
            let (before, after) = compared.visits;
            format!(
                "differences below {} are within the noise between processes ({before} and {after} visits)",
                format_percent(least)
            )
        }
        None => "the noise between processes is unknown: a profile has one visit only; measure both again with \
                 `opcollect profile --out FILE`, without `--schedule`"
            .to_owned(),
    });
    lines.join("\n")
}

fn change_row(change: &ProfileChange) -> Vec<Cell> {
    let sign = if change.run_difference_ns > 0.0 { "+" } else { "" };
    let verdict = match change.verdict {
        ProfileVerdict::Faster => Cell::from("faster").mark_best(),
        ProfileVerdict::Slower => Cell::from("slower").mark_bad(),
        ProfileVerdict::Same => Cell::from("within noise"),
        ProfileVerdict::Unknown => Cell::from("too few calls").mark_uncertain(),
        ProfileVerdict::New => Cell::from("new"),
        ProfileVerdict::Gone => Cell::from("gone"),
    };
    vec![
        change.name.clone().into(),
        or_unknown(change.before_ns, format_duration).into(),
        or_unknown(change.after_ns, format_duration).into(),
        or_unknown(change.ratio, |ratio| format!("{ratio:.2}×")).into(),
        format!("{sign}{}", format_duration(change.run_difference_ns)).into(),
        verdict,
    ]
}
