//! Compares two profiles: which operators changed, by how much, and whether the change exceeds the noise.
//! A row has changed if its times differ by more than the scatter between fresh processes (visits), both absolutely
//! and relative to the change common to all operators, which may come from the machine. Profiles of a single visit
//! only contain the scatter within one process, which understates that between processes. Rows that exist in only one
//! profile are new or gone.

use crate::data::Profile;
use crate::sort::SortBy;
use crate::summary::{GroupBy, Row, compute_totals, summary_rows, visits};
use measure::statistics::median;
use serde::Serialize;
use std::collections::BTreeMap;

/// Relative difference up to which medians count as equal, regardless of their confidence intervals.
pub const SAME: f64 = 0.02;

/// Minimum number of rows for an estimate of the common ratio.
const ROWS_MIN: usize = 5;

/// Largest common ratio (or inverse ratio) that is attributed to the machine.
const MACHINE_RATIO_MAX: f64 = 1.25;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProfileVerdict {
    Faster,
    Slower,
    Same,
    /// There are too few calls to compute confidence intervals.
    Unknown,
    New,
    Gone,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfileChange {
    pub name: String,
    pub scope: String,
    /// Median time of a call in the first profile, over all its processes (visits).
    pub before_ns: Option<f64>,
    pub after_ns: Option<f64>,
    pub ratio: Option<f64>,
    /// Smallest relative difference that exceeds the scatter between processes (visits).
    pub detectable: Option<f64>,
    /// Difference of the operator's typical time per run; negative if the second profile is faster.
    pub run_difference_ns: f64,
    pub verdict: ProfileVerdict,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProfileComparison {
    pub before_ns: f64,
    pub after_ns: f64,
    pub visits: (usize, usize),
    /// Smallest relative difference that is detectable in half of the rows; None if a profile has one visit only.
    pub detectable: Option<f64>,
    /// Median ratio of times over common rows; None for too few. It shows a change of the machine rather than the code.
    pub common: Option<f64>,
    /// Number of rows that differ from the common ratio, or from 1 if it is unknown, by more than the noise.
    pub beside_common: usize,
    /// All rows, sorted by decreasing absolute difference per run.
    pub changes: Vec<ProfileChange>,
}

pub fn compare_profiles(before: &Profile, after: &Profile, group_by: GroupBy) -> ProfileComparison {
    // Times over visits compare only with times over visits.
    let has_visits = !before.visits.is_empty() && !after.visits.is_empty();
    let (mut first, second) = (rows_by_key(before, group_by, has_visits), rows_by_key(after, group_by, has_visits));
    let pairs: Vec<(&Row, &Row)> = second.iter().filter_map(|(key, row)| Some((first.get(key)?, row))).collect();
    let noise = Noise { floor: noise_floor(before, after), common: common_ratio(&pairs) };
    let beside_common = pairs.iter().filter(|pair| noise.has_moved(pair, noise.common.unwrap_or(1.0))).count();
    let detectable = median(&pairs.iter().filter_map(|pair| noise.detectable_change(pair)).collect::<Vec<f64>>());
    let mut changes: Vec<ProfileChange> = Vec::new();
    for (key, row) in second {
        let earlier = first.remove(&key);
        let before_ns = earlier.as_ref().map(call_ns);
        let earlier_ns = earlier.as_ref().map_or(0.0, run_ns);
        changes.push(ProfileChange {
            ratio: before_ns.filter(|ns| *ns > 0.0).map(|ns| call_ns(&row) / ns),
            before_ns,
            after_ns: Some(call_ns(&row)),
            detectable: earlier.as_ref().and_then(|earlier| noise.detectable_change(&(earlier, &row))),
            run_difference_ns: run_ns(&row) - earlier_ns,
            verdict: earlier.as_ref().map_or(ProfileVerdict::New, |earlier| noise.judge_row(&(earlier, &row))),
            ..unmatched_row(&row)
        });
    }
    for row in first.into_values() {
        let run_difference_ns = -run_ns(&row);
        changes.push(ProfileChange { before_ns: Some(call_ns(&row)), run_difference_ns, ..unmatched_row(&row) });
    }
    changes.sort_by(|left, right| right.run_difference_ns.abs().total_cmp(&left.run_difference_ns.abs()));
    ProfileComparison {
        before_ns: compute_totals(before).step_median_ns,
        after_ns: compute_totals(after).step_median_ns,
        visits: (1 + before.visits.len(), 1 + after.visits.len()),
        detectable,
        common: noise.common,
        beside_common,
        changes,
    }
}

/// Returns the rows by key. Omits the times of single visits unless both profiles have several visits (processes).
fn rows_by_key(profile: &Profile, group_by: GroupBy, has_visits: bool) -> BTreeMap<String, Row> {
    let key = |(place, mut row): (usize, Row)| {
        if !has_visits {
            row.visits_ns.clear();
        }
        let key = match group_by {
            GroupBy::Call => format!("{place:09} {}", row.text),
            GroupBy::Name | GroupBy::Scope(_) => row.name.clone(),
            GroupBy::InputShape => format!("{} {} {:?}", row.name, row.text, row.input_shapes),
        };
        (key, row)
    };
    summary_rows(profile, group_by, SortBy::Order).into_iter().enumerate().map(key).collect()
}

fn run_ns(row: &Row) -> f64 {
    median(&row.visits_ns).unwrap_or(row.typical_ns)
}

fn call_ns(row: &Row) -> f64 {
    median(&row.visits_ns).map_or(row.median_ns, |run_ns| run_ns / row.calls_per_step)
}

/// Returns the scatter between visits (processes), averaged over both profiles; None if a profile has a single visit.
fn noise_floor(before: &Profile, after: &Profile) -> Option<f64> {
    let (first, second) = visits::visit_scatter(before).zip(visits::visit_scatter(after))?;
    Some((0.5 * (first.powi(2) + second.powi(2))).sqrt())
}

/// Returns the median ratio of times over rows with confidence intervals or several visits; None for too few such rows.
fn common_ratio(pairs: &[(&Row, &Row)]) -> Option<f64> {
    let has_scatter = |row: &Row| row.median_interval_ns.is_some() || !row.visits_ns.is_empty();
    let is_known = |(before, after): &&(&Row, &Row)| {
        has_scatter(before) && has_scatter(after) && call_ns(before) > 0.0 && call_ns(after) > 0.0
    };
    let ratios: Vec<f64> =
        pairs.iter().filter(is_known).map(|(before, after)| call_ns(after) / call_ns(before)).collect();
    if ratios.len() < ROWS_MIN { None } else { median(&ratios) }
}

/// Creates the entry of a row without a counterpart, with the verdict `Gone` until a counterpart is found.
fn unmatched_row(row: &Row) -> ProfileChange {
    ProfileChange {
        name: row.title().to_owned(),
        scope: row.scope.clone(),
        before_ns: None,
        after_ns: None,
        ratio: None,
        detectable: None,
        run_difference_ns: 0.0,
        verdict: ProfileVerdict::Gone,
    }
}

struct Noise {
    floor: Option<f64>,
    common: Option<f64>,
}

impl Noise {
    fn detectable_change(&self, (before, after): &(&Row, &Row)) -> Option<f64> {
        self.floor?;
        let log = datasets::detectable_ratio(&before.visits_ns, &after.visits_ns, self.floor)?;
        Some(log.exp_m1().max(SAME))
    }

    /// Judges a row. If the common ratio may come from the machine, a change must hold relative to that ratio, too.
    fn judge_row(&self, pair: &(&Row, &Row)) -> ProfileVerdict {
        let by_itself = self.compare_scaled(pair, 1.0);
        let is_machine = |common: &f64| (1.0 / MACHINE_RATIO_MAX..=MACHINE_RATIO_MAX).contains(common);
        match self.common.filter(is_machine).map(|common| self.compare_scaled(pair, common)) {
            Some(relative) if relative != by_itself && by_itself != ProfileVerdict::Unknown => ProfileVerdict::Same,
            _ => by_itself,
        }
    }

    fn has_moved(&self, pair: &(&Row, &Row), expected_ratio: f64) -> bool {
        matches!(self.compare_scaled(pair, expected_ratio), ProfileVerdict::Faster | ProfileVerdict::Slower)
    }

    fn compare_scaled(&self, pair: &(&Row, &Row), expected_ratio: f64) -> ProfileVerdict {
        let (before, after) = *pair;
        let (before_ns, after_ns) = (expected_ratio * call_ns(before), call_ns(after));
        let intervals = before.median_interval_ns.zip(after.median_interval_ns);
        let is_beyond = match (self.detectable_change(pair), intervals) {
            (Some(least), _) => (after_ns / before_ns).ln().abs() > least.ln_1p(),
            (None, Some((first, second))) => {
                let is_apart = second.0 > expected_ratio * first.1 || second.1 < expected_ratio * first.0;
                is_apart && (after_ns - before_ns).abs() > SAME * before_ns
            }
            (None, None) => return ProfileVerdict::Unknown,
        };
        match () {
            () if !is_beyond => ProfileVerdict::Same,
            () if after_ns > before_ns => ProfileVerdict::Slower,
            () => ProfileVerdict::Faster,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Operator, Span, Step, Track};

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
        let compared = compare_profiles(&before, &after, GroupBy::Name);
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
        let typical = |profile: &Profile| -> f64 {
            summary_rows(profile, GroupBy::Name, SortBy::Order).iter().map(|row| row.typical_ns).sum()
        };
        assert!(
            (sum - (typical(&after) - typical(&before))).abs() < 1e-6,
            "the differences of the rows add up to that of the runs"
        );
        assert_eq!((compared.common, compared.beside_common), (None, 2), "three rows give no common ratio");
        let names = ["a", "b", "c", "d", "e", "f"];
        let before_all = profile(&names.map(|name| (name, steady)));
        let moved = |name: &'static str| (name, steady.map(|ns| if name == "f" { 2 * ns } else { ns * 94 / 100 }));
        let drifted = compare_profiles(&before_all, &profile(&names.map(moved)), GroupBy::Name);
        assert!(drifted.common.is_some_and(|common| (common - 0.94).abs() < 0.01), "{:?}", drifted.common);
        let changed = drifted.changes.iter().filter(|change| change.verdict != ProfileVerdict::Same).count();
        assert_eq!(
            (drifted.beside_common, changed),
            (1, 1),
            "five rows changed alike, which may be due to the machine"
        );
        let halved =
            compare_profiles(&before_all, &profile(&names.map(|name| (name, steady.map(|ns| ns / 2)))), GroupBy::Name);
        assert!(
            halved.changes.iter().all(|change| change.verdict == ProfileVerdict::Faster),
            "a machine does not double its clock"
        );
        let same = compare_profiles(&before, &before, GroupBy::InputShape);
        assert!(same.changes.iter().all(|change| change.verdict == ProfileVerdict::Same && change.ratio == Some(1.0)));
        let few = Profile { steps: before.steps[..1].to_vec(), spans: before.spans[..4].to_vec(), ..before.clone() };
        assert!(
            compare_profiles(&few, &few, GroupBy::Call)
                .changes
                .iter()
                .all(|change| change.verdict == ProfileVerdict::Unknown)
        );
    }

    #[test]
    fn differences_within_visit_scatter_are_the_same() {
        let steady = [100, 101, 99, 100, 102, 98, 100, 100];
        // Two runs of one program: steady within a process, apart between processes.
        let run = |ns: [u64; 8], visits: &[u64]| {
            let visit = |ns: &u64| vec![*ns; 3];
            let visits = visits.iter().map(visit).collect();
            Profile { visits, ..profile(&["a", "b", "c"].map(|name| (name, ns))) }
        };
        let before = run(steady, &[110, 96]);
        let after = run(steady.map(|ns| ns * 92 / 100), &[97, 103]);
        let verdicts = |before: &Profile, after: &Profile| -> Vec<ProfileVerdict> {
            compare_profiles(before, after, GroupBy::Name).changes.iter().map(|change| change.verdict).collect()
        };
        assert_eq!(verdicts(&before, &after), [ProfileVerdict::Same; 3]);
        let single = |profile: &Profile| Profile { visits: Vec::new(), ..profile.clone() };
        assert_eq!(
            verdicts(&single(&before), &single(&after)),
            [ProfileVerdict::Faster; 3],
            "one process does not show the scatter between processes"
        );
        let compared = compare_profiles(&before, &after, GroupBy::Name);
        assert!(compared.detectable.is_some_and(|least| (0.1..0.5).contains(&least)), "{:?}", compared.detectable);
        assert_eq!(compared.visits, (3, 3));
        let halved = run(steady.map(|ns| ns / 2), &[52, 49]);
        assert_eq!(
            verdicts(&before, &halved),
            [ProfileVerdict::Faster; 3],
            "a difference that exceeds the scatter is reported"
        );
    }
}
