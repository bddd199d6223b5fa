//! Comparison of two sets of records (sides), first for each line, then for all lines with one false discovery rate.

use super::causes::{Cause, differing_columns, night_causes};
use super::cell::shorten_hash;
use super::distributions::{
    adjust_p_values, mean_of, median_of, student_critical_value, student_tails, sum_of_squares,
};
use super::history::{DriftLine, History, LineFacts, LineIdentity, LinePoint, Night, Side};
use super::machine::{MachineDrift, estimate_machine};
use super::prior::Prior;
use super::sentinels::Aspect;
use measure::statistics::{median, median_of_sorted};
use serde::Serialize;
use std::collections::BTreeMap;

/// Degrees of freedom of the variance of a single median, whose interval is based on many samples.
const SINGLE_FREEDOM: f64 = 30.0;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bounds {
    pub false_discoveries: f64,
    /// Relative change below which times count as equal.
    pub threshold: f64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { false_discoveries: 0.02, threshold: 0.01 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Significantly slower, by more than the threshold.
    Slower,
    Faster,
    /// Any change is smaller than the threshold.
    Same,
    Unclear,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    #[serde(flatten)]
    pub identity: LineIdentity,
    pub before_ns: f64,
    pub after_ns: f64,
    /// Ratio of the time after to the time before, corrected for changes of the machine.
    pub ratio: f64,
    /// 95 % interval of `ratio`.
    pub interval: (f64, f64),
    pub q_value: f64,
    pub verdict: Verdict,
    pub nights: (usize, usize),
    /// Whether the times are medians over nights instead of means, because the variance between the line's nights is
    /// improbably large.
    pub by_median: bool,
    pub causes: Vec<Cause>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Drift {
    pub nights: Vec<Night>,
    pub machine: MachineDrift,
    pub machine_ratio: f64,
    pub machine_aspects: Vec<(Aspect, f64)>,
    /// Lines on both sides: slower ones first, then faster ones, then all others, each by decreasing change.
    pub changes: Vec<Change>,
    /// Lines with a time on the side `Before` and only failed attempts on the side `After`.
    pub lost: Vec<LineIdentity>,
    /// Number of lines that exist only on the side `Before`, and number of lines that exist only on the side `After`.
    pub only: (usize, usize),
    pub causes: Vec<Cause>,
    /// Smallest relative change that is detectable in half of the lines.
    pub seen_from: Option<f64>,
    pub bounds: Bounds,
    pub notes: Vec<String>,
}

impl Drift {
    pub fn count_verdict(&self, verdict: Verdict) -> usize {
        self.changes.iter().filter(|change| change.verdict == verdict).count()
    }

    pub fn has_regressed(&self) -> bool {
        self.count_verdict(Verdict::Slower) > 0 || !self.lost.is_empty()
    }
}

struct LineStatistics<'a> {
    line: &'a DriftLine,
    /// Logarithms of the sides' times: means, or medians if there are outlier nights.
    levels: (f64, f64),
    by_median: bool,
    nights: (usize, usize),
    difference: f64,
    /// Variance between the nights of a side, and its degrees of freedom.
    spread: (f64, f64),
    /// Variance of the difference that results from the standard errors of the medians.
    own: f64,
    of_machine: f64,
    /// Variance of the difference, as a multiple of the variance of a single measurement.
    looks: f64,
    causes: Vec<Cause>,
}

pub fn judge_lines(history: &History, bounds: Bounds) -> Drift {
    let (machine, of_machine) = estimate_machine(history);
    let mut notes = [history.notes.clone(), of_machine].concat();
    let lines = || history.lines.iter().filter(|line| line.aspect.is_none());
    let mut seen: Vec<LineStatistics> =
        lines().filter_map(|line| line_statistics(line, &history.nights, &machine, false)).collect();
    let is_single = seen.iter().all(|one| one.spread.1 == 0.0);
    let prior = Prior::fit_prior(&seen.iter().map(|one| one.spread).collect::<Vec<_>>());
    // An outlier night would shift the mean of its side.
    for one in &mut seen {
        if prior.is_some_and(|prior| prior.is_outlying(one.spread.0, one.spread.1)) {
            *one = line_statistics(one.line, &history.nights, &machine, true).expect("it has both sides");
        }
    }
    // Single nights have no variance between nights. The variance between measurements of a night replaces it.
    let of_looks =
        Prior::fit_prior(&seen.iter().map(|one| one.line.looks).collect::<Vec<_>>()).filter(|_| prior.is_none());
    let mut judged: Vec<(f64, f64)> =
        seen.iter().map(|one| difference_variance(one, prior, of_looks, history.unrest.unwrap_or(0.0))).collect();
    if is_single && history.unrest.is_none() && of_looks.is_none() && !seen.is_empty() {
        notes.push(
            "each side is one nightly run and no sentinel was repeated: random variation is estimated from the spread \
             of all lines"
                .to_owned(),
        );
        let scale = spread_of_all(&seen, &judged);
        judged.iter_mut().for_each(|(variance, _)| *variance *= scale.powi(2).max(1.0));
    }
    if is_single {
        let shifts = network_shifts(&seen);
        for (one, (variance, _)) in seen.iter().zip(&mut judged) {
            *variance += network_key(one).and_then(|around| shifts.get(&around)).map_or(0.0, |shift| shift.powi(2));
        }
        notes.extend(network_notes(&shifts, bounds));
    }
    let scores = standard_scores(&seen, &judged);
    let tails: Vec<f64> =
        scores.iter().zip(&judged).map(|(score, (_, freedom))| student_tails(*score, *freedom)).collect();
    let mut q_values = adjust_p_values(&tails);
    if is_single {
        let is_same_code: Vec<bool> = seen.iter().map(|one| one.causes.is_empty()).collect();
        let of_others = mirrored_discovery_rates(&scores, &is_same_code);
        q_values.iter_mut().zip(of_others).for_each(|(own, of_others)| *own = own.max(of_others));
    }
    let mut changes: Vec<Change> = seen
        .iter()
        .zip(&judged)
        .zip(&q_values)
        .map(|((one, judged), q)| build_change(one, *judged, *q, bounds))
        .collect();
    changes.sort_by(|one, other| {
        let size = |change: &Change| change.ratio.ln().abs();
        one.verdict.sort_rank().cmp(&other.verdict.sort_rank()).then(size(other).total_cmp(&size(one)))
    });
    let reaches: Vec<f64> = judged
        .iter()
        .map(|(variance, freedom)| 2.0 * student_critical_value(0.05, *freedom) * variance.sqrt())
        .collect();
    let of =
        |levels: &[f64]| (side_mean(levels, history, Side::After) - side_mean(levels, history, Side::Before)).exp();
    let machine_aspects = machine.aspects.iter().map(|(aspect, levels)| {
        let levels: Vec<f64> = levels.iter().map(|level| level.unwrap_or(f64::NAN)).collect();
        (*aspect, of(&levels))
    });
    Drift {
        machine_ratio: of(&machine.log_factor),
        machine_aspects: machine_aspects.collect(),
        nights: history.nights.clone(),
        lost: lines().filter(|line| is_lost(line, &history.nights)).map(|line| line.identity.clone()).collect(),
        only: count_one_sided(lines(), &history.nights),
        causes: night_causes(&history.nights),
        seen_from: median(&reaches).map(f64::exp_m1),
        changes,
        machine,
        bounds,
        notes,
    }
}

impl Verdict {
    fn sort_rank(self) -> u8 {
        match self {
            Verdict::Slower => 0,
            Verdict::Faster => 1,
            Verdict::Unclear => 2,
            Verdict::Same => 3,
        }
    }
}

/// Compares the sides of a line by the mean or the median of each.
fn line_statistics<'a>(
    line: &'a DriftLine,
    nights: &[Night],
    machine: &MachineDrift,
    by_median: bool,
) -> Option<LineStatistics<'a>> {
    let centre = if by_median { median_of } else { mean_of };
    let of = |side: Side| -> Vec<&LinePoint> { line.points_of_side(nights, side).collect() };
    let (before, after) = (of(Side::Before), of(Side::After));
    if before.is_empty() || after.is_empty() {
        return None;
    }
    // Variance of the difference of the sides' means, from the variance of each point.
    let of_means = |of_point: &dyn Fn(&LinePoint) -> f64| -> f64 {
        [&before, &after]
            .map(|points| points.iter().map(|point| of_point(point)).sum::<f64>() / (points.len() as f64).powi(2))
            .iter()
            .sum()
    };
    let corrected =
        |points: &[&LinePoint]| -> Vec<f64> { points.iter().map(|point| machine.correct_time(point)).collect() };
    let (ys, others) = (corrected(&before), corrected(&after));
    let freedom = (ys.len() + others.len() - 2) as f64;
    let squares = sum_of_squares(&ys) + sum_of_squares(&others);
    let facts = |side: Side| line.facts.get(&side).cloned().unwrap_or_else(LineFacts::new);
    let plain = |points: &[&LinePoint]| centre(&points.iter().map(|point| point.log_ns).collect::<Vec<f64>>());
    Some(LineStatistics {
        line,
        levels: (plain(&before), plain(&after)),
        by_median,
        nights: (before.len(), after.len()),
        difference: centre(&others) - centre(&ys),
        spread: (if freedom > 0.0 { squares / freedom } else { 0.0 }, freedom),
        own: of_means(&|point| point.doubt.powi(2)),
        of_machine: of_means(&|point| machine.doubt[point.night].powi(2)),
        looks: of_means(&|point| 1.0 / point.count as f64),
        causes: differing_columns(&facts(Side::Before), &facts(Side::After)),
    })
}

/// Estimates the false discovery rate of each line from equally large changes in the opposite direction: a disturbance
/// of a whole measurement, which its interval does not show, is equally likely on both sides. In the opposite
/// direction, only lines with unchanged code count.
fn mirrored_discovery_rates(scores: &[f64], is_same_code: &[bool]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&one, &other| scores[other].abs().total_cmp(&scores[one].abs()));
    // Counts by direction: all lines, and lines with unchanged code.
    let (mut all, mut same) = ([0usize; 2], [0usize; 2]);
    let mut shares = vec![1.0; scores.len()];
    for &place in &order {
        let side = usize::from(scores[place] > 0.0);
        all[side] += 1;
        same[side] += usize::from(is_same_code[place]);
        shares[place] = same[1 - side] as f64 / all[side] as f64;
    }
    // Makes the shares monotonic: a larger change is at least as significant as a smaller one.
    let mut least = [f64::INFINITY; 2];
    for &place in order.iter().rev() {
        let side = usize::from(scores[place] > 0.0);
        least[side] = least[side].min(shares[place]);
        shares[place] = least[side].min(1.0);
    }
    shares
}

type NetworkKey<'a> = (&'a str, Option<i64>, Option<&'a str>);

fn network_key<'a>(one: &LineStatistics<'a>) -> Option<NetworkKey<'a>> {
    let LineIdentity { network, threads, host, .. } = &one.line.identity;
    Some((network.as_deref()?, *threads, host.as_deref()))
}

/// Returns the median shift per network, whose operators are timed together and share all disturbances.
fn network_shifts<'a>(seen: &[LineStatistics<'a>]) -> BTreeMap<NetworkKey<'a>, f64> {
    /// Minimum number of operators. With fewer of them, one change would dominate the median.
    const LEAST: usize = 4;
    let mut networks: BTreeMap<NetworkKey<'a>, Vec<f64>> = BTreeMap::new();
    for (around, one) in seen.iter().filter_map(|one| Some((network_key(one)?, one))) {
        networks.entry(around).or_default().push(one.difference);
    }
    networks.retain(|_, differences| differences.len() >= LEAST);
    networks
        .into_iter()
        .map(|(around, mut differences)| {
            differences.sort_by(f64::total_cmp);
            (around, median_of_sorted(&differences))
        })
        .collect()
}

fn network_notes(shifts: &BTreeMap<NetworkKey<'_>, f64>, bounds: Bounds) -> Vec<String> {
    let moved = shifts.iter().filter(|(_, shift)| shift.abs() > bounds.threshold);
    let texts = moved.map(|((network, threads, _), shift)| {
        let network = shorten_hash(network);
        let threads = threads.map_or(String::new(), |threads| format!(", threads {threads}"));
        let (factor, why) = (shift.exp(), "it ran only once on each side, so the change may be random");
        format!("network {network}{threads}: its operators changed by × {factor:.3} (median) in the network; {why}")
    });
    texts.collect()
}

/// Returns the variance of the difference of a line's sides, and its degrees of freedom.
fn difference_variance(
    one: &LineStatistics<'_>,
    prior: Option<Prior>,
    of_looks: Option<Prior>,
    unrest: f64,
) -> (f64, f64) {
    let nights = 1.0 / one.nights.0 as f64 + 1.0 / one.nights.1 as f64;
    let (of_nights, freedom) = match prior {
        Some(prior) => {
            let (variance, freedom) = prior.posterior_variance(one.spread.0, one.spread.1);
            ((variance * nights).max(one.own), freedom)
        }
        None => {
            let looks = one.line.looks;
            let (look, freedom) = of_looks.map_or((0.0, SINGLE_FREEDOM), |of| of.posterior_variance(looks.0, looks.1));
            (one.own.max(look * one.looks) + unrest.max(one.spread.0) * nights, freedom.min(SINGLE_FREEDOM))
        }
    };
    (of_nights + one.of_machine, freedom)
}

/// Returns the ratio of actual to expected scatter of all changes, assuming that most lines are unchanged.
fn spread_of_all(seen: &[LineStatistics<'_>], judged: &[(f64, f64)]) -> f64 {
    /// Ratio of standard deviation to median absolute deviation for a normal distribution.
    const NORMAL: f64 = 1.4826;
    let mut sizes: Vec<f64> = standard_scores(seen, judged).into_iter().map(f64::abs).collect();
    sizes.sort_by(f64::total_cmp);
    NORMAL * median_of_sorted(&sizes)
}

fn standard_scores(seen: &[LineStatistics<'_>], judged: &[(f64, f64)]) -> Vec<f64> {
    seen.iter().zip(judged).map(|(one, (variance, _))| one.difference / variance.sqrt()).collect()
}

fn build_change(one: &LineStatistics<'_>, (variance, freedom): (f64, f64), q_value: f64, bounds: Bounds) -> Change {
    let reach = student_critical_value(0.05, freedom) * variance.sqrt();
    let (ratio, interval) = (one.difference.exp(), ((one.difference - reach).exp(), (one.difference + reach).exp()));
    let edge = 1.0 + bounds.threshold;
    let verdict = match q_value <= bounds.false_discoveries {
        true if ratio > edge => Verdict::Slower,
        true if ratio < 1.0 / edge => Verdict::Faster,
        _ if interval.0 > 1.0 / edge && interval.1 < edge => Verdict::Same,
        true => Verdict::Same,
        false => Verdict::Unclear,
    };
    Change {
        identity: one.line.identity.clone(),
        before_ns: one.levels.0.exp(),
        after_ns: one.levels.1.exp(),
        ratio,
        interval,
        q_value,
        verdict,
        nights: one.nights,
        by_median: one.by_median,
        causes: one.causes.clone(),
    }
}

fn is_lost(line: &DriftLine, nights: &[Night]) -> bool {
    line.points_of_side(nights, Side::Before).next().is_some()
        && line.points_of_side(nights, Side::After).next().is_none()
        && line.losses.contains_key(&Side::After)
}

fn count_one_sided<'a>(lines: impl Iterator<Item = &'a DriftLine>, nights: &[Night]) -> (usize, usize) {
    lines.fold((0, 0), |(before, after), line| {
        let has = |side: Side| line.points_of_side(nights, side).next().is_some();
        let (is_before, is_after) = (has(Side::Before), has(Side::After));
        (before + usize::from(is_before && !is_after), after + usize::from(is_after && !is_before))
    })
}

fn side_mean(levels: &[f64], history: &History, side: Side) -> f64 {
    let side_levels =
        levels.iter().zip(&history.nights).filter(|(level, night)| night.side == side && level.is_finite());
    mean_of(&side_levels.map(|(level, _)| *level).collect::<Vec<f64>>())
}
