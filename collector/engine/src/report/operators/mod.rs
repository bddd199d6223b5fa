//! The table at the end of a campaign: each task of a model with its best schedule. [`datasets::fastest`] determines
//! the best schedule. Unknown values are shown as `–`, never as zero.

use crate::campaign::{ModelRequest, PlannedModule, PlannedTask};
use datasets::fastest::time_over;
use datasets::{CacheState, KNOWN_WELL, Key, Outcome, Peaks, Record, find_fastest};
use job::space::{Knobs, Schedule, task_space};
use models::Work;
use report::{
    Cell, Paper, Table, format_count, format_duration, format_number, format_percent, number_column, or_unknown,
    text_column,
};
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use targets::Machine;

/// Row of one task of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperatorRow {
    /// Description of the task.
    pub task: String,
    /// Hash of the task.
    pub task_hash: String,
    /// Number of calls in the model.
    pub count: usize,
    /// Text of the schedule with the best time.
    pub schedule: String,
    /// Differences of this schedule from the default schedule.
    pub difference: String,
    /// Number of threads.
    pub threads: i64,
    /// Median time of the best schedule, in nanoseconds.
    pub median_ns: f64,
    /// Half-width of the median's confidence interval over visits, relative to the median; None without an interval.
    pub spread: Option<f64>,
    /// Median of each visit (repeated measurement in a fresh process), in chronological order.
    pub visits_ns: Vec<f64>,
    /// Operation rate of the best schedule, in billions of operations per second.
    pub gflops: f64,
    /// Ratio of the attainable time (roofline model) to the median; None if the peaks are unknown.
    pub roofline: Option<f64>,
    /// Whether the best schedule executes fewer multiplications than are counted, for example by Winograd's algorithm.
    pub saves_products: bool,
    /// Share of the model's total time.
    pub share: f64,
    /// Half-width of the share's interval; None if any operator of the model lacks an interval.
    pub share_spread: Option<f64>,
    /// Default time divided by best time on the same threads; within rounds if both were measured interleaved.
    pub default_over_best: Option<f64>,
    /// Number of measurements of the best schedule.
    pub attempts: usize,
    /// Number of experiments with a time, and number of all experiments.
    pub measured: (usize, usize),
}

/// Rows and totals of one model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Name of the model.
    pub model: String,
    /// Batch size, if the model has one.
    pub batch: Option<i64>,
    /// Name of the simulated machine and its simulator; None for measured times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulated: Option<String>,
    /// Rows of the tasks, in graph order.
    pub rows: Vec<OperatorRow>,
    /// Descriptions of the tasks without any time.
    pub missing: Vec<String>,
    /// Total time: the sum of median × count over the rows, in nanoseconds.
    pub total_ns: f64,
    /// Half-width of the total's interval, relative to the total; None if an operator has no interval.
    pub total_spread: Option<f64>,
    /// Total of the fastest schedules under each cache state; empty unless several states were measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub totals_by_caches: Vec<CachesTotal>,
    /// Share of the total due to medians whose uncertainty exceeds [`KNOWN_WELL`] or is unknown.
    pub uncertain_share: f64,
}

/// Total time of a model's operators under one cache state.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CachesTotal {
    /// Name of the cache state.
    pub cache_state: &'static str,
    /// Sum of median × count of the fastest schedules, in nanoseconds.
    pub total_ns: f64,
}

/// Summarises one model. `model` contains its index in the campaign; `records` may include other models.
pub fn summarise_model(
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
    let mut timed = Vec::new();
    for planned in tasks {
        let Some((_, count)) = planned.counts.iter().find(|(index, _)| *index == model.0) else { continue };
        let hash = planned.task.hash();
        let attempts = by_task.get(hash.as_str()).map(Vec::as_slice).unwrap_or_default();
        let default = task_space(&planned.task, machine).default;
        // Records contain the work as counted by the program version that measured. It is counted again
        // here, so that versions can be compared.
        let work = planned.task.work().ok();
        let task = (planned.task.describe(), *count, hash.clone());
        match best_row(task, attempts, work, Some(default), peaks) {
            Some(row) => {
                rows.push(row);
                timed.push((*count, attempts));
            }
            None => missing.push(planned.task.describe()),
        }
    }
    for module in modules.iter().filter(|module| module.index == model.0) {
        let hash = module.content_hash();
        let attempts = by_task.get(hash.as_str()).map(Vec::as_slice).unwrap_or_default();
        match best_row((module.describe(), 1, hash.clone()), attempts, None, None, peaks) {
            Some(row) => rows.push(row),
            None => missing.push(module.describe()),
        }
    }
    let total_ns = sum_numbers(rows.iter().map(OperatorRow::time_ns));
    let half_widths: Option<Vec<f64>> = rows.iter().map(OperatorRow::half_width_ns).collect();
    let total_spread = half_widths.filter(|widths| !widths.is_empty()).map(|widths| {
        set_share_spreads(&mut rows, total_ns, &widths);
        // A disturbance of the machine affects all operators in the same direction, so their
        // intervals are added.
        sum_numbers(widths.iter().copied()) / total_ns
    });
    rows.iter_mut().for_each(|row| row.share = row.time_ns() / total_ns);
    let uncertain = rows.iter().filter(|row| !row.is_known_well());
    let uncertain_share = sum_numbers(uncertain.map(|row| row.share));
    let simulated = None;
    Summary {
        model: model.1.label(),
        batch: model.1.batch,
        simulated,
        rows,
        missing,
        total_ns,
        total_spread,
        totals_by_caches: totals_by_caches(&timed),
        uncertain_share,
    }
}

/// Returns the total of operators, given with their counts, under each cache state in which all of them have a time.
fn totals_by_caches(operators: &[(usize, &[&Record])]) -> Vec<CachesTotal> {
    let total = |state: CacheState| {
        let time = |(count, attempts): &(usize, &[&Record])| {
            let own = attempts.iter().copied().filter(|record| record.cache_state == Some(state));
            Some(find_fastest(own)?.record.median_ns? * *count as f64)
        };
        let times: Vec<f64> = operators.iter().map(time).collect::<Option<Vec<f64>>>()?;
        (!times.is_empty()).then(|| CachesTotal { cache_state: state.name(), total_ns: sum_numbers(times.into_iter()) })
    };
    let totals: Vec<CachesTotal> = CacheState::ALL.iter().copied().filter_map(total).collect();
    if totals.len() > 1 { totals } else { Vec::new() }
}

/// Sums numbers from 0.0, because `Iterator::sum` returns negative zero for an empty sequence.
fn sum_numbers(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.fold(0.0, |sum, number| sum + number)
}

/// Sets `share_spread`. Assumes independent errors between operators, and equal errors for all calls of one operator.
fn set_share_spreads(rows: &mut [OperatorRow], total_ns: f64, half_widths: &[f64]) {
    let squares = sum_numbers(half_widths.iter().map(|width| width.powi(2)));
    for (row, width) in rows.iter_mut().zip(half_widths) {
        let (own, others) = (width.powi(2), squares - width.powi(2));
        let (time, rest) = (row.time_ns(), total_ns - row.time_ns());
        let variance = rest.powi(2) * own + time.powi(2) * others.max(0.0);
        row.share_spread = Some(variance.sqrt() / total_ns.powi(2));
    }
}

impl OperatorRow {
    /// Returns the time of all calls of this operator in one run of the model, in nanoseconds.
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
) -> Option<OperatorRow> {
    let found = find_fastest(attempts.iter().copied())?;
    let best = found.record;
    let median_ns = best.median_ns?;
    let timed = || attempts.iter().filter(|record| record.outcome == Outcome::Ok && record.median_ns.is_some());
    let experiments =
        |records: &mut dyn Iterator<Item = &&Record>| records.map(|one| one.key).collect::<HashSet<Key>>().len();
    let default_hash = default_knobs.clone().map(|knobs| Schedule::Template { knobs }.stable_hash());
    let default = timed().find(|record| {
        record.schedule_hash.is_some()
            && record.schedule_hash == default_hash
            && record.threads == best.threads
            && record.cache_state == best.cache_state
    });
    let schedule = best.schedule.as_ref().and_then(|json| Schedule::from_json(json.as_text()).ok());
    let (flops, bytes) = match work {
        Some(work) => (work.flops as f64, work.total_bytes() as f64),
        None => {
            let bytes = [best.bytes_in, best.bytes_out, best.bytes_weights].into_iter().flatten();
            (best.flops.unwrap_or(0) as f64, bytes.sum::<i64>() as f64)
        }
    };
    let threads = best.threads.unwrap_or(1);
    // Peaks are measured for 32-bit floats only.
    let is_float = best.macs.unwrap_or(0) == 0 || best.dtype.as_deref() == Some("f32");
    let caches = best.cache_state.unwrap_or(CacheState::Warm);
    let attainable = || peaks.attainable_ns(u32::try_from(threads).unwrap_or(1), flops, bytes, caches);
    let attainable = is_float.then(attainable).flatten();
    Some(OperatorRow {
        task,
        task_hash,
        count,
        schedule: schedule.as_ref().map(Schedule::describe_knobs).unwrap_or_default(),
        difference: match schedule.zip(default_knobs) {
            Some((schedule, default)) => schedule.describe_difference(&default),
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

/// Ratio of the default to the best time below which the report notes that the default has the lower median.
const LOWER_DEFAULT_RATIO: f64 = 0.995;
/// Share of the attainable rate below which the rate of an operator is marked as poor.
const POOR_ROOFLINE_SHARE: f64 = 0.25;

/// Returns notes on rates above the roofline, for example because uncertain medians do not raise its peak rates.
fn roofline_excess_note(summary: &Summary) -> String {
    let above = summary.rows.iter().filter(|row| row.roofline.is_some_and(|part| part > 1.0));
    let (saving, above): (Vec<&OperatorRow>, Vec<&OperatorRow>) = above.partition(|row| row.saves_products);
    let uncertain = above.iter().filter(|row| !row.is_known_well()).count();
    let once = above.iter().filter(|row| row.is_known_well() && row.attempts < 2).count();
    let mut text = String::new();
    if !saving.is_empty() {
        text.push_str(&format!("\nroofline above 100 % in {}: not all counted products are computed", saving.len()));
    }
    if uncertain > 0 {
        text.push_str(&format!("\nroofline above 100 % in {uncertain}: uncertain medians do not raise the peak"));
    }
    if once > 0 {
        text.push_str(&format!("\nroofline above 100 % in {once}: single measurements do not raise the peak"));
    }
    if above.len() > uncertain + once {
        let others = above.len() - uncertain - once;
        text.push_str(&format!("\nroofline above 100 % in {others}: some counted bytes stay in caches"));
    }
    text
}

fn default_win_note(summary: &Summary) -> String {
    let is_beaten = |row: &&OperatorRow| row.default_over_best.is_some_and(|ratio| ratio < LOWER_DEFAULT_RATIO);
    match summary.rows.iter().filter(is_beaten).count() {
        0 => String::new(),
        count => {
            format!("\ndefault below 1× in {count}: its median is lower, but too uncertain to be the best")
        }
    }
}

/// Formats the summary of a model as a table.
pub fn render_summary(summary: &Summary, paper: &Paper) -> String {
    let batch = summary.batch.map_or_else(String::new, |batch| format!(" (batch {batch})"));
    if summary.rows.is_empty() && summary.missing.is_empty() {
        return format!("{}{batch}: no operators; each output is an input or a constant", summary.model);
    }
    let mut table = Table::new([
        text_column("operator").min_width(24),
        number_column("×").drop_order(2),
        number_column("threads").drop_order(3),
        number_column(if summary.simulated.is_some() { "simulated" } else { "median" }),
        number_column("±"),
        number_column("GFLOP/s").drop_order(5),
        number_column("roofline").drop_order(1),
        number_column("share"),
        number_column("± share").drop_order(7),
        number_column("default").drop_order(4),
        text_column("best schedule, where it differs").min_width(20).drop_order(6),
    ]);
    for row in &summary.rows {
        table.add_row(row_cells(row));
    }
    let calls: usize = summary.rows.iter().map(|row| row.count).sum();
    let best = if calls == 1 { "its best schedule" } else { "their best schedules" };
    let mut text = format!(
        "{}{batch}{}\n{}\ntotal of {} with {best}: {}{} ± {}",
        summary.model,
        summary.simulated.as_ref().map_or_else(String::new, |what| format!(", {what}")),
        table.format_for(paper),
        format_count(calls, "operator"),
        if summary.simulated.is_some() { "simulated " } else { "" },
        format_duration(summary.total_ns),
        or_unknown(summary.total_spread, format_percent),
    );
    if !summary.totals_by_caches.is_empty() {
        let of_state = |one: &CachesTotal| format!("{} {}", one.cache_state, format_duration(one.total_ns));
        let totals: Vec<String> = summary.totals_by_caches.iter().map(of_state).collect();
        text.push_str(&format!("\ntotals by state of the caches: {}", totals.join(", ")));
    }
    if summary.uncertain_share > 0.0 {
        let (share, known) = (format_percent(summary.uncertain_share), 100.0 * KNOWN_WELL);
        text.push_str(&format!("\n{share} of the total are medians that are not known to {known} %"));
    }
    if summary.simulated.is_none() {
        text.push_str(match summary.rows.iter().any(|row| row.attempts > 1) {
            true => "\nbest: fastest over all visits; after a single visit, lowest upper end of the median's interval",
            false => "\nbest: lowest upper end of the median's interval",
        });
    }
    text.push_str(&default_win_note(summary));
    text.push_str(&roofline_excess_note(summary));
    for task in &summary.missing {
        text.push_str(&format!("\nno time for {task}"));
    }
    text
}

fn row_cells(row: &OperatorRow) -> [Cell; 11] {
    let spread = Cell::from(or_unknown(row.spread, format_percent));
    let default = Cell::from(or_unknown(row.default_over_best, |ratio| format!("{ratio:.2}×")));
    let roofline = Cell::from(or_unknown(row.roofline, |part| format!("{:.0} %", part * 100.0)));
    [
        row.task.as_str().into(),
        row.count.to_string().into(),
        row.threads.to_string().into(),
        format_duration(row.median_ns).into(),
        if row.is_known_well() { spread } else { spread.mark_uncertain() },
        format_number(row.gflops).into(),
        if row.roofline.is_some_and(|part| part < POOR_ROOFLINE_SHARE) { roofline.mark_bad() } else { roofline },
        format_percent(row.share).into(),
        or_unknown(row.share_spread, format_percent).into(),
        if row.default_over_best.is_some_and(|ratio| ratio < LOWER_DEFAULT_RATIO) {
            default.mark_uncertain()
        } else {
            default
        },
        row.difference.as_str().into(),
    ]
}

#[cfg(test)]
mod tests;
