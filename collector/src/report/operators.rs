//! The table at the end of a campaign: each task of a model with its best schedule.

use crate::campaign::{ModelRequest, PlannedModule, PlannedTask};
use crate::space::{Knobs, Schedule, space};
use crate::target::Machine;
use datasets::{Outcome, Record};
use report::{Cell, Paper, Table, duration, figures, number, or_unknown, percent, words};
use serde::Serialize;
use std::collections::HashMap;

/// What the machine can do at best, as measured in this run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Peaks {
    /// Operations per second, by threads.
    pub compute: Vec<ComputePeak>,
    /// Bytes per second, by threads and by how much is read again and again.
    pub memory: Vec<MemoryPeak>,
}

/// The best rate of multiply-adds seen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ComputePeak {
    /// Threads at work.
    pub threads: usize,
    /// Operations per second.
    pub flops_per_second: f64,
}

/// The best rate of streaming seen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MemoryPeak {
    /// Threads at work.
    pub threads: usize,
    /// Bytes that were streamed again and again: which cache level that is, is the machine's business.
    pub working_set_bytes: u64,
    /// Bytes per second.
    pub bytes_per_second: f64,
}

impl Peaks {
    /// The least time of some work on this many threads, in nanoseconds; nothing when a peak is not known.
    ///
    /// Operands are taken to come from the smallest measured working set that holds them, as they do when an
    /// operator is run again and again.
    pub fn attainable_ns(&self, threads: usize, flops: f64, bytes: f64) -> Option<f64> {
        let compute = self.compute.iter().find(|peak| peak.threads == threads)?;
        let mut memory: Vec<&MemoryPeak> = self.memory.iter().filter(|peak| peak.threads == threads).collect();
        memory.sort_by_key(|peak| peak.working_set_bytes);
        let memory = memory.iter().find(|peak| peak.working_set_bytes as f64 >= bytes).or(memory.last())?;
        Some((flops / compute.flops_per_second).max(bytes / memory.bytes_per_second) * 1e9)
    }
}

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
    /// Half the width of the median's interval over the median.
    pub spread: f64,
    /// Operations per nanosecond.
    pub gflops: f64,
    /// Attainable time over median, if the peaks are known.
    pub roofline: Option<f64>,
    /// Part of the model's time.
    pub share: f64,
    /// Median of the default schedule over the best, at the same threads.
    pub default_over_best: Option<f64>,
    /// Attempts that gave a time, and all.
    pub measured: (usize, usize),
}

/// One model's rows and sums.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The model.
    pub model: String,
    /// Its batch size.
    pub batch: i64,
    /// Its tasks, in graph order.
    pub rows: Vec<Row>,
    /// Tasks without any time.
    pub missing: Vec<String>,
    /// Sum of median × count over the rows, in nanoseconds.
    pub total_ns: f64,
}

/// Sums up the records of one model of the campaign.
///
/// `model` comes with its index in the campaign; `records` may hold those of other models too.
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
        match best_row(planned.task.describe(), *count, hash.clone(), attempts, Some(default), peaks) {
            Some(row) => rows.push(row),
            None => missing.push(planned.task.describe()),
        }
    }
    for module in modules.iter().filter(|module| module.index == model.0) {
        let hash = module.identity();
        let attempts = by_task.get(hash.as_str()).map(Vec::as_slice).unwrap_or_default();
        match best_row(module.describe(), 1, hash.clone(), attempts, None, peaks) {
            Some(row) => rows.push(row),
            None => missing.push(module.describe()),
        }
    }
    // Not `sum`, which makes a negative zero of nothing.
    let total_ns = rows.iter().map(|row| row.median_ns * row.count as f64).fold(0.0, |sum, time| sum + time);
    for row in &mut rows {
        row.share = row.median_ns * row.count as f64 / total_ns;
    }
    Summary { model: model.1.label(), batch: model.1.batch, rows, missing, total_ns }
}

fn best_row(
    task: String,
    count: usize,
    task_hash: String,
    attempts: &[&Record],
    default_knobs: Option<Knobs>,
    peaks: &Peaks,
) -> Option<Row> {
    let measured: Vec<(&Record, f64)> = attempts
        .iter()
        .filter(|record| record.outcome == Outcome::Ok)
        .filter_map(|record| Some((*record, record.median_ns?)))
        .collect();
    let (best, median_ns) = measured.iter().copied().min_by(|left, right| left.1.total_cmp(&right.1))?;
    let default_hash = default_knobs.clone().map(|knobs| Schedule::Template { knobs }.hash());
    let default = measured.iter().find(|(record, _)| {
        record.schedule_hash.is_some()
            && record.schedule_hash == default_hash
            && record.threads == best.threads
            && record.cache_state == best.cache_state
    });
    let schedule = best.schedule.as_ref().and_then(|json| Schedule::from_json(json.text()).ok());
    let flops = best.flops.unwrap_or(0) as f64;
    let bytes = [best.bytes_in, best.bytes_out, best.bytes_weights].iter().map(|b| b.unwrap_or(0)).sum::<i64>() as f64;
    let threads = best.threads.unwrap_or(1);
    let attainable = peaks.attainable_ns(usize::try_from(threads).unwrap_or(1), flops, bytes);
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
        spread: best.median_interval_ns.unwrap_or(0.0) / median_ns,
        gflops: flops / median_ns,
        roofline: attainable.map(|attainable| attainable / median_ns),
        share: 0.0,
        default_over_best: default.map(|(_, default)| default / median_ns),
        measured: (measured.len(), attempts.len()),
    })
}

/// A median whose interval is wider than this part of it is marked as uncertain.
const WIDE: f64 = 0.02;
/// Below this part of the attainable speed there is something to gain.
const SLOW: f64 = 0.25;

/// The summary as a table.
pub fn render(summary: &Summary, paper: &Paper) -> String {
    let mut table = Table::new([
        words("operator").least(24),
        figures("×").drops(2),
        figures("threads").drops(3),
        figures("median"),
        figures("±"),
        figures("GFLOP/s").drops(5),
        figures("roofline").drops(1),
        figures("share"),
        figures("default").drops(4),
        words("best schedule, where it differs").least(20).drops(6),
    ]);
    for row in &summary.rows {
        table.row(cells(row));
    }
    let calls: usize = summary.rows.iter().map(|row| row.count).sum();
    let mut text = format!(
        "{} (batch {})\n{}\ntotal of {calls} operators, each at its best: {}",
        summary.model,
        summary.batch,
        table.on(paper),
        duration(summary.total_ns)
    );
    if summary.rows.iter().any(|row| row.roofline.is_some_and(|part| part > 1.0)) {
        text.push_str("\nroofline above 100 %: operands came from a nearer cache than the peak was measured in");
    }
    for task in &summary.missing {
        text.push_str(&format!("\nno time for {task}"));
    }
    text
}

fn cells(row: &Row) -> [Cell; 10] {
    let spread = Cell::from(percent(row.spread));
    let roofline = Cell::from(or_unknown(row.roofline, |part| format!("{:.0} %", part * 100.0)));
    [
        row.task.as_str().into(),
        row.count.to_string().into(),
        row.threads.to_string().into(),
        duration(row.median_ns).into(),
        if row.spread <= WIDE { spread } else { spread.uncertain() },
        number(row.gflops).into(),
        if row.roofline.is_some_and(|part| part < SLOW) { roofline.bad() } else { roofline },
        percent(row.share).into(),
        or_unknown(row.default_over_best, |ratio| format!("{ratio:.2}×")).into(),
        row.difference.as_str().into(),
    ]
}

#[cfg(test)]
mod tests;
