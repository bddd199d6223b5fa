//! Conversion of records to lines: the times of one task and schedule over several nightly runs.

use super::causes::{note_line_facts, note_night_facts};
use super::cell::cell_text;
use super::distributions::median_of;
use super::history::{DriftLine, History, LineFacts, LineIdentity, LinePoint, Night, Side};
use super::sentinels::{Aspect, aspect_of};
use datasets::{ColumnId, DOUBTED, Outcome, Record, Source};
use report::{format_count, format_date};
use std::collections::{BTreeMap, BTreeSet};

/// Half-width of a 95 % interval in units of the standard error.
const HALF: f64 = 1.96;
const NIGHT: &str = "night-";

#[derive(Debug, Default)]
pub struct RecordGatherer {
    nights: BTreeMap<(Side, String), Night>,
    lines: BTreeMap<LineIdentity, GatheredLine>,
    schemas: BTreeSet<i64>,
    left_out: BTreeMap<&'static str, usize>,
    /// Number of sentinel measurements that were skipped because they have no confidence interval.
    doubtful_sentinels: usize,
    /// Whether a line contains the best schedule of a task in each night, instead of a fixed schedule.
    by_task: bool,
    /// Whether the records of each host form separate lines and nights.
    by_host: bool,
}

#[derive(Debug, Default)]
struct GatheredLine {
    aspect: Option<Aspect>,
    times: BTreeMap<(Side, String), Vec<MeasuredTime>>,
    facts: BTreeMap<Side, LineFacts>,
    losses: BTreeMap<Side, usize>,
}

#[derive(Clone, Copy, Debug)]
struct MeasuredTime {
    log_ns: f64,
    doubt: f64,
    at_us: i64,
}

/// Returns the night to which a record belongs: its run of `opcollect night`, else the UTC date of the preceding noon.
pub fn night_of(record: &Record) -> String {
    const DAY_US: i64 = 86_400_000_000;
    match record.run_id.starts_with(NIGHT) {
        true => record.run_id[NIGHT.len()..].to_owned(),
        false => format_date((record.started_at_us - DAY_US / 2).div_euclid(DAY_US)),
    }
}

impl RecordGatherer {
    pub fn new(by_task: bool, by_host: bool) -> RecordGatherer {
        RecordGatherer { by_task, by_host, ..RecordGatherer::default() }
    }

    pub fn add_record(&mut self, record: &Record, side: Side) {
        if record.source != Source::Measured {
            *self.left_out.entry(record.source.name()).or_default() += 1;
            return;
        }
        self.schemas.insert(record.schema_version);
        let aspect = aspect_of(record);
        let by_task = self.by_task && aspect.is_none();
        let line = self.lines.entry(line_identity(record, by_task, self.by_host)).or_default();
        line.aspect = aspect;
        let (Outcome::Ok, Some(median_ns)) = (record.outcome, record.median_ns.filter(|ns| *ns > 0.0)) else {
            *line.losses.entry(side).or_default() += 1;
            return;
        };
        // The machine's factor is estimated from sentinels and applied to all other lines, so its own error must be
        // known.
        if aspect.is_some() && record.uncertainty_within_visit().is_none() {
            self.doubtful_sentinels += 1;
            return;
        }
        let night = night_of(record);
        // Each host has its own machine factor, so each host gets its own night.
        let label = if self.by_host { format!("{night} {}", record.host) } else { night };
        let key = (side, label);
        let doubt = doubt_of(record, median_ns);
        let time = MeasuredTime { log_ns: median_ns.ln(), doubt, at_us: record.started_at_us };
        line.times.entry(key.clone()).or_default().push(time);
        note_line_facts(record, line.facts.entry(side).or_default());
        let at_us = record.started_at_us;
        let night = self.nights.entry(key).or_insert_with_key(|(side, label)| Night {
            label: label.clone(),
            side: *side,
            first_us: at_us,
            last_us: at_us,
            records: 0,
            facts: LineFacts::new(),
        });
        (night.first_us, night.last_us) = (night.first_us.min(at_us), night.last_us.max(at_us));
        night.records += 1;
        note_night_facts(record, &mut night.facts);
    }

    pub fn build_history(self) -> History {
        let mut nights: Vec<((Side, String), Night)> = self.nights.into_iter().collect();
        nights.sort_by_key(|(key, night)| (night.side, night.first_us, key.clone()));
        let places: BTreeMap<&(Side, String), usize> =
            nights.iter().enumerate().map(|(place, (key, _))| (key, place)).collect();
        let (mut lines, mut unrests) = (Vec::new(), Vec::new());
        for (identity, gathered) in self.lines {
            let by_task = self.by_task && gathered.aspect.is_none();
            let mut points: Vec<LinePoint> =
                gathered.times.iter().map(|(key, times)| combine_night(places[key], times, by_task)).collect();
            points.sort_by_key(|point| point.night);
            if gathered.aspect.is_some() {
                unrests.extend(gathered.times.values().filter_map(|times| step_variance(times)));
            }
            let looks = if by_task { (0.0, 0.0) } else { pooled_variance(gathered.times.values()) };
            let GatheredLine { aspect, facts, losses, .. } = gathered;
            lines.push(DriftLine { identity, aspect, points, looks, facts, losses });
        }
        let unrest = measure::statistics::median(&unrests);
        let nights: Vec<Night> = nights.into_iter().map(|(_, night)| night).collect();
        let mut notes = history_notes(&nights, &self.schemas, &self.left_out);
        if self.doubtful_sentinels > 0 {
            let count = format_count(self.doubtful_sentinels, "sentinel measurement");
            notes.push(format!("ignored {count} with too few samples for an interval"));
        }
        History { nights, lines, unrest, notes }
    }
}

/// Returns the relative standard error of a median. If the interval is wide, the error extends to the minimum, since a
/// disturbance of most samples of a process may have raised the median.
fn doubt_of(record: &Record, median_ns: f64) -> f64 {
    /// Relative half-width of the interval up to which a process counts as undisturbed.
    const QUIET: f64 = 0.02;
    let within = record.uncertainty_within_visit();
    let own = within.unwrap_or(DOUBTED) / HALF;
    let least_ns = record.min_ns.filter(|ns| *ns > 0.0 && *ns < median_ns);
    match (within.is_some_and(|within| within <= QUIET), least_ns) {
        (false, Some(least_ns)) => own.max((median_ns / least_ns).ln()),
        _ => own,
    }
}

fn line_identity(record: &Record, by_task: bool, by_host: bool) -> LineIdentity {
    let columns = [
        ColumnId::target,
        ColumnId::board,
        ColumnId::device,
        ColumnId::thread_mode,
        ColumnId::parallel_type,
        ColumnId::co_run,
        ColumnId::cache_share,
        ColumnId::sizes,
    ];
    let place: Vec<String> = columns.into_iter().filter_map(|id| cell_text(record.cell(id))).collect();
    LineIdentity {
        op_kind: record.op_kind.clone(),
        task: record.op_text.clone(),
        task_hash: record.task_hash.clone(),
        schedule_hash: record.schedule_hash.clone().filter(|_| !by_task),
        threads: record.threads,
        cache_state: record.cache_state.map(|state| state.name()),
        network: record.network_hash.clone(),
        place: place.join(" · "),
        source: record.source.name(),
        host: by_host.then(|| record.host.clone()),
    }
}

/// Combines a night's times: their mean or, if they belong to several schedules, the best one.
fn combine_night(night: usize, times: &[MeasuredTime], is_best: bool) -> LinePoint {
    if is_best {
        let upper = |time: &&MeasuredTime| time.log_ns + HALF * time.doubt;
        let best = times
            .iter()
            .min_by(|one, other| upper(one).total_cmp(&upper(other)))
            .expect("a night has at least one time");
        return LinePoint { night, log_ns: best.log_ns, doubt: best.doubt, count: times.len() };
    }
    let count = times.len() as f64;
    let log_ns = mean_log(times);
    // Of several visits, a disturbed one with a wide interval does not make the others uncertain.
    let own = median_of(&times.iter().map(|time| time.doubt.powi(2)).collect::<Vec<f64>>());
    let spread = log_variance(times).unwrap_or(0.0);
    LinePoint { night, log_ns, doubt: (own.max(spread) / count).sqrt(), count: times.len() }
}

fn mean_log(times: &[MeasuredTime]) -> f64 {
    times.iter().map(|time| time.log_ns).sum::<f64>() / times.len() as f64
}

fn log_variance(times: &[MeasuredTime]) -> Option<f64> {
    let mean = mean_log(times);
    let squares: f64 = times.iter().map(|time| (time.log_ns - mean).powi(2)).sum();
    (times.len() > 1).then(|| squares / (times.len() - 1) as f64)
}

/// Returns the pooled variance within nights, and its degrees of freedom.
fn pooled_variance<'a>(nights: impl Iterator<Item = &'a Vec<MeasuredTime>>) -> (f64, f64) {
    let known = nights.filter_map(|times| Some((log_variance(times)?, times.len() as f64 - 1.0)));
    let (squares, freedom) = known.fold((0.0, 0.0), |(squares, all), (own, more)| (squares + own * more, all + more));
    if freedom > 0.0 { (squares / freedom, freedom) } else { (0.0, 0.0) }
}

/// Returns half the mean squared step between repetitions of a sentinel, which slow trends barely influence.
fn step_variance(times: &[MeasuredTime]) -> Option<f64> {
    let mut sorted = times.to_vec();
    sorted.sort_by_key(|time| time.at_us);
    let steps: Vec<f64> = sorted.windows(2).map(|pair| (pair[1].log_ns - pair[0].log_ns).powi(2) / 2.0).collect();
    (!steps.is_empty()).then(|| steps.iter().sum::<f64>() / steps.len() as f64)
}

fn history_notes(nights: &[Night], schemas: &BTreeSet<i64>, left_out: &BTreeMap<&'static str, usize>) -> Vec<String> {
    let mut notes = Vec::new();
    if schemas.len() > 1 {
        let versions: Vec<String> = schemas.iter().map(ToString::to_string).collect();
        notes.push(format!(
            "records have schema versions {}; columns that older ones lack are not compared",
            versions.join(" and ")
        ));
    }
    for (source, count) in left_out {
        notes.push(format!("{count} records with the source `{source}` were skipped, because they are not measured"));
    }
    let last_before = nights.iter().filter(|night| night.side == Side::Before).map(|night| night.last_us).max();
    let first_after = nights.iter().filter(|night| night.side == Side::After).map(|night| night.first_us).min();
    if last_before.zip(first_after).is_some_and(|(before, after)| after < before) {
        notes.push(
            "the side AFTER began before the side BEFORE ended: a clock was set back, or the sides overlap".to_owned(),
        );
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nights_go_from_noon_to_noon() {
        let night = |seconds: i64| night_of(&Record { started_at_us: seconds * 1_000_000, ..Record::default() });
        // 2024-02-29 13:00 UTC and the next morning.
        assert_eq!(night(1_709_211_600), "2024-02-29");
        assert_eq!(night(1_709_211_600 + 20 * 3600), "2024-02-29");
        assert_eq!(night(1_709_211_600 + 24 * 3600), "2024-03-01");
        assert_eq!((night(0), night(-86_400)), ("1969-12-31".to_owned(), "1969-12-30".to_owned()));
        let record = Record { run_id: "night-20261122-213000".to_owned(), ..Record::default() };
        assert_eq!(night_of(&record), "20261122-213000");
    }
}
