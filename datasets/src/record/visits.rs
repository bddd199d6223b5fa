//! Computes confidence intervals from several visits to an experiment, each in a fresh process.
//!
//! A visit is one measurement of a candidate, with its own time and memory placement. Medians scatter much more
//! between visits than samples within one. The interval is for the median of another measurement with as many visits,
//! at another time and placement.
//!
//! All computations use logarithms, because times scatter by factors. A few visits give a poor estimate of their own
//! scatter, so the noise floor (the pooled scatter of all experiments of the run) counts as [`FLOOR_FREEDOM`]
//! additional degrees of freedom. A single visit without a noise floor has no interval.

use super::cell::Cell;
use super::json::Json;
use super::key::Key;
use super::table::{ColumnId, Record};
use super::words::{Covers, Outcome, Source};
use crate::record::batch::{Batch, Row};
use std::collections::HashMap;

/// Degrees of freedom that the noise floor contributes. Few, because scatter differs widely between experiments.
const FLOOR_FREEDOM: u32 = 4;

/// Variance that all visits of a campaign share, because they are close in time, relative to the variance between these
/// visits. The visits cannot show it, so it is added to the variance of their median.
const SHARED_VARIANCE: f64 = 0.4;

/// 97.5 % quantiles of Student's t distribution, by degrees of freedom from 1.
const STUDENT: [f64; 20] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086,
];

/// Median time of an attempt, for the selection among several attempts; None if the attempt failed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AttemptTime {
    pub median_ns: Option<f64>,
}

impl AttemptTime {
    pub fn from_row(row: &impl Row) -> AttemptTime {
        let is_ok = row.cell(ColumnId::outcome) == Cell::Text(Outcome::Ok.name());
        let median_ns = if let Cell::Float(value) = row.cell(ColumnId::median_ns) { Some(value) } else { None };
        AttemptTime { median_ns: median_ns.filter(|_| is_ok) }
    }
}

/// Returns the index of the attempt with the median time; of two central attempts, the earlier.
pub(crate) fn median_index(attempts: &[AttemptTime]) -> Option<usize> {
    let times = attempts.iter().enumerate().filter_map(|(place, tried)| Some((tried.median_ns?, place)));
    let mut times: Vec<(f64, usize)> = times.collect();
    times.sort_by(|left, right| left.0.total_cmp(&right.0));
    let (low, high) = (times.len().checked_sub(1)? / 2, times.len() / 2);
    Some(times[low].1.min(times[high].1))
}

/// Returns the record with the median time among successful attempts; of two central attempts, the earlier.
pub fn middle_of<'a>(attempts: &[&'a Record]) -> Option<&'a Record> {
    let tried: Vec<AttemptTime> = attempts.iter().map(|record| AttemptTime { median_ns: record.median_ns }).collect();
    median_index(&tried).map(|place| attempts[place])
}

const STATED: [ColumnId; 6] = [
    ColumnId::median_interval_ns,
    ColumnId::median_low_ns,
    ColumnId::median_high_ns,
    ColumnId::interval_covers,
    ColumnId::visits_ns,
    ColumnId::visit_spread,
];

/// Statistics over all visits to one experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OverVisits {
    /// Reported median time.
    pub shown_ns: f64,
    /// Medians of the visits, in time order.
    pub visits_ns: Vec<f64>,
    /// Standard deviation of the logarithms of the visits' medians; None for one visit.
    pub spread: Option<f64>,
    /// 95 % interval for the median of another measurement with as many visits; None if no scatter is known.
    pub interval_ns: Option<(f64, f64)>,
}

impl OverVisits {
    /// Computes statistics from medians of visits in time order.
    pub fn of_medians(shown_ns: f64, visits_ns: &[f64]) -> OverVisits {
        let visit =
            |median_ns: &f64| Visit { medians_ns: vec![*median_ns], within: None, noise_floor: None, stated_ns: None };
        statistics_over_visits(shown_ns, &visits_ns.iter().map(visit).collect::<Vec<Visit>>())
    }

    /// Returns the half-width, as a logarithm, of the interval expected from a number of visits; None without `spread`.
    pub fn expected_half_width(spread: Option<f64>, visits: usize) -> Option<f64> {
        let variance = 2.0 * (median_variance(visits) + SHARED_VARIANCE) * spread?.powi(2);
        Some(student_quantile(u32::MAX) * variance.sqrt())
    }

    /// Returns half the width of the interval, relative to the reported median.
    pub fn uncertainty(&self) -> Option<f64> {
        let (low, high) = self.interval_ns?;
        (self.shown_ns > 0.0).then(|| (high - low) / 2.0 / self.shown_ns)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Visit {
    /// Median of the row, or medians of the visits that the row summarises.
    medians_ns: Vec<f64>,
    /// Half-width, as a logarithm, of the confidence interval of the median, from the samples of this visit alone.
    within: Option<f64>,
    noise_floor: Option<f64>,
    /// Interval stored in the row, if it already covers several visits, or if visits cannot differ.
    stated_ns: Option<(f64, f64)>,
}

impl Visit {
    pub fn from_row(row: &impl Row) -> Option<Visit> {
        let float = |id| if let Cell::Float(value) = row.cell(id) { Some(value) } else { None };
        let median_ns = AttemptTime::from_row(row).median_ns?;
        let half = float(ColumnId::median_interval_ns);
        let ends = float(ColumnId::median_low_ns).zip(float(ColumnId::median_high_ns));
        let stored = ends.or(half.map(|half| (median_ns - half, median_ns + half)));
        let is_over_visits = row.cell(ColumnId::interval_covers) == Cell::Text(Covers::Visits.name());
        // Simulated times never scatter, and imported times cannot be measured again.
        let is_final = [Source::Simulated, Source::Imported].map(|source| Cell::Text(source.name()));
        let medians_ns = match row.cell(ColumnId::visits_ns) {
            Cell::Text(text) => Json::parse(text).and_then(|json| json.parse_as()).unwrap_or_default(),
            _ => Vec::new(),
        };
        Some(Visit {
            medians_ns: if medians_ns.is_empty() { vec![median_ns] } else { medians_ns },
            within: half.filter(|_| median_ns > 0.0).map(|half| (half / median_ns).ln_1p()),
            noise_floor: float(ColumnId::noise_floor),
            stated_ns: stored.filter(|_| is_over_visits || is_final.contains(&row.cell(ColumnId::source))),
        })
    }
}

/// Computes statistics from the rows of one experiment, in time order; `shown_ns` is the reported median.
pub(crate) fn statistics_over_visits(shown_ns: f64, visits: &[Visit]) -> OverVisits {
    let visits_ns: Vec<f64> = visits.iter().flat_map(|visit| visit.medians_ns.iter().copied()).collect();
    if let [only] = visits
        && only.stated_ns.is_some()
    {
        return OverVisits { shown_ns, spread: log_spread(&visits_ns), interval_ns: only.stated_ns, visits_ns };
    }
    let floor = visits.iter().rev().find_map(|visit| visit.noise_floor);
    let mut within: Vec<f64> = visits.iter().filter_map(|visit| visit.within).collect();
    within.sort_by(f64::total_cmp);
    let within = within.get(within.len() / 2).copied().unwrap_or(0.0);
    let spread = log_spread(&visits_ns);
    let half = half_width(spread, visits_ns.len(), floor)
        .map(|half| half.min(max_half_width(shown_ns, &visits_ns, floor)).max(within));
    let interval_ns = half.map(|half| (shown_ns * (-half).exp(), shown_ns * half.exp()));
    // A noise floor of another program's record may be absurd.
    let interval_ns = interval_ns.filter(|(_, high)| high.is_finite());
    OverVisits { shown_ns, visits_ns, spread, interval_ns }
}

/// Returns the standard deviation of the logarithms of times, or None for fewer than two times.
pub fn log_spread(times_ns: &[f64]) -> Option<f64> {
    let logarithms: Vec<f64> = times_ns.iter().map(|time| time.max(f64::MIN_POSITIVE).ln()).collect();
    let count = logarithms.len() as f64;
    let mean = logarithms.iter().sum::<f64>() / count;
    let squares: f64 = logarithms.iter().map(|value| (value - mean).powi(2)).sum();
    (logarithms.len() > 1).then(|| (squares / (count - 1.0)).sqrt())
}

/// Returns the half-width, as a logarithm, of the interval for the median of another measurement with as many visits.
fn half_width(spread: Option<f64>, visits: usize, floor: Option<f64>) -> Option<f64> {
    let own = spread.and_then(|spread| Some((u32::try_from(visits - 1).ok()?, spread)));
    let (of_visits, freedom) = pool_variances(own.into_iter().chain(floor.map(|floor| (FLOOR_FREEDOM, floor))))?;
    // Both the current and the next median have an error.
    let variance = 2.0 * (median_variance(visits) + SHARED_VARIANCE) * of_visits;
    Some(student_quantile(freedom) * variance.sqrt())
}

/// Returns the smallest detectable log ratio of the medians of two series of visits: the ratio that exceeds the scatter
/// between visits with 95 % confidence. `floor` is the noise floor. None without a known scatter.
pub fn detectable_ratio(first_ns: &[f64], second_ns: &[f64], floor: Option<f64>) -> Option<f64> {
    let sides = [first_ns, second_ns];
    let own = sides.iter().filter_map(|times| Some((u32::try_from(times.len() - 1).ok()?, log_spread(times)?)));
    let (of_visits, freedom) = pool_variances(own.chain(floor.map(|floor| (FLOOR_FREEDOM, floor))))?;
    let of_medians: f64 = sides.iter().map(|times| median_variance(times.len()) + SHARED_VARIANCE).sum();
    Some(student_quantile(freedom) * (of_medians * of_visits).sqrt())
}

/// Pools standard deviations, each with its degrees of freedom; returns the variance and its degrees of freedom.
fn pool_variances(spreads: impl Iterator<Item = (u32, f64)>) -> Option<(f64, u32)> {
    let add = |(squares, all): (f64, u32), (freedom, spread): (u32, f64)| {
        (squares + f64::from(freedom) * spread.powi(2), all + freedom)
    };
    let (squares, freedom) = spreads.fold((0.0, 0), add);
    (freedom > 0).then(|| (squares / f64::from(freedom), freedom))
}

/// Returns an upper limit of the interval's half-width, as a logarithm: the distance of the farthest visit plus the
/// noise floor, but at least a factor of two. The limit bounds the effect of one disturbed visit.
fn max_half_width(shown_ns: f64, visits_ns: &[f64], floor: Option<f64>) -> f64 {
    let distance = |time_ns: &f64| (time_ns / shown_ns).ln().abs();
    let farthest = visits_ns.iter().map(distance).filter(|distance| distance.is_finite()).fold(0.0, f64::max);
    (farthest + half_width(None, 1, floor).unwrap_or(0.0)).max(std::f64::consts::LN_2)
}

/// Returns the variance of the median of `count` values, relative to that of one; approximate for several values.
fn median_variance(count: usize) -> f64 {
    const HALF_PI: f64 = std::f64::consts::FRAC_PI_2;
    HALF_PI / (count as f64 + HALF_PI - 1.0)
}

fn student_quantile(freedom: u32) -> f64 {
    let table = STUDENT.get((freedom as usize).saturating_sub(1)).copied();
    table.unwrap_or_else(|| 1.96 + 2.5 / f64::from(freedom))
}

/// Pooled scatter between visits: the square root of the median variance, which is robust against outlying experiments.
#[derive(Clone, Debug, Default)]
pub struct NoiseFloor {
    medians_ns: HashMap<Key, Vec<f64>>,
    /// Degrees of freedom of all experiments with repeated visits.
    freedom: usize,
    /// Cached scatter, and the degrees of freedom that it was computed from.
    known: (Option<f64>, usize),
}

impl NoiseFloor {
    /// Adds the median of one more visit.
    pub fn add_visit(&mut self, key: Key, median_ns: f64) {
        let medians_ns = self.medians_ns.entry(key).or_default();
        medians_ns.push(median_ns);
        self.freedom += usize::from(medians_ns.len() > 1);
    }

    /// Returns the pooled standard deviation, updated after enough new visits; None for too few repeated visits.
    pub fn pooled_spread(&mut self) -> Option<f64> {
        const LEAST_FREEDOM: usize = 8;
        if self.freedom >= LEAST_FREEDOM && 10 * self.freedom >= 11 * self.known.1 {
            self.known = (self.compute_spread(), self.freedom);
        }
        self.known.0
    }

    fn compute_spread(&self) -> Option<f64> {
        let variance = |medians_ns: &Vec<f64>| {
            // Corrects the bias of the median of variances with few degrees of freedom (Wilson and Hilferty).
            let freedom = medians_ns.len().saturating_sub(1) as f64;
            Some(log_spread(medians_ns)?.powi(2) / (1.0 - 2.0 / (9.0 * freedom)).powi(3))
        };
        let mut variances: Vec<f64> = self.medians_ns.values().filter_map(variance).collect();
        variances.sort_by(f64::total_cmp);
        variances.get(variances.len() / 2).map(|middle| middle.sqrt())
    }
}

pub(crate) fn state_in_batch(batch: &mut Batch, known: &[Option<OverVisits>]) {
    let stated: Vec<Record> = known
        .iter()
        .map(|known| {
            let mut record = Record::empty();
            known.iter().for_each(|known| record.state_over_visits(known));
            record
        })
        .collect();
    for id in STATED {
        batch.set_cells(id, stated.iter().map(|record| Some(record.cell(id)).filter(|cell| *cell != Cell::Null)));
    }
}

/// Columns that [`Record::state_over_visits`] changes.
pub(crate) const OVER_VISITS: [ColumnId; 6] = [
    ColumnId::visit_spread,
    ColumnId::visits_ns,
    ColumnId::median_low_ns,
    ColumnId::median_high_ns,
    ColumnId::median_interval_ns,
    ColumnId::interval_covers,
];

impl Record {
    /// Returns the statistics over visits from the columns of this row.
    pub fn over_visits(&self) -> Option<OverVisits> {
        Some(statistics_over_visits(self.median_ns?, &[Visit::from_row(self)?]))
    }

    /// Writes statistics over visits into the columns of this row.
    pub fn state_over_visits(&mut self, known: &OverVisits) {
        self.visit_spread = known.spread;
        self.visits_ns = match known.visits_ns.as_slice() {
            [] | [_] => None,
            visits => Json::new(visits).ok(),
        };
        if let Some((low, high)) = known.interval_ns {
            (self.median_low_ns, self.median_high_ns) = (Some(low), Some(high));
            self.median_interval_ns = Some((high - low) / 2.0);
            self.interval_covers = Some(Covers::Visits);
        }
    }
}

/// Returns the record with the median time among an experiment's attempts, with an interval from all attempts.
pub fn median_record(attempts: &[&Record]) -> Option<Record> {
    let (shown, known) = median_over_visits(attempts)?;
    let mut shown = shown.clone();
    shown.state_over_visits(&known);
    Some(shown)
}

/// Returns the attempt with the median time of an experiment, and statistics over all its attempts.
pub fn median_over_visits<'a>(attempts: &[&'a Record]) -> Option<(&'a Record, OverVisits)> {
    let timed: Vec<&Record> =
        attempts.iter().copied().filter(|record| AttemptTime::from_row(*record).median_ns.is_some()).collect();
    let tried: Vec<AttemptTime> = timed.iter().map(|record| AttemptTime::from_row(*record)).collect();
    let shown = timed[median_index(&tried)?];
    let visits: Vec<Visit> = timed.iter().filter_map(|record| Visit::from_row(*record)).collect();
    Some((shown, statistics_over_visits(shown.median_ns?, &visits)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn record(seconds: i64, median_ns: f64, noise_floor: Option<f64>) -> Record {
        Record {
            key: Key([1; 16]),
            started_at_us: seconds * 1_000_000,
            outcome: Outcome::Ok,
            median_ns: Some(median_ns),
            median_interval_ns: Some(median_ns / 1000.0),
            noise_floor,
            ..Record::default()
        }
    }

    #[track_caller]
    fn check(rows: &[Record], wanted: Expect) {
        let told = match median_record(&rows.iter().collect::<Vec<_>>()) {
            None => "no time".to_owned(),
            Some(shown) => {
                let interval = match (shown.interval_covers, shown.median_low_ns.zip(shown.median_high_ns)) {
                    (Some(Covers::Visits), Some((low, high))) => format!("{low:.1} .. {high:.1}"),
                    _ => "nothing over visits".to_owned(),
                };
                let visits = shown.visits_ns.as_ref().map_or("-", Json::as_text);
                let spread = shown.visit_spread.map_or("-".to_owned(), |spread| format!("{spread:.4}"));
                format!("{}: {interval}, visits {visits}, spread {spread}", shown.median_ns.unwrap_or(0.0))
            }
        };
        wanted.assert_eq(&told);
    }

    #[test]
    fn intervals_are_of_visits_and_of_the_noise_of_all() {
        check(&[], expect!["no time"]);
        check(&[Record { outcome: Outcome::Crashed, median_ns: None, ..record(1, 1.0, None) }], expect!["no time"]);
        // A single visit.
        check(&[record(1, 100.0, None)], expect!["100: nothing over visits, visits -, spread -"]);
        check(&[record(1, 100.0, Some(0.02))], expect!["100: 91.1 .. 109.7, visits -, spread -"]);
        let three = |floor| [record(1, 100.0, None), record(2, 104.0, None), record(3, 102.0, floor)];
        check(&three(None), expect!["102: 91.4 .. 113.8, visits [100.0,104.0,102.0], spread 0.0196"]);
        check(&three(Some(0.02)), expect!["102: 95.8 .. 108.6, visits [100.0,104.0,102.0], spread 0.0196"]);
        check(&three(Some(0.002)), expect!["102: 98.4 .. 105.8, visits [100.0,104.0,102.0], spread 0.0196"]);
        // An interruption within the visit that is a thousand times as long as a run.
        let disturbed = Record { median_interval_ns: Some(100_000.0), ..record(1, 100.0, Some(0.02)) };
        check(&[disturbed], expect!["100: 0.1 .. 100100.0, visits -, spread -"]);
        check(&[record(1, 100.0, Some(1e6))], expect!["100: nothing over visits, visits -, spread -"]);
        // Visits that agree by chance on a noisy host.
        let equal = [record(1, 100.0, None), record(2, 100.0, None), record(3, 100.0, Some(0.03))];
        // One visit that was disturbed for all of its time.
        let disturbed = [record(1, 100.0, None), record(2, 5000.0, None), record(3, 101.0, Some(0.01))];
        check(&disturbed, expect!["101: 1.9 .. 5237.7, visits [100.0,5000.0,101.0], spread 2.2557"]);
        check(&equal, expect!["100: 92.5 .. 108.1, visits [100.0,100.0,100.0], spread 0.0000"]);
    }

    #[test]
    fn more_attempts_that_disagree_widen_the_interval() {
        let night =
            |median_ns: f64, hour: i64| (0..3).map(move |second| record(hour * 3600 + second, median_ns, Some(0.001)));
        let one: Vec<Record> = night(100.0, 1).collect();
        let both: Vec<Record> = night(100.0, 1).chain(night(108.0, 2)).collect();
        let width = |rows: &[Record]| {
            median_record(&rows.iter().collect::<Vec<_>>()).expect("times").uncertainty().expect("an interval")
        };
        assert!(width(&one) < 0.01, "{}", width(&one));
        assert!(width(&both) > 0.05, "{}", width(&both));
    }

    #[test]
    fn two_measurements_of_one_thing_differ_by_less_than_is_detectable() {
        assert_eq!(detectable_ratio(&[100.0], &[101.0], None), None);
        let (first, second) = ([100.0, 104.0, 102.0], [107.0, 103.0, 105.0]);
        let least = detectable_ratio(&first, &second, None).expect("visits scatter");
        assert!((0.04..0.12).contains(&least), "{least}");
        let quiet = detectable_ratio(&[100.0, 100.0, 100.0], &[100.0, 100.0, 100.0], Some(0.02)).expect("a floor");
        assert!(quiet > 0.0 && quiet < least, "{quiet}");
        // Half of the expected interval is the same statistic for two equally long series.
        let half = OverVisits::of_medians(102.0, &first).interval_ns.map(|(_, high)| (high / 102.0).ln());
        assert!(half.is_some_and(|half| half > detectable_ratio(&first, &first, None).expect("visits scatter")));
    }

    #[test]
    fn rows_that_sum_up_visits_count_as_these() {
        let whole = Record { visits_ns: Json::new(&[100.0, 104.0, 102.0]).ok(), ..record(1, 102.0, None) };
        let rows = [record(1, 100.0, None), record(2, 104.0, None), record(3, 102.0, None)];
        let of_rows = median_record(&rows.iter().collect::<Vec<_>>()).expect("times");
        assert_eq!(whole.over_visits().expect("a time").interval_ns, of_rows.median_low_ns.zip(of_rows.median_high_ns));
        let all = [rows.to_vec(), vec![Record { started_at_us: 9_000_000, ..whole }]].concat();
        let visits: Vec<f64> = median_record(&all.iter().collect::<Vec<_>>())
            .expect("times")
            .visits_ns
            .expect("visits")
            .parse_as()
            .expect("numbers");
        assert_eq!(visits.len(), 6);
    }

    #[test]
    fn a_simulated_time_and_an_imported_one_keep_their_own_interval() {
        for source in [Source::Simulated, Source::Imported] {
            let row = Record { source, ..record(1, 100.0, None) };
            assert_eq!(row.over_visits().expect("a time").interval_ns, Some((99.9, 100.1)));
        }
    }

    #[test]
    fn another_measurement_lands_in_the_interval_as_often_as_promised() {
        use rand::{RngExt, SeedableRng};
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(5);
        let mut scatter = |sigma: f64| (0..12).map(|_| random.random_range(-0.5..0.5)).sum::<f64>() * sigma;
        let (mut hits, mut widths, mut differences) = (0, Vec::new(), Vec::new());
        for _ in 0..2000 {
            // Variation shared by the visits of a campaign, and variation between them.
            let mut campaign = |floor| {
                let shared = scatter(0.02 * SHARED_VARIANCE.sqrt());
                (0..3)
                    .map(|second| record(second, 100.0 * (shared + scatter(0.02)).exp(), floor))
                    .collect::<Vec<Record>>()
            };
            let (first, second) = (campaign(Some(0.02)), campaign(None));
            let shown = |rows: &[Record]| median_record(&rows.iter().collect::<Vec<_>>()).expect("times");
            let (first, second) = (shown(&first), shown(&second).median_ns.expect("a median"));
            let (low, high) = first.median_low_ns.zip(first.median_high_ns).expect("an interval");
            hits += u32::from((low..=high).contains(&second));
            widths.push(first.uncertainty().expect("an interval"));
            differences.push((second / first.median_ns.expect("a median") - 1.0).abs());
        }
        widths.sort_by(f64::total_cmp);
        differences.sort_by(f64::total_cmp);
        assert!(hits > 1900, "{hits} of 2000");
        // The interval must not cover only because it is wide.
        assert!(widths[1000] < 4.5 * differences[1000], "{} for {}", widths[1000], differences[1000]);
    }

    #[test]
    fn the_noise_floor_is_the_scatter_of_the_middle_experiment() {
        let mut floor = NoiseFloor::default();
        for number in 0..9u8 {
            // The last two experiments scatter wildly.
            let spread: f64 = if number < 7 { 0.01 } else { 0.5 };
            floor.add_visit(Key([number; 16]), 100.0);
            assert_eq!(floor.pooled_spread().is_some(), number > 7, "experiment {number}");
            floor.add_visit(Key([number; 16]), 100.0 * spread.exp());
        }
        let pooled = floor.pooled_spread().expect("enough experiments");
        assert!((0.007..0.012).contains(&pooled), "{pooled}");
    }
}
