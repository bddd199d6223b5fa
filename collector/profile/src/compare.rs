//! Comparison of two profiles: which operators changed, by how much, and whether the change exceeds the noise.
//!
//! A row has changed if the intervals of both medians are disjoint and the medians differ by more than two runs of the
//! same code differ on a shared machine. Rows that exist in only one profile are new or gone.

use crate::data::Profile;
use crate::sort::SortBy;
use crate::summary::{GroupBy, Row, rows, totals};
use serde::Serialize;
use std::collections::BTreeMap;

/// Relative difference up to which medians count as equal, whatever their intervals.
pub const SAME: f64 = 0.02;

/// Minimum number of rows for an estimate of the common ratio.
const LEAST_ROWS: usize = 5;

/// Result of comparing a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProfileVerdict {
    /// The row takes less time.
    Faster,
    /// The row takes more time.
    Slower,
    /// The difference is within the noise.
    Same,
    /// There are too few calls for intervals.
    Unknown,
    /// The row exists only in the second profile.
    New,
    /// The row exists only in the first profile.
    Gone,
}

/// A row of both profiles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfileChange {
    /// Operator, with sizes if the row has a single task.
    pub name: String,
    pub scope: String,
    /// Median of a call in the first profile.
    pub before_ns: Option<f64>,
    /// Median of a call in the second profile.
    pub after_ns: Option<f64>,
    /// Median of the second profile over that of the first.
    pub ratio: Option<f64>,
    /// Difference of the row's mean time per run; negative if the second profile is faster.
    pub run_difference_ns: f64,
    /// Significance of the difference.
    pub verdict: ProfileVerdict,
}

/// Comparison of two profiles.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfileComparison {
    /// Median run of the first profile.
    pub before_ns: f64,
    /// Median run of the second profile.
    pub after_ns: f64,
    /// Median ratio of rows in both profiles, if there are enough of them. It indicates a change of the machine rather
    /// than the code.
    pub common: Option<f64>,
    /// Number of rows that changed by more than noise relative to the common ratio.
    pub beside_common: usize,
    /// All rows, sorted by decreasing difference per run.
    pub changes: Vec<ProfileChange>,
}

/// Compares two profiles.
pub fn compare(before: &Profile, after: &Profile, group_by: GroupBy) -> ProfileComparison {
    let keyed = |profile: &Profile| -> BTreeMap<String, (Row, f64)> {
        let steps = profile.steps.len().max(1) as f64;
        let mut found: BTreeMap<String, (Row, f64)> = BTreeMap::new();
        for (place, row) in rows(profile, group_by, SortBy::Order).into_iter().enumerate() {
            let run_ns = row.self_total_ns as f64 / steps;
            let key = match group_by {
                GroupBy::Call => format!("{place:09} {}", row.text),
                GroupBy::Name | GroupBy::Scope(_) => row.name.clone(),
                GroupBy::InputShape => format!("{} {} {:?}", row.name, row.text, row.input_shapes),
            };
            found.insert(key, (row, run_ns));
        }
        found
    };
    let (mut first, second) = (keyed(before), keyed(after));
    let pairs: Vec<(&Row, &Row)> =
        second.iter().filter_map(|(key, (row, _))| Some((&first.get(key)?.0, row))).collect();
    let common = common(&pairs);
    let has_moved = |(before, after): &&(&Row, &Row)| {
        matches!(verdict(before, after, common.unwrap_or(1.0)), ProfileVerdict::Faster | ProfileVerdict::Slower)
    };
    let beside_common = pairs.iter().filter(has_moved).count();
    let mut changes: Vec<ProfileChange> = Vec::new();
    for (key, (row, run_ns)) in second {
        let earlier = first.remove(&key);
        let verdict = earlier.as_ref().map_or(ProfileVerdict::New, |(earlier, _)| verdict(earlier, &row, 1.0));
        let before_ns = earlier.as_ref().map(|(row, _)| row.median_ns);
        changes.push(ProfileChange {
            ratio: before_ns.filter(|ns| *ns > 0.0).map(|ns| row.median_ns / ns),
            before_ns,
            after_ns: Some(row.median_ns),
            run_difference_ns: run_ns - earlier.map_or(0.0, |(_, run_ns)| run_ns),
            verdict,
            ..named(&row)
        });
    }
    for (row, run_ns) in first.into_values() {
        changes.push(ProfileChange { before_ns: Some(row.median_ns), run_difference_ns: -run_ns, ..named(&row) });
    }
    changes.sort_by(|left, right| right.run_difference_ns.abs().total_cmp(&left.run_difference_ns.abs()));
    let (before_ns, after_ns) = (totals(before).step_median_ns, totals(after).step_median_ns);
    ProfileComparison { before_ns, after_ns, common, beside_common, changes }
}

/// Returns the median ratio of rows whose times have intervals.
fn common(pairs: &[(&Row, &Row)]) -> Option<f64> {
    let is_known = |(before, after): &&(&Row, &Row)| {
        before.median_interval_ns.is_some() && after.median_interval_ns.is_some() && before.median_ns > 0.0
    };
    let mut ratios: Vec<f64> =
        pairs.iter().filter(is_known).map(|(before, after)| after.median_ns / before.median_ns).collect();
    (ratios.len() >= LEAST_ROWS).then(|| {
        ratios.sort_by(f64::total_cmp);
        ratios[ratios.len() / 2]
    })
}

/// Creates an entry for a row, assumed gone until its counterpart is found.
fn named(row: &Row) -> ProfileChange {
    ProfileChange {
        name: if row.text.is_empty() { row.name.clone() } else { row.text.clone() },
        scope: row.scope.clone(),
        before_ns: None,
        after_ns: None,
        ratio: None,
        run_difference_ns: 0.0,
        verdict: ProfileVerdict::Gone,
    }
}

/// Compares two rows whose times are expected to differ by the ratio `anyway`.
fn verdict(before: &Row, after: &Row, anyway: f64) -> ProfileVerdict {
    let Some((first, second)) = before.median_interval_ns.zip(after.median_interval_ns) else {
        return ProfileVerdict::Unknown;
    };
    let (median_ns, first) = (anyway * before.median_ns, (anyway * first.0, anyway * first.1));
    let is_small = (after.median_ns - median_ns).abs() <= SAME * median_ns;
    match () {
        () if is_small => ProfileVerdict::Same,
        () if second.0 > first.1 => ProfileVerdict::Slower,
        () if second.1 < first.0 => ProfileVerdict::Faster,
        () => ProfileVerdict::Same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Operator, Span, Step, Track};

    /// Creates runs of operators with the given names; each has one time per run.
    fn profile(operators: &[(&str, [u64; 8])]) -> Profile {
        let mut profile = Profile { tracks: vec![Track::default()], ..Profile::default() };
        let named = |(name, _): &(&str, [u64; 8])| Operator { name: (*name).to_owned(), ..Operator::default() };
        profile.operators = operators.iter().map(named).collect();
        let mut start_ns = 0;
        for step in 0..8 {
            let begun = start_ns;
            for (operator, (_, times)) in operators.iter().enumerate() {
                let (operator, duration_ns) = (u32::try_from(operator).unwrap(), times[step]);
                let step = u32::try_from(step).ok();
                profile.spans.push(Span { operator, step, start_ns, duration_ns, ..Span::default() });
                start_ns += duration_ns;
            }
            profile.steps.push(Step { start_ns: begun, duration_ns: start_ns - begun, ..Step::default() });
        }
        profile.check().expect("it fits together");
        profile
    }

    #[test]
    fn a_change_is_more_than_noise() {
        let steady = [100, 101, 99, 100, 102, 98, 100, 100];
        let noisy = [100, 300, 90, 120, 80, 260, 100, 110];
        let before = profile(&[("dense", steady), ("noisy", noisy), ("relu", steady), ("old", steady)]);
        let after = profile(&[
            ("dense", steady.map(|ns| 2 * ns)),
            ("noisy", noisy.map(|ns| ns + 20)),
            ("relu", steady.map(|ns| ns / 2)),
            ("new", steady),
        ]);
        let compared = compare(&before, &after, GroupBy::Name);
        let of: BTreeMap<&str, ProfileVerdict> =
            compared.changes.iter().map(|change| (change.name.as_str(), change.verdict)).collect();
        let wanted = [
            ("dense", ProfileVerdict::Slower),
            ("new", ProfileVerdict::New),
            ("noisy", ProfileVerdict::Same),
            ("old", ProfileVerdict::Gone),
            ("relu", ProfileVerdict::Faster),
        ];
        assert_eq!(of, BTreeMap::from(wanted));
        let sum: f64 = compared.changes.iter().map(|change| change.run_difference_ns).sum();
        let mean = |profile: &Profile| totals(profile).sum_ns as f64 / 8.0;
        assert!((sum - (mean(&after) - mean(&before))).abs() < 1e-6, "differences of rows are that of the runs");
        assert_eq!((compared.common, compared.beside_common), (None, 2), "three rows tell nothing common");
        let names = ["a", "b", "c", "d", "e", "f"];
        let before_all = profile(&names.map(|name| (name, steady)));
        let moved = |name: &'static str| (name, steady.map(|ns| if name == "f" { 2 * ns } else { ns * 94 / 100 }));
        let drifted = compare(&before_all, &profile(&names.map(moved)), GroupBy::Name);
        assert!(drifted.common.is_some_and(|common| (common - 0.94).abs() < 0.01), "{:?}", drifted.common);
        let changed = drifted.changes.iter().filter(|change| change.verdict != ProfileVerdict::Same).count();
        assert_eq!((drifted.beside_common, changed), (1, 6), "five moved alike, one by itself");
        let same = compare(&before, &before, GroupBy::InputShape);
        assert!(same.changes.iter().all(|change| change.verdict == ProfileVerdict::Same && change.ratio == Some(1.0)));
        let few = Profile { steps: before.steps[..1].to_vec(), spans: before.spans[..4].to_vec(), ..before.clone() };
        assert!(
            compare(&few, &few, GroupBy::Call).changes.iter().all(|change| change.verdict == ProfileVerdict::Unknown)
        );
    }
}
