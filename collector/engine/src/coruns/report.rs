//! The report of co-runs: the slowdown of each member of each combination, and a table of operators.

use crate::campaign::collect::Outcomes;
use crate::campaign::corun::plan::{LeftOut, SYNTHETIC};
use crate::losses::{Loss, describe_losses};
use datasets::{Outcome, Record};
use report::{Paper, Table, format_duration, number_column, or_unknown, text_column};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Results of all planned co-runs.
#[derive(Debug, Serialize)]
pub struct CoRunReport {
    /// Folder of the store.
    pub store: String,
    /// Number of operators that take part in co-runs.
    pub operators: usize,
    /// Number of planned combinations.
    pub combinations: usize,
    /// Combinations and operators that are not measured.
    pub left_out: LeftOut,
    /// Number of combinations that the store already had.
    pub known_before: usize,
    /// Outcomes of the combinations that the store lacked.
    pub outcomes: Outcomes,
    /// Attempts without a time.
    pub losses: Vec<Loss>,
    /// Operators and synthetic partners of the combinations that have a time.
    pub members: Vec<CoRunMember>,
    /// Number of retries that later runs of `opcollect corun` make for combinations that crashed or timed out.
    #[serde(skip)]
    pub retry_faults: i64,
}

/// A member of a combination.
#[derive(Clone, Debug, Serialize)]
pub struct CoRunMember {
    /// The operator or synthetic partner as text.
    pub operator: String,
    /// The other members of the combination, which run concurrently with this one.
    pub beside: Vec<String>,
    /// Assignment of cores to the members.
    pub parallel: Option<String>,
    /// Median time in the co-run, in nanoseconds.
    pub median_ns: f64,
    /// Median time without the other members, on the same cores, in nanoseconds.
    pub alone_ns: f64,
    /// Time in the co-run divided by the time alone.
    pub slowdown: f64,
    /// Lower end of the slowdown's confidence interval.
    pub slowdown_low: Option<f64>,
    /// Upper end of the slowdown's confidence interval.
    pub slowdown_high: Option<f64>,
}

impl CoRunMember {
    fn is_synthetic(&self) -> bool {
        is_synthetic(&self.operator)
    }
}

pub(super) fn collect_members(records: &[Record]) -> Vec<CoRunMember> {
    let names: BTreeMap<&str, &str> =
        records.iter().map(|record| (record.task_hash.as_str(), record.op_text.as_str())).collect();
    let member = |record: &Record| {
        let counted: BTreeMap<String, Value> = record.counters.as_ref()?.parse_as().ok()?;
        let number = |name: &str| counted.get(name).and_then(Value::as_f64);
        let hashes: Vec<String> = record.co_run.as_ref()?.parse_as().ok()?;
        Some(CoRunMember {
            operator: record.op_text.clone(),
            beside: hashes
                .iter()
                .map(|hash| names.get(hash.as_str()).map_or(hash.clone(), |name| (*name).to_owned()))
                .collect(),
            parallel: record.parallel_type.clone(),
            median_ns: record.median_ns?,
            alone_ns: number("alone_ns")?,
            slowdown: number("slowdown")?,
            slowdown_low: number("slowdown_low"),
            slowdown_high: number("slowdown_high"),
        })
    };
    records.iter().filter(|record| record.outcome == Outcome::Ok).filter_map(member).collect()
}

fn is_synthetic(name: &str) -> bool {
    name.strip_prefix(SYNTHETIC).is_some_and(|rest| rest.starts_with(' '))
}

impl CoRunReport {
    /// Returns a table with the slowdown of each operator, and the slowdown that it causes.
    pub fn format_table(&self, paper: &Paper) -> String {
        let members = &self.members;
        let mut partners: Vec<&str> =
            members.iter().filter(|one| one.is_synthetic()).map(|one| one.operator.as_str()).collect();
        partners.sort_unstable();
        partners.dedup();
        let mut columns = vec![text_column("operator"), number_column("alone")];
        let short = |name: &str| name.strip_prefix(SYNTHETIC).unwrap_or(name).trim_start().to_owned();
        columns.extend(partners.iter().map(|name| number_column(format!("with {}", short(name)))));
        columns.extend(partners.iter().map(|name| number_column(format!("slows {}", short(name)))));
        columns.extend([number_column("with operators"), number_column("at worst")]);
        let mut table = Table::new(columns);
        let mut shown: Vec<&str> = Vec::new();
        for member in members.iter().filter(|member| !member.is_synthetic()) {
            if !shown.contains(&member.operator.as_str()) {
                shown.push(&member.operator);
                table.add_row(self.table_row(&member.operator, &partners));
            }
        }
        table.format_for(paper)
    }

    fn table_row(&self, operator: &str, partners: &[&str]) -> Vec<String> {
        let own = self.members.iter().filter(|member| member.operator == operator);
        let slowdowns = |is_wanted: &dyn Fn(&CoRunMember) -> bool| {
            let mut found: Vec<f64> = own.clone().filter(|one| is_wanted(one)).map(|one| one.slowdown).collect();
            found.sort_by(f64::total_cmp);
            found
        };
        let median = |sorted: &[f64]| (!sorted.is_empty()).then(|| measure::statistics::median_of_sorted(sorted));
        let times = |value: Option<f64>| or_unknown(value, |value| format!("{value:.2}×"));
        let mut alone: Vec<f64> = own.clone().map(|one| one.alone_ns).collect();
        alone.sort_by(f64::total_cmp);
        let mut row = vec![operator.to_owned(), or_unknown(median(&alone), format_duration)];
        row.extend(partners.iter().map(|partner| times(median(&slowdowns(&|one| one.beside == [*partner])))));
        row.extend(partners.iter().map(|partner| {
            let is_slowed = |one: &&CoRunMember| one.operator == *partner && one.beside == [operator];
            times(self.members.iter().find(is_slowed).map(|one| one.slowdown))
        }));
        let others = slowdowns(&|one| one.beside.iter().all(|name| !is_synthetic(name)));
        row.extend([times(median(&others)), times(others.last().copied())]);
        row
    }

    /// Returns the attempts without a time, grouped by reason, as text.
    pub fn describe_losses(&self) -> String {
        describe_losses(&self.losses, self.retry_faults)
    }

    /// Returns the numbers of combinations and records in one line.
    pub fn summary_line(&self) -> String {
        let CoRunReport { store, combinations, known_before, outcomes, .. } = self;
        let made = outcomes.describe_counts();
        let known =
            if *known_before > 0 { format!(", {known_before} combinations from the store") } else { String::new() };
        let left = if outcomes.left > 0 { format!(", {} records left", outcomes.left) } else { String::new() };
        let left_out = match self.left_out.combinations + self.left_out.too_large {
            0 => String::new(),
            count => format!(" ({count} more are left out)"),
        };
        format!("{combinations} combinations{left_out}; records: {made}{known}{left} · in `{store}`")
    }
}
