//! Comparison of two captures of the same work. An operator is *slower* if its mean time grew by more than a given
//! share, and by more than its spread explains. A capture is slower if its total time grew by more than that share.

use super::operators::{self, Operator, Runs};
use super::timeline::Timeline;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Number of standard errors beyond which a difference of means is significant.
pub(super) const STANDARD_ERRORS: f64 = 3.0;
/// Number of standard errors from the mean to the ends of a 95 % interval.
const NORMAL_95: f64 = 1.96;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CaptureSide {
    pub count: usize,
    pub mean_ns: f64,
    /// Squared standard error of the mean; `None` for a single run, whose spread is unknown.
    variance_of_mean: Option<f64>,
}

impl CaptureSide {
    fn from_runs(runs: &Runs) -> CaptureSide {
        let (count, mean_ns) = (runs.times_ns.len(), runs.mean_ns());
        let squares: f64 = runs.times_ns.iter().map(|time| (*time as f64 - mean_ns).powi(2)).sum();
        let variance_of_mean = (count > 1).then(|| squares / (count - 1) as f64 / count as f64);
        CaptureSide { count, mean_ns, variance_of_mean }
    }
}

#[derive(Clone, Debug)]
pub struct CaptureChange {
    pub operator: Operator,
    pub before: CaptureSide,
    pub after: CaptureSide,
}

impl CaptureChange {
    /// Returns the time lost in the later capture: difference of means times the number of runs; negative if gained.
    pub fn lost_ns(&self) -> f64 {
        (self.after.mean_ns - self.before.mean_ns) * self.after.count as f64
    }

    /// Returns the standard error of the lost time, unless a side has a single run.
    pub fn lost_error_ns(&self) -> Option<f64> {
        Some(self.difference_error_ns()? * self.after.count as f64)
    }

    pub fn mean_ratio(&self) -> f64 {
        self.after.mean_ns / self.before.mean_ns
    }

    /// Returns the 95 % interval of the ratio of means, unless a side has a single run.
    pub fn ratio_interval(&self) -> Option<(f64, f64)> {
        if self.before.mean_ns.min(self.after.mean_ns) <= 0.0 {
            return None;
        }
        let squared = |side: &CaptureSide| Some(side.variance_of_mean? / side.mean_ns.powi(2));
        let reach = NORMAL_95 * (squared(&self.before)? + squared(&self.after)?).sqrt();
        Some((self.mean_ratio() * (-reach).exp(), self.mean_ratio() * reach.exp()))
    }

    fn difference_error_ns(&self) -> Option<f64> {
        Some((self.before.variance_of_mean? + self.after.variance_of_mean?).sqrt())
    }

    /// Returns whether the means differ by more than their spread explains; never if a side has a single run.
    pub fn is_significant(&self) -> bool {
        let difference = (self.after.mean_ns - self.before.mean_ns).abs();
        self.difference_error_ns().is_some_and(|error| difference > STANDARD_ERRORS * error)
    }

    pub fn differs(&self) -> bool {
        self.before.count != self.after.count || self.before.mean_ns != self.after.mean_ns
    }

    pub fn is_slower(&self, share: f64) -> bool {
        self.mean_ratio() > 1.0 + share && self.is_significant()
    }

    pub fn is_faster(&self, share: f64) -> bool {
        self.mean_ratio() < 1.0 / (1.0 + share) && self.is_significant()
    }
}

/// The change of all operators of a kernel or layer.
#[derive(Clone, Debug)]
pub struct PlaceChange<'a> {
    /// Name of the kernel or layer; empty if unknown.
    pub name: &'a str,
    pub lost: LostTime,
    pub changes: Vec<&'a CaptureChange>,
}

/// Time that operators lost. Those with a single run in a capture have no standard error, so that they belong to the
/// total, but not to its interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LostTime {
    pub total_ns: f64,
    /// Time that the operators with several runs in both captures lost.
    pub repeated_ns: f64,
    /// Half of the 95 % interval of `repeated_ns`; `None` if there are no such operators.
    pub reach_ns: Option<f64>,
    /// Number of operators with a single run in a capture.
    pub single: usize,
}

impl LostTime {
    fn from_changes<'a>(changes: impl Iterator<Item = &'a CaptureChange>) -> LostTime {
        let (mut lost, mut variance) = (LostTime::default(), None);
        for change in changes {
            match change.lost_error_ns() {
                Some(error) => {
                    lost.repeated_ns += change.lost_ns();
                    variance = Some(variance.unwrap_or(0.0) + error.powi(2));
                }
                None => {
                    lost.total_ns += change.lost_ns();
                    lost.single += 1;
                }
            }
        }
        // Without a difference of operators with a single run, both sums are equal.
        lost.total_ns += lost.repeated_ns;
        lost.reach_ns = variance.map(|variance: f64| NORMAL_95 * variance.sqrt());
        lost
    }

    /// Returns the time as a gain.
    pub(super) fn negate(self) -> LostTime {
        LostTime { total_ns: -self.total_ns, repeated_ns: -self.repeated_ns, ..self }
    }

    /// Returns whether the interval excludes zero. A total of the other sign is due to operators with a single run.
    pub fn is_significant(&self) -> bool {
        self.reach_ns.is_some_and(|reach| self.repeated_ns.abs() > reach) && self.total_ns * self.repeated_ns > 0.0
    }
}

#[derive(Clone, Debug, Default)]
pub struct CaptureComparison {
    /// Operators in both captures, sorted by decreasing time lost.
    pub changes: Vec<CaptureChange>,
    /// Operators only in the earlier capture, with their times.
    pub gone: Vec<(Operator, i64)>,
    pub new: Vec<(Operator, i64)>,
    pub spans_ns: (i64, i64),
    /// Names of the captures: the last parts of their paths that distinguish them.
    pub names: (String, String),
}

impl CaptureComparison {
    pub fn is_equal(&self) -> bool {
        let (before, after) = self.spans_ns;
        before == after
            && self.gone.is_empty()
            && self.new.is_empty()
            && !self.changes.iter().any(CaptureChange::differs)
    }

    /// Returns the time that the operators in both captures lost.
    pub fn lost_time(&self) -> LostTime {
        LostTime::from_changes(self.changes.iter())
    }

    /// Returns the time that the operators of each kernel or layer lost, the largest change first.
    pub fn lost_by_place(&self) -> Vec<PlaceChange<'_>> {
        let mut by_place: BTreeMap<&str, Vec<&CaptureChange>> = BTreeMap::new();
        for change in &self.changes {
            by_place.entry(change.operator.place.as_deref().unwrap_or_default()).or_default().push(change);
        }
        let places = by_place.into_iter().map(|(name, changes)| PlaceChange {
            name,
            lost: LostTime::from_changes(changes.iter().copied()),
            changes,
        });
        let mut places: Vec<PlaceChange<'_>> = places.collect();
        places.sort_by(|one, other| other.lost.total_ns.abs().total_cmp(&one.lost.total_ns.abs()));
        places
    }

    /// Returns the shares of the operators' time before and after that the operators in both captures took.
    pub fn common_shares(&self) -> (f64, f64) {
        let time = |side: &CaptureSide| side.count as f64 * side.mean_ns;
        let common = |of: fn(&CaptureChange) -> &CaptureSide| self.changes.iter().map(|one| time(of(one))).sum::<f64>();
        let share = |common: f64, others: &[(Operator, i64)]| {
            let whole = common + others.iter().map(|(_, time)| *time as f64).sum::<f64>();
            if whole > 0.0 { common / whole } else { 1.0 }
        };
        (share(common(|one| &one.before), &self.gone), share(common(|one| &one.after), &self.new))
    }

    pub fn span_ratio(&self) -> f64 {
        self.spans_ns.1.max(1) as f64 / self.spans_ns.0.max(1) as f64
    }

    pub fn is_slower(&self, share: f64) -> bool {
        self.span_ratio() > 1.0 + share || self.changes.iter().any(|change| change.is_slower(share))
    }
}

/// Compares two captures, with the operators of all cores merged.
pub fn compare_captures(before: &Timeline, after: &Timeline) -> CaptureComparison {
    let spans_ns = (span_ns(before), span_ns(after));
    let (before_path, after_path) = (before.directory.clone(), after.directory.clone());
    let (mut before, after) = (merge_cores(before), merge_cores(after));
    let mut comparison = CaptureComparison {
        spans_ns,
        names: distinct_names(&before_path, &after_path),
        ..CaptureComparison::default()
    };
    for (operator, now) in after {
        match before.remove(&operator) {
            Some(then) => comparison.changes.push(CaptureChange {
                operator,
                before: CaptureSide::from_runs(&then),
                after: CaptureSide::from_runs(&now),
            }),
            None => comparison.new.push((operator, now.total_ns())),
        }
    }
    comparison.gone = before.into_iter().map(|(operator, runs)| (operator, runs.total_ns())).collect();
    // Ties are resolved by the operator, so that the order is deterministic.
    comparison.changes.sort_by(|a, b| b.lost_ns().total_cmp(&a.lost_ns()).then_with(|| a.operator.cmp(&b.operator)));
    for list in [&mut comparison.gone, &mut comparison.new] {
        list.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    }
    comparison
}

/// Returns the last parts of two paths, as many as are needed to distinguish them.
fn distinct_names(before: &Path, after: &Path) -> (String, String) {
    let parts = |path: &Path| -> Vec<String> {
        path.iter().map(|part| part.to_string_lossy().into_owned()).filter(|part| part != "/").collect()
    };
    let (before, after) = (parts(before), parts(after));
    let name = |parts: &[String], count: usize| parts[parts.len().saturating_sub(count)..].join("/");
    let most = before.len().max(after.len()).max(1);
    let count = (1..=most).find(|&count| name(&before, count) != name(&after, count)).unwrap_or(1);
    (name(&before, count), name(&after, count))
}

fn span_ns(timeline: &Timeline) -> i64 {
    let first = timeline.all_records().map(|record| record.start).min().unwrap_or(0);
    timeline.all_records().map(|record| record.end).max().unwrap_or(0) - first
}

fn merge_cores(timeline: &Timeline) -> HashMap<Operator, Runs> {
    let mut merged: HashMap<Operator, Runs> = HashMap::new();
    for (_, operator, runs) in operators::operators_by_core(timeline) {
        merged.entry(operator).or_default().times_ns.extend(runs.times_ns);
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the change of an operator of a kernel whose runs took these times.
    fn change_of(before: &[i64], after: &[i64]) -> CaptureChange {
        let side = |times_ns: &[i64]| CaptureSide::from_runs(&Runs { times_ns: times_ns.to_vec(), ..Runs::default() });
        let operator = Operator {
            engine: super::super::chip::Engine::Tiu,
            kind: "CONV",
            name: "CONV",
            dtype: "",
            direction: "",
            sizes: Vec::new(),
            place: Some("kernel".to_owned()),
        };
        CaptureChange { operator, before: side(before), after: side(after) }
    }

    #[test]
    fn a_single_run_is_no_evidence_of_a_change() {
        let compare = |before: &[i64], after: &[i64]| CaptureComparison {
            changes: vec![change_of(before, after)],
            spans_ns: (9000, 9000),
            ..CaptureComparison::default()
        };
        for (before, after) in [(&[1000][..], &[1500][..]), (&[1000, 1001], &[1500]), (&[1000], &[1500, 1501])] {
            let comparison = compare(before, after);
            let change = &comparison.changes[0];
            assert!(!change.is_significant() && !comparison.is_slower(0.05), "{before:?} {after:?}");
            let lost = comparison.lost_time();
            assert_eq!((change.lost_error_ns(), change.ratio_interval(), lost.reach_ns), (None, None, None));
            assert_eq!((lost.single, lost.is_significant()), (1, false), "{before:?} {after:?}");
            assert_eq!(comparison.lost_by_place()[0].lost, lost);
        }
        let comparison = compare(&[1000, 1001], &[1500, 1501]);
        assert!(comparison.is_slower(0.05) && comparison.lost_by_place()[0].lost.is_significant());
        assert!(comparison.lost_time().reach_ns.is_some_and(|reach| reach > 0.0));
    }

    #[test]
    fn single_runs_do_not_hide_the_change_of_a_kernel() {
        let compare = |sides: &[(&[i64], &[i64])]| CaptureComparison {
            changes: sides.iter().map(|(before, after)| change_of(before, after)).collect(),
            spans_ns: (9000, 9900),
            names: ("old".to_owned(), "new".to_owned()),
            ..CaptureComparison::default()
        };
        let lost = |comparison: &CaptureComparison| comparison.lost_by_place()[0].lost;
        let several: (&[i64], &[i64]) = (&[1000, 1002], &[1500, 1502]);
        let alone = lost(&compare(&[several]));
        let with_equal = compare(&[several, (&[700], &[700])]);
        assert_eq!(lost(&with_equal), LostTime { single: 1, ..alone });
        assert!(alone.is_significant() && lost(&with_equal).is_significant());
        let summary = with_equal.summary_lines(0.05);
        let first = "the capture new is 10.0 % longer than old (9.00 µs → 9.90 µs): kernel +1.00 ± 0.01 µs (95 %), \
                     summed over cores and engines; 1 operator with a single call in a capture is not part of the \
                     intervals";
        assert_eq!(summary[0], first);
        let with_longer = compare(&[several, (&[700], &[1100])]);
        assert_eq!(lost(&with_longer), LostTime { total_ns: 1400.0, single: 1, ..alone });
        let summary = with_longer.summary_lines(0.05);
        let longer = ": kernel +1.40 µs (+1.00 ± 0.01 µs, 95 %, without single calls), ";
        assert!(summary[0].contains(longer), "{summary:?}");
        // The total has another sign than the operators with several runs.
        assert!(!lost(&compare(&[several, (&[7000], &[1100])])).is_significant());
    }

    #[test]
    fn names_of_captures_differ() {
        let names = |before: &str, after: &str| distinct_names(Path::new(before), Path::new(after));
        let pair = |before: &str, after: &str| (before.to_owned(), after.to_owned());
        assert_eq!(names("a/before-0", "a/after-0"), pair("before-0", "after-0"));
        assert_eq!(names("/data/old/dev0-0", "/data/new/dev0-0"), pair("old/dev0-0", "new/dev0-0"));
        assert_eq!(names("dev0-0", "new/dev0-0"), pair("dev0-0", "new/dev0-0"));
        assert_eq!(names("dev0-0", "dev0-0"), pair("dev0-0", "dev0-0"));
    }
}
