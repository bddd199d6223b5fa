//! Two sides compared, line by line and then together.

use super::causes::{Cause, between, differences};
use super::cell::first_signs;
use super::distributions::{adjusted, student_reach, student_tails};
use super::history::{Facts, History, Identity, Line, Night, Point, Side};
use super::machine::{Machine, machine};
use super::prior::Prior;
use super::sentinels::Aspect;
use measure::statistics::median;
use serde::Serialize;
use std::collections::BTreeMap;

/// Intervals of medians are of many samples.
const SINGLE_FREEDOM: f64 = 30.0;

/// What counts as a change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bounds {
    /// Of all that are called changed, the share that may be so by chance.
    pub false_discoveries: f64,
    /// Changes up to this share of the time before do not count.
    pub threshold: f64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { false_discoveries: 0.02, threshold: 0.01 }
    }
}

/// What is said of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It takes longer, beyond chance and threshold.
    Slower,
    /// It takes less.
    Faster,
    /// Whatever changed is below the threshold.
    Same,
    /// It is not known well enough to say.
    Unclear,
}

/// A line on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// What it is.
    #[serde(flatten)]
    pub identity: Identity,
    /// Time before, the mean over nights, in nanoseconds.
    pub before_ns: f64,
    /// Time after, likewise.
    pub after_ns: f64,
    /// Time after over time before, without what the machine did.
    pub ratio: f64,
    /// Its 95 % interval.
    pub interval: (f64, f64),
    /// The least share of chance findings at which it counts as changed.
    pub q_value: f64,
    /// What is said of it.
    pub verdict: Verdict,
    /// Nights on either side.
    pub nights: (usize, usize),
    /// What of its code differs.
    pub causes: Vec<Cause>,
}

/// All that two sides say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Drift {
    /// The nights of both.
    pub nights: Vec<Night>,
    /// How the machine fared.
    pub machine: Machine,
    /// Machine after over machine before, by its sentinels.
    pub machine_ratio: f64,
    /// The same by aspect.
    pub machine_aspects: Vec<(Aspect, f64)>,
    /// Lines on both sides: what got slower first, then faster, then the others, the largest change first.
    pub changes: Vec<Change>,
    /// Lines with a time before, and only losses after.
    pub lost: Vec<Identity>,
    /// Lines seen on one side alone.
    pub only: (usize, usize),
    /// What differs between the sides as a whole.
    pub causes: Vec<Cause>,
    /// A change by this share would have been seen in half of the lines.
    pub seen_from: Option<f64>,
    /// What counted as a change.
    pub bounds: Bounds,
    /// What to know.
    pub notes: Vec<String>,
}

impl Drift {
    /// Lines with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.changes.iter().filter(|change| change.verdict == verdict).count()
    }

    /// Whether anything got slower, or lost its time.
    pub fn has_regressed(&self) -> bool {
        self.count(Verdict::Slower) > 0 || !self.lost.is_empty()
    }
}

/// What one line says by itself.
struct Seen<'a> {
    line: &'a Line,
    means: (f64, f64),
    nights: (usize, usize),
    difference: f64,
    /// Variance of a night around its side's mean, and its degrees of freedom.
    spread: (f64, f64),
    /// Variance of the difference by what medians say of themselves, and by what is known of the machine.
    own: f64,
    of_machine: f64,
    /// Variance of the difference, in variances of one look.
    looks: f64,
    /// What of its code differs.
    causes: Vec<Cause>,
}

/// Judges all lines of a history.
pub fn judge(history: &History, bounds: Bounds) -> Drift {
    let (machine, of_machine) = machine(history);
    let mut notes = [history.notes.clone(), of_machine].concat();
    let lines = || history.lines.iter().filter(|line| line.aspect.is_none());
    let seen: Vec<Seen> = lines().filter_map(|line| look(line, &history.nights, &machine)).collect();
    let is_single = seen.iter().all(|one| one.spread.1 == 0.0);
    let prior = Prior::of(&seen.iter().map(|one| one.spread).collect::<Vec<_>>());
    // What looks of one night say of one another, where nights say nothing.
    let of_looks = Prior::of(&seen.iter().map(|one| one.line.looks).collect::<Vec<_>>()).filter(|_| prior.is_none());
    let mut judged: Vec<(f64, f64)> = seen
        .iter()
        .map(|one| {
            let (look, worth) =
                of_looks.map_or((0.0, SINGLE_FREEDOM), |of| of.with(one.line.looks.0, one.line.looks.1));
            (variance(one, prior, look, history.unrest.unwrap_or(0.0)), freedom(one, prior, worth))
        })
        .collect();
    if is_single && history.unrest.is_none() && of_looks.is_none() && !seen.is_empty() {
        notes.push(
            "each side is one night and no sentinel was repeated: how much nights differ by chance is taken from the spread of all lines"
                .to_owned(),
        );
        let scale = spread_of_all(&seen, &judged);
        judged.iter_mut().for_each(|(variance, _)| *variance *= scale.powi(2).max(1.0));
    }
    if is_single {
        let shifts = shifts(&seen);
        for (one, (variance, _)) in seen.iter().zip(&mut judged) {
            *variance += around(one).and_then(|around| shifts.get(&around)).map_or(0.0, |shift| shift.powi(2));
        }
        notes.extend(told_of_networks(&shifts, bounds));
    }
    let scores = scores(&seen, &judged);
    let tails: Vec<f64> =
        scores.iter().zip(&judged).map(|(score, (_, freedom))| student_tails(*score, *freedom)).collect();
    let mut q_values = adjusted(&tails);
    if is_single {
        let is_same_code: Vec<bool> = seen.iter().map(|one| one.causes.is_empty()).collect();
        let of_others = mirrored(&scores, &is_same_code);
        q_values.iter_mut().zip(of_others).for_each(|(own, of_others)| *own = own.max(of_others));
    }
    let mut changes: Vec<Change> =
        seen.iter().zip(&judged).zip(&q_values).map(|((one, judged), q)| change(one, *judged, *q, bounds)).collect();
    changes.sort_by(|one, other| {
        let size = |change: &Change| change.ratio.ln().abs();
        one.verdict.order().cmp(&other.verdict.order()).then(size(other).total_cmp(&size(one)))
    });
    let mut reaches: Vec<f64> =
        judged.iter().map(|(variance, freedom)| 2.0 * student_reach(0.05, *freedom) * variance.sqrt()).collect();
    reaches.sort_by(f64::total_cmp);
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
        only: only(lines(), &history.nights),
        causes: between(&history.nights),
        seen_from: (!reaches.is_empty()).then(|| median(&reaches).exp_m1()),
        changes,
        machine,
        bounds,
        notes,
    }
}

impl Verdict {
    fn order(self) -> u8 {
        match self {
            Verdict::Slower => 0,
            Verdict::Faster => 1,
            Verdict::Unclear => 2,
            Verdict::Same => 3,
        }
    }
}

fn look<'a>(line: &'a Line, nights: &[Night], machine: &Machine) -> Option<Seen<'a>> {
    let of = |side: Side| -> Vec<&Point> { line.of_side(nights, side).collect() };
    let (before, after) = (of(Side::Before), of(Side::After));
    if before.is_empty() || after.is_empty() {
        return None;
    }
    // Of the mean of the points of either side, by what each says.
    let of_means = |of_point: &dyn Fn(&Point) -> f64| -> f64 {
        [&before, &after]
            .map(|points| points.iter().map(|point| of_point(point)).sum::<f64>() / (points.len() as f64).powi(2))
            .iter()
            .sum()
    };
    let corrected = |points: &[&Point]| -> Vec<f64> {
        points.iter().map(|point| point.log_ns - machine.log_factor[point.night]).collect()
    };
    let (ys, others) = (corrected(&before), corrected(&after));
    let freedom = (ys.len() + others.len() - 2) as f64;
    let squares = squares(&ys) + squares(&others);
    let facts = |side: Side| line.facts.get(&side).cloned().unwrap_or_else(Facts::new);
    let plain = |points: &[&Point]| points.iter().map(|point| point.log_ns).sum::<f64>() / points.len() as f64;
    Some(Seen {
        line,
        means: (plain(&before), plain(&after)),
        nights: (before.len(), after.len()),
        difference: mean(&others) - mean(&ys),
        spread: (if freedom > 0.0 { squares / freedom } else { 0.0 }, freedom),
        own: of_means(&|point| point.doubt.powi(2)),
        of_machine: of_means(&|point| machine.doubt[point.night].powi(2)),
        looks: of_means(&|point| 1.0 / point.count as f64),
        causes: differences(&facts(Side::Before), &facts(Side::After)),
    })
}

/// For each line the share of chance findings among those that changed as much as it and in its direction, by what changed as much in
/// the other one: one look at a line may be disturbed from its beginning to its end, on either side alike, and says nothing of it.
/// Only lines whose code is the same are taken to have changed by chance.
fn mirrored(scores: &[f64], is_same_code: &[bool]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&one, &other| scores[other].abs().total_cmp(&scores[one].abs()));
    // Down and up: how many are there, and how many of them have the same code.
    let (mut all, mut same) = ([0usize; 2], [0usize; 2]);
    let mut shares = vec![1.0; scores.len()];
    for &place in &order {
        let side = usize::from(scores[place] > 0.0);
        all[side] += 1;
        same[side] += usize::from(is_same_code[place]);
        shares[place] = same[1 - side] as f64 / all[side] as f64;
    }
    // Who changed more is found where who changed less is.
    let mut least = [f64::INFINITY; 2];
    for &place in order.iter().rev() {
        let side = usize::from(scores[place] > 0.0);
        least[side] = least[side].min(shares[place]);
        shares[place] = least[side].min(1.0);
    }
    shares
}

/// The network around a line, its threads and its host.
type Around<'a> = (&'a str, Option<i64>, Option<&'a str>);

fn around<'a>(one: &Seen<'a>) -> Option<Around<'a>> {
    let Identity { network, threads, host, .. } = &one.line.identity;
    Some((network.as_deref()?, *threads, host.as_deref()))
}

/// By how much the operators of a network moved together. Timed in their places they share a stretch of time, and what happened
/// to the machine in it.
fn shifts<'a>(seen: &[Seen<'a>]) -> BTreeMap<Around<'a>, f64> {
    /// Of fewer, one that changed is half of them.
    const LEAST: usize = 4;
    let mut networks: BTreeMap<Around<'a>, Vec<f64>> = BTreeMap::new();
    for (around, one) in seen.iter().filter_map(|one| Some((around(one)?, one))) {
        networks.entry(around).or_default().push(one.difference);
    }
    networks.retain(|_, differences| differences.len() >= LEAST);
    networks
        .into_iter()
        .map(|(around, mut differences)| {
            differences.sort_by(f64::total_cmp);
            (around, median(&differences))
        })
        .collect()
}

fn told_of_networks(shifts: &BTreeMap<Around<'_>, f64>, bounds: Bounds) -> Vec<String> {
    let moved = shifts.iter().filter(|(_, shift)| shift.abs() > bounds.threshold);
    let told = moved.map(|((network, threads, _), shift)| {
        let network = first_signs(network);
        let threads = threads.map_or(String::new(), |threads| format!(", threads {threads}"));
        let (factor, why) = (shift.exp(), "it ran in one stretch on either side, so that counts as chance");
        format!("network {network}{threads}: its operators moved by × {factor:.3} in the middle in their places; {why}")
    });
    told.collect()
}

/// The variance of the difference of a line.
fn variance(one: &Seen<'_>, prior: Option<Prior>, look: f64, unrest: f64) -> f64 {
    let nights = 1.0 / one.nights.0 as f64 + 1.0 / one.nights.1 as f64;
    let of_nights = match prior {
        Some(prior) => (prior.with(one.spread.0, one.spread.1).0 * nights).max(one.own),
        None => one.own.max(look * one.looks) + unrest.max(one.spread.0) * nights,
    };
    of_nights + one.of_machine
}

fn freedom(one: &Seen<'_>, prior: Option<Prior>, of_looks: f64) -> f64 {
    prior.map_or(of_looks.min(SINGLE_FREEDOM), |prior| prior.freedom + one.spread.1)
}

/// How much farther all lines lie from their middle than they say, taking most of them as unchanged.
fn spread_of_all(seen: &[Seen<'_>], judged: &[(f64, f64)]) -> f64 {
    /// From the median of absolute values to the standard deviation, of a normal distribution.
    const NORMAL: f64 = 1.4826;
    let mut sizes: Vec<f64> = scores(seen, judged).into_iter().map(f64::abs).collect();
    sizes.sort_by(f64::total_cmp);
    NORMAL * median(&sizes)
}

/// The difference of each line in its standard deviations.
fn scores(seen: &[Seen<'_>], judged: &[(f64, f64)]) -> Vec<f64> {
    seen.iter().zip(judged).map(|(one, (variance, _))| one.difference / variance.sqrt()).collect()
}

fn change(one: &Seen<'_>, (variance, freedom): (f64, f64), q_value: f64, bounds: Bounds) -> Change {
    let reach = student_reach(0.05, freedom) * variance.sqrt();
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
        before_ns: one.means.0.exp(),
        after_ns: one.means.1.exp(),
        ratio,
        interval,
        q_value,
        verdict,
        nights: one.nights,
        causes: one.causes.clone(),
    }
}

fn is_lost(line: &Line, nights: &[Night]) -> bool {
    line.of_side(nights, Side::Before).next().is_some()
        && line.of_side(nights, Side::After).next().is_none()
        && line.losses.contains_key(&Side::After)
}

fn only<'a>(lines: impl Iterator<Item = &'a Line>, nights: &[Night]) -> (usize, usize) {
    lines.fold((0, 0), |(before, after), line| {
        let has = |side: Side| line.of_side(nights, side).next().is_some();
        let (is_before, is_after) = (has(Side::Before), has(Side::After));
        (before + usize::from(is_before && !is_after), after + usize::from(is_after && !is_before))
    })
}

fn side_mean(levels: &[f64], history: &History, side: Side) -> f64 {
    let of_side = levels.iter().zip(&history.nights).filter(|(level, night)| night.side == side && level.is_finite());
    mean(&of_side.map(|(level, _)| *level).collect::<Vec<f64>>())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn squares(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum()
}
