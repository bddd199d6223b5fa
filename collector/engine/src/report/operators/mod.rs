//! The table at the end of a campaign: each task of a model with its best schedule.
//!
//! Which is best [`datasets::fastest`] tells of all attempts. What is not known is `–` and never zero.

use crate::campaign::{ModelRequest, PlannedModule, PlannedTask};
use datasets::fastest::time_over;
use datasets::{CacheState, KNOWN_WELL, Key, Outcome, Peaks, Record, fastest};
use job::space::{Knobs, Schedule, space};
use models::Work;
use report::{Cell, Paper, Table, duration, figures, number, or_unknown, percent, words};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use targets::Machine;

/// One task of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The task in words.
    pub task: String,
    /// Hash of the task.
    pub task_hash: String,
    /// How often the model runs it.
    pub count: usize,
    /// The schedule of the best time.
    pub schedule: String,
    /// How it differs from the default one.
    pub difference: String,
    /// Its threads.
    pub threads: i64,
    /// Its median, in nanoseconds.
    pub median_ns: f64,
    /// Half the width of the median's interval over visits, over the median; nothing where there is no interval.
    pub spread: Option<f64>,
    /// Medians of its visits, in the order of time.
    pub visits_ns: Vec<f64>,
    /// Operations per nanosecond.
    pub gflops: f64,
    /// Attainable time over median, if the peaks are known.
    pub roofline: Option<f64>,
    /// Whether the best schedule saves some of the products that are counted.
    pub saves_products: bool,
    /// Part of the model's time.
    pub share: f64,
    /// Half the width of that part's interval; nothing where an operator has none.
    pub share_spread: Option<f64>,
    /// Time of the default schedule over the best, at the same threads; within rounds where both were measured in turns.
    pub default_over_best: Option<f64>,
    /// How often the best was measured.
    pub attempts: usize,
    /// Experiments that gave a time, and all.
    pub measured: (usize, usize),
}

/// One model's rows and sums.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The model.
    pub model: String,
    /// Its batch size, where it has one.
    pub batch: Option<i64>,
    /// What its times were simulated of and by; nothing where they were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<String>,
    /// Its tasks, in graph order.
    pub rows: Vec<Row>,
    /// Tasks without any time.
    pub missing: Vec<String>,
    /// Sum of median × count over the rows, in nanoseconds.
    pub total_ns: f64,
    /// Half the width of its interval over it; nothing where an operator has none.
    pub total_spread: Option<f64>,
    /// Part of the total that is medians known no better than [`KNOWN_WELL`].
    pub uncertain_share: f64,
}

/// Sums up the records of one model of the campaign.
///
/// `model` comes with its index in the campaign; `records` are all attempts, and may be those of other models too.
pub fn summarise(
    (tasks, modules): (&[PlannedTask], &[PlannedModule]),
    model: (usize, &ModelRequest),
    records: &[Record],
    machine: &Machine,
    peaks: &Peaks,
) -> Summary {
    let mut by_task: HashMap<&str, Vec<&Record>> = HashMap::new();
    for record in records {
        by_task.entry(&record.task_hash).or_default().push(record);
    }
    let mut rows = Vec::new();
    let mut missing = Vec::new();
    for planned in tasks {
        let Some((_, count)) = planned.counts.iter().find(|(index, _)| *index == model.0) else { continue };
        let hash = planned.task.hash();
        let attempts = by_task.get(hash.as_str()).map(Vec::as_slice).unwrap_or_default();
        let default = space(&planned.task, machine).default;
        // Columns hold what the program counted that measured; rows of different versions are compared by today's count.
        let work = planned.task.work().ok();
        let task = (planned.task.describe(), *count, hash.clone());
        match best_row(task, attempts, work, Some(default), peaks) {
            Some(row) => rows.push(row),
            None => missing.push(planned.task.describe()),
        }
    }
    for module in modules.iter().filter(|module| module.index == model.0) {
        let hash = module.identity();
        let attempts = by_task.get(hash.as_str()).map(Vec::as_slice).unwrap_or_default();
        match best_row((module.describe(), 1, hash.clone()), attempts, None, None, peaks) {
            Some(row) => rows.push(row),
            None => missing.push(module.describe()),
        }
    }
    let total_ns = sum(rows.iter().map(Row::time_ns));
    let half_widths: Option<Vec<f64>> = rows.iter().map(Row::half_width_ns).collect();
    let total_spread = half_widths.filter(|widths| !widths.is_empty()).map(|widths| {
        share_out(&mut rows, total_ns, &widths);
        // What disturbs a machine moves all of its operators together.
        sum(widths.iter().copied()) / total_ns
    });
    rows.iter_mut().for_each(|row| row.share = row.time_ns() / total_ns);
    let uncertain = rows.iter().filter(|row| !row.is_known_well());
    let uncertain_share = sum(uncertain.map(|row| row.share));
    let simulated = None;
    Summary {
        model: model.1.label(),
        batch: model.1.batch,
        simulated,
        rows,
        missing,
        total_ns,
        total_spread,
        uncertain_share,
    }
}

/// Not `Iterator::sum`, which makes a negative zero of nothing.
fn sum(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.fold(0.0, |sum, number| sum + number)
}

/// How well the rows' shares are known: errors of different operators are taken to be independent, those of the places of
/// one operator are the same.
fn share_out(rows: &mut [Row], total_ns: f64, half_widths: &[f64]) {
    let squares = sum(half_widths.iter().map(|width| width.powi(2)));
    for (row, width) in rows.iter_mut().zip(half_widths) {
        let (own, others) = (width.powi(2), squares - width.powi(2));
        let (time, rest) = (row.time_ns(), total_ns - row.time_ns());
        let variance = rest.powi(2) * own + time.powi(2) * others.max(0.0);
        row.share_spread = Some(variance.sqrt() / total_ns.powi(2));
    }
}

impl Row {
    /// What the model spends on it, in nanoseconds.
    fn time_ns(&self) -> f64 {
        self.median_ns * self.count as f64
    }

    fn is_known_well(&self) -> bool {
        self.spread.is_some_and(|spread| spread <= KNOWN_WELL)
    }

    fn half_width_ns(&self) -> Option<f64> {
        Some(self.spread? * self.time_ns())
    }
}

fn best_row(
    (task, count, task_hash): (String, usize, String),
    attempts: &[&Record],
    work: Option<Work>,
    default_knobs: Option<Knobs>,
    peaks: &Peaks,
) -> Option<Row> {
    let found = fastest(attempts.iter().copied())?;
    let best = found.record;
    let median_ns = best.median_ns?;
    let timed = || attempts.iter().filter(|record| record.outcome == Outcome::Ok && record.median_ns.is_some());
    let experiments =
        |records: &mut dyn Iterator<Item = &&Record>| records.map(|one| one.key).collect::<HashSet<Key>>().len();
    let default_hash = default_knobs.clone().map(|knobs| Schedule::Template { knobs }.hash());
    let default = timed().find(|record| {
        record.schedule_hash.is_some()
            && record.schedule_hash == default_hash
            && record.threads == best.threads
            && record.cache_state == best.cache_state
    });
    let schedule = best.schedule.as_ref().and_then(|json| Schedule::from_json(json.text()).ok());
    let (flops, bytes) = match work {
        Some(work) => (work.flops as f64, work.bytes() as f64),
        None => {
            let bytes = [best.bytes_in, best.bytes_out, best.bytes_weights].into_iter().flatten();
            (best.flops.unwrap_or(0) as f64, bytes.sum::<i64>() as f64)
        }
    };
    let threads = best.threads.unwrap_or(1);
    // Peaks are those of 32-bit floats: of others nothing is measured.
    let is_float = best.macs.unwrap_or(0) == 0 || best.dtype.as_deref() == Some("f32");
    let caches = best.cache_state.unwrap_or(CacheState::Warm);
    let attainable = || peaks.attainable_ns(u32::try_from(threads).unwrap_or(1), flops, bytes, caches);
    let attainable = is_float.then(attainable).flatten();
    Some(Row {
        task,
        task_hash,
        count,
        schedule: schedule.as_ref().map(Schedule::describe).unwrap_or_default(),
        difference: match schedule.zip(default_knobs) {
            Some((schedule, default)) => schedule.difference(&default),
            None => best.target.to_string(),
        },
        threads,
        median_ns,
        spread: found.over_visits.uncertainty(),
        visits_ns: found.over_visits.visits_ns,
        gflops: flops / median_ns,
        roofline: attainable.map(|attainable| attainable / median_ns),
        saves_products: best.saves_products(),
        share: 0.0,
        share_spread: None,
        default_over_best: default.and_then(|default| time_over(attempts.iter().copied(), (default.key, best.key))),
        attempts: found.attempts,
        measured: (experiments(&mut timed()), experiments(&mut attempts.iter())),
    })
}

/// Below this part of the attainable speed there is something to gain.
const SLOW: f64 = 0.25;

/// Why some operators seem faster than the host can be: its peaks are at least what any operator that is known well reached
/// twice.
fn above_roofline(summary: &Summary) -> String {
    let above = summary.rows.iter().filter(|row| row.roofline.is_some_and(|part| part > 1.0));
    let (saving, above): (Vec<&Row>, Vec<&Row>) = above.partition(|row| row.saves_products);
    let uncertain = above.iter().filter(|row| !row.is_known_well()).count();
    let once = above.iter().filter(|row| row.is_known_well() && row.attempts < 2).count();
    let mut text = String::new();
    if !saving.is_empty() {
        text.push_str(&format!("\nroofline above 100 % in {}: not all counted products are computed", saving.len()));
    }
    if uncertain > 0 {
        text.push_str(&format!("\nroofline above 100 % in {uncertain}: medians known badly raise no peak"));
    }
    if once > 0 {
        text.push_str(&format!("\nroofline above 100 % in {once}: what was measured once raises no peak"));
    }
    if above.len() > uncertain + once {
        let others = above.len() - uncertain - once;
        text.push_str(&format!("\nroofline above 100 % in {others}: not all counted bytes must move"));
    }
    text
}

/// The summary as a table.
pub fn render(summary: &Summary, paper: &Paper) -> String {
    let mut table = Table::new([
        words("operator").least(24),
        figures("×").drops(2),
        figures("threads").drops(3),
        figures(if summary.simulated.is_some() { "simulated" } else { "median" }),
        figures("±"),
        figures("GFLOP/s").drops(5),
        figures("roofline").drops(1),
        figures("share"),
        figures("± share").drops(7),
        figures("default").drops(4),
        words("best schedule, where it differs").least(20).drops(6),
    ]);
    for row in &summary.rows {
        table.row(cells(row));
    }
    let calls: usize = summary.rows.iter().map(|row| row.count).sum();
    let mut text = format!(
        "{}{}{}\n{}\ntotal of {calls} operators, each at its best: {}{} ± {}",
        summary.model,
        summary.batch.map_or_else(String::new, |batch| format!(" (batch {batch})")),
        summary.simulated.as_ref().map_or_else(String::new, |what| format!(", {what}")),
        table.on(paper),
        if summary.simulated.is_some() { "simulated " } else { "" },
        duration(summary.total_ns),
        or_unknown(summary.total_spread, percent),
    );
    if summary.uncertain_share > 0.0 {
        let (share, known) = (percent(summary.uncertain_share), 100.0 * KNOWN_WELL);
        text.push_str(&format!("\n{share} of it are medians known to no better than {known} %"));
    }
    if summary.simulated.is_none() {
        text.push_str(match summary.rows.iter().any(|row| row.attempts > 1) {
            true => "\nbest: fastest over all visits; of what was visited once, the interval of the median ends lowest",
            false => "\nbest: the interval of the median ends lowest",
        });
    }
    text.push_str(&above_roofline(summary));
    for task in &summary.missing {
        text.push_str(&format!("\nno time for {task}"));
    }
    text
}

fn cells(row: &Row) -> [Cell; 11] {
    let spread = Cell::from(or_unknown(row.spread, percent));
    let roofline = Cell::from(or_unknown(row.roofline, |part| format!("{:.0} %", part * 100.0)));
    [
        row.task.as_str().into(),
        row.count.to_string().into(),
        row.threads.to_string().into(),
        duration(row.median_ns).into(),
        if row.is_known_well() { spread } else { spread.uncertain() },
        number(row.gflops).into(),
        if row.roofline.is_some_and(|part| part < SLOW) { roofline.bad() } else { roofline },
        percent(row.share).into(),
        or_unknown(row.share_spread, percent).into(),
        or_unknown(row.default_over_best, |ratio| format!("{ratio:.2}×")).into(),
        row.difference.as_str().into(),
    ]
}

#[cfg(test)]
mod tests;
