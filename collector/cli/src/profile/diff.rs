//! `profile diff`: what changed between two profiles.

use super::grouping;
use crate::profile::arguments::ProfileDiff;
use crate::{DONE, Result, paper, print, print_json};
use engine::failure::Failure;
use profile::Profile;
use profile::compare::{Change, Comparison, Verdict, compare};
use report::{Cell, Table, duration, figures, or_unknown, words};
use std::fs;
use std::path::Path;

/// A profile is no larger: its spans are bounded when it is made.
const BYTES_MAX: u64 = 1 << 30;

/// What operators have in common is told from here on.
const COMMON_LEAST: f64 = 0.01;

pub fn run(asked: &ProfileDiff) -> Result<u8> {
    let (before, after) = (read(&asked.before)?, read(&asked.after)?);
    if before.source != after.source {
        return Err(Failure::usage("one of the profiles was not measured as the other was: their times never meet"));
    }
    let compared = compare(&before, &after, grouping::group_by(asked.group_by, asked.levels));
    if asked.json {
        print_json(&compared)?;
    } else {
        let title =
            format!("{} ({} runs) → {} ({} runs)", before.model, before.steps.len(), after.model, after.steps.len());
        print(&format!("{title}\n{}", describe(&compared, asked.row_limit)))?;
    }
    Ok(DONE)
}

/// A profile of a file.
fn read(path: &Path) -> Result<Profile> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot read the profile `{}`: {why}", path.display()))
            .with_hint("a profile is what `opcollect profile --out FILE` writes")
    };
    let size = fs::metadata(path).map_err(|error| failed(&error))?.len();
    if size > BYTES_MAX {
        return Err(failed(&format!("it has {size} bytes, more than any profile")));
    }
    let text = fs::read(path).map_err(|error| failed(&error))?;
    let profile: Profile = serde_json::from_slice(&text).map_err(|error| failed(&error))?;
    profile.check().map_err(|error| failed(&error))?;
    Ok(profile)
}

fn describe(compared: &Comparison, row_limit: usize) -> String {
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
    let mut lines = vec![table.on(&paper())];
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
    lines.extend(compared.common.filter(|common| (common - 1.0).abs() >= COMMON_LEAST).map(|common| {
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
