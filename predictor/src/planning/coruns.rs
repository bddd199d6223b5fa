//! Reads co-runs, fits the interference model to their slowdowns, and evaluates it on held-out operators.

use super::demand::{Time, TimeSource, cache_bytes, task_demand};
use super::versions::{select_class, select_versions};
use crate::error::{Error, Result};
use datasets::store::Records;
use datasets::{Json, Outcome, Record, Source};
use learn::split;
use models::Task;
use planners::interference::{
    Baseline, CoRunMeasurement, Demand, Learned, Machine, Profile, rule_slowdowns, steady_slowdowns,
};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

const SYNTHETIC: &str = "synthetic";
/// Minimum number of measured co-runs. With fewer, the model uses only bandwidth and cache.
const LEAST_PAIRS: usize = 20;
/// Maximum relative half-width of a slowdown's interval; slowdowns with wider intervals are left out as disturbed.
pub(super) const KNOWN: f64 = 0.05;
/// Predicted slowdowns up to this one are negligible: they round to 1.000.
const MAX_NEGLIGIBLE_SLOWDOWN: f64 = 1.0005;
/// Number of folds of the cross-validation; all co-runs of an operator are in one fold.
const FOLDS: usize = 5;

#[derive(Clone, Debug, Serialize)]
pub struct Operator {
    pub task_hash: String,
    pub text: String,
    pub alone_ns: f64,
    #[serde(skip)]
    pub demand: Demand,
}

#[derive(Clone, Debug, Serialize)]
pub struct CoRunSlowdown {
    pub operator: usize,
    pub others: Vec<usize>,
    pub cores: usize,
    /// Ratio of the time with the other operators to the isolated time.
    pub slowdown: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct CoRuns {
    pub operators: Vec<Operator>,
    pub beside: Vec<CoRunSlowdown>,
    /// Texts of the synthetic partner operators, in the order of the losses in each profile.
    pub partners: Vec<String>,
    pub left_out: usize,
}

#[derive(Clone, Debug, Serialize)]
pub struct Score {
    pub rule: &'static str,
    pub mape: f64,
    /// Median absolute error of the slowdown, in percent.
    pub median: f64,
    /// 90th percentile of the absolute error of the slowdown, in percent.
    pub p90: f64,
    /// Number of slowdowns for which the rule predicts clearly more than 1.
    pub above_one: usize,
}

#[derive(Clone, Debug, Serialize)]
pub struct Scores {
    /// Errors by rule; the fitted interference model comes first.
    pub rules: Vec<Score>,
    /// Number of predicted slowdowns.
    pub asked: usize,
    pub operators: usize,
    /// Median relative half-width of the measured slowdowns' intervals, in percent; NaN without intervals.
    pub noise: f64,
    /// Median measured slowdown.
    pub middle: f64,
    /// Whether an operator moves data from memory, because it does not fit the last-level cache.
    #[serde(skip)]
    pub has_memory_traffic: bool,
}

fn median_of(values: &[f64]) -> f64 {
    samples::statistics::median(&mut values.to_vec())
}

struct CoRunRow {
    slowdown: f64,
    alone_ns: f64,
    low: Option<f64>,
    high: Option<f64>,
    others: Vec<String>,
}

fn parse_row(record: &Record) -> Option<CoRunRow> {
    let counted: BTreeMap<String, Value> = record.counters.as_ref()?.parse_as().ok()?;
    let number = |name: &str| counted.get(name).and_then(Value::as_f64).filter(|value| *value > 0.0);
    Some(CoRunRow {
        slowdown: number("slowdown")?,
        alone_ns: number("alone_ns")?,
        low: number("slowdown_low"),
        high: number("slowdown_high"),
        others: record.co_run.as_ref().and_then(|json: &Json| json.parse_as().ok())?,
    })
}

impl Scores {
    /// Returns the rules that predict no slowdown, whose errors are equal, and the others.
    pub fn split_silent_rules(&self) -> (Vec<&Score>, Vec<&Score>) {
        self.rules.iter().partition(|one| one.above_one == 0)
    }

    /// Explains equal errors of rules: none of them predicts a slowdown. None if at most one rule is affected.
    pub fn explain_equal_rules(&self) -> Option<String> {
        let silent: Vec<&str> = self.split_silent_rules().0.iter().map(|one| one.rule).collect();
        (silent.len() > 1).then(|| {
            format!(
                "{} of {} rules ({}) have equal errors, because none of them predicts a slowdown for these operators: \
                 {}",
                silent.len(),
                self.rules.len(),
                silent.join(", "),
                self.silence_cause()
            )
        })
    }

    /// States why rules predict no slowdown.
    pub fn silence_cause(&self) -> &'static str {
        match self.has_memory_traffic {
            true => "these rules consider at most bandwidth and cache capacity, which do not limit these operators",
            false => {
                "these rules consider at most bandwidth and cache capacity, and the data of each operator fits the \
                 last-level cache"
            }
        }
    }

    /// Describes the evaluation and the machine, for terminal and page.
    pub fn describe(&self, machine: &Machine) -> String {
        let noise = match self.noise.is_finite() {
            true => format!("; median half-width of measured intervals {:.2} %", self.noise),
            false => String::new(),
        };
        format!(
            "{} slowdowns of {}, each predicted with its operator held out; median slowdown {:.2}×{noise}. Machine: {}, \
             {:.1} GB/s, {:.0} MB last-level cache",
            self.asked,
            report::format_count(self.operators, "operator"),
            self.middle,
            report::format_count(machine.cores, "core"),
            machine.bytes_per_ns,
            machine.cache_bytes / 1e6
        )
    }
}

impl CoRuns {
    pub fn is_corun(record: &Record) -> bool {
        record.co_run.is_some() && record.outcome == Outcome::Ok && record.source == Source::Measured
    }

    /// Selects the co-runs of the given or the only host class among a store's records; also returns their records and
    /// the number of outdated ones.
    pub fn select_coruns(
        (path, records): (&Path, Records),
        class: Option<&str>,
        all_versions: bool,
    ) -> Result<(CoRuns, Vec<Record>, usize)> {
        let mut by_class: BTreeMap<String, Vec<Record>> = BTreeMap::new();
        for record in records {
            let record = record?;
            if CoRuns::is_corun(&record) {
                by_class.entry(record.host_class.clone()).or_default().push(record);
            }
        }
        let (_, records) = select_class(by_class, class, || {
            let problem = "has no co-run records; measure some with `opcollect corun --config configs/corun.toml`";
            format!("`{}` {problem}", path.display())
        })?;
        let (records, left_out) = select_versions(records, all_versions);
        Ok((CoRuns::from_records(&records), records, left_out))
    }

    pub fn from_records(records: &[Record]) -> CoRuns {
        let rows: Vec<(&Record, CoRunRow)> = records
            .iter()
            .filter(|record| CoRuns::is_corun(record))
            .filter_map(|record| Some((record, parse_row(record)?)))
            .collect();
        let names: HashMap<&str, &str> =
            rows.iter().map(|(record, _)| (record.task_hash.as_str(), record.op_text.as_str())).collect();
        let partners: BTreeSet<&str> = rows
            .iter()
            .filter(|(record, _)| record.op_kind == SYNTHETIC)
            .map(|(record, _)| record.task_hash.as_str())
            .collect();
        let partners: Vec<&str> = partners.into_iter().collect();
        let mut found =
            CoRuns { partners: partners.iter().map(|hash| names[hash].to_owned()).collect(), ..CoRuns::default() };
        let mut places: HashMap<&str, usize> = HashMap::new();
        for (record, _) in rows.iter().filter(|(record, _)| record.op_kind != SYNTHETIC) {
            let Some(task) = record.task.as_ref().and_then(|json| json.parse_as::<Task>().ok()) else { continue };
            if places.contains_key(record.task_hash.as_str()) {
                continue;
            }
            let own = rows.iter().filter(|(other, _)| other.task_hash == record.task_hash);
            let alone: Vec<f64> = own.clone().map(|(_, row)| row.alone_ns).collect();
            let alone_ns = median_of(&alone);
            let time = Time { time_ns: alone_ns, low_ns: alone_ns, high_ns: alone_ns, source: TimeSource::Measured };
            let machine =
                Machine { cores: 1, bytes_per_ns: 1.0, cache_bytes: cache_bytes(records), learned: Learned::default() };
            let pair = |own: &str, other: &str| {
                let loss = |(record, row): &(&Record, CoRunRow)| {
                    (record.task_hash == own && row.others == [other]).then_some(row.slowdown - 1.0)
                };
                let losses: Vec<f64> = rows.iter().filter_map(loss).collect();
                (!losses.is_empty()).then(|| median_of(&losses))
            };
            let hash = record.task_hash.as_str();
            let sensitivity: Option<Vec<f64>> = partners.iter().map(|partner| pair(hash, partner)).collect();
            let pressure: Option<Vec<f64>> = partners.iter().map(|partner| pair(partner, hash)).collect();
            let profile = sensitivity.zip(pressure).filter(|_| !partners.is_empty());
            let profile = profile.map(|(sensitivity, pressure)| Profile { sensitivity, pressure });
            places.insert(hash, found.operators.len());
            found.operators.push(Operator {
                task_hash: hash.to_owned(),
                text: record.op_text.clone(),
                alone_ns,
                demand: Demand { profile, ..task_demand(&task, &[time], &machine, &[1.0]) },
            });
        }
        for (record, row) in &rows {
            let others: Option<Vec<usize>> = row.others.iter().map(|hash| places.get(hash.as_str()).copied()).collect();
            let (Some(&operator), Some(others)) = (places.get(record.task_hash.as_str()), others) else { continue };
            let half = row.low.zip(row.high).map(|(low, high)| (high - low) / 2.0 / row.slowdown);
            // With too few rounds for an interval, the uncertainty of a slowdown is unknown.
            if half.is_none_or(|half| half > KNOWN) {
                found.left_out += 1;
                continue;
            }
            let cores = record.threads.and_then(|threads| usize::try_from(threads).ok()).unwrap_or(1);
            found.beside.push(CoRunSlowdown {
                operator,
                others,
                cores,
                slowdown: row.slowdown,
                low: row.low,
                high: row.high,
            });
        }
        found
    }

    pub fn task_profiles(&self) -> HashMap<String, Profile> {
        let profile = |one: &Operator| Some((one.task_hash.clone(), one.demand.profile.clone()?));
        self.operators.iter().filter_map(profile).collect()
    }

    fn observed_coruns<'a>(&'a self, places: &[usize]) -> Vec<CoRunMeasurement<'a>> {
        let one = |&place: &usize| {
            let CoRunSlowdown { operator, others, cores, slowdown, .. } = &self.beside[place];
            CoRunMeasurement {
                own: (*cores, &self.operators[*operator].demand),
                others: others.iter().map(|&other| (*cores, &self.operators[other].demand)).collect(),
                slowdown: *slowdown,
            }
        };
        places.iter().map(one).collect()
    }

    pub fn learn_weights(&self, machine: &Machine) -> Learned {
        let all: Vec<usize> = (0..self.beside.len()).collect();
        if all.len() < LEAST_PAIRS {
            Learned::default()
        } else {
            Learned::fit_model(machine, &self.observed_coruns(&all))
        }
    }

    /// Evaluates rules by cross-validation on held-out operators. Training excludes all co-runs with these operators.
    pub fn score_rules(&self, machine: &Machine, seed: u64) -> Result<Scores> {
        if self.beside.len() < LEAST_PAIRS || self.operators.len() < FOLDS {
            return Err(Error::Query(format!(
                "{} slowdowns of {} operators are too few for an evaluation; at least {LEAST_PAIRS} slowdowns of {FOLDS} operators are required",
                self.beside.len(),
                self.operators.len()
            )));
        }
        let groups: Vec<u64> = (0..self.operators.len() as u64).collect();
        let mut errors: BTreeMap<usize, (Vec<f64>, usize)> = BTreeMap::new();
        let mut add = |rule: usize, said: f64, measured: f64| {
            let (errors, above_one) = errors.entry(rule).or_default();
            errors.push(100.0 * (said / measured - 1.0).abs());
            *above_one += usize::from(said > MAX_NEGLIGIBLE_SLOWDOWN);
        };
        let mut asked = 0;
        for fold in split::by_group(&groups, FOLDS, seed) {
            let held: BTreeSet<usize> = fold.test.iter().copied().collect();
            let is_held = |one: &CoRunSlowdown| {
                held.contains(&one.operator) || one.others.iter().any(|other| held.contains(other))
            };
            let (test, train): (Vec<usize>, Vec<usize>) =
                (0..self.beside.len()).partition(|&place| is_held(&self.beside[place]));
            let learned =
                Machine { learned: Learned::fit_model(machine, &self.observed_coruns(&train)), ..machine.clone() };
            for (seen, &place) in self.observed_coruns(&test).iter().zip(&test) {
                // A pair from two folds is scored once, in the fold that holds out its first operator.
                if !held.contains(&self.beside[place].operator) {
                    continue;
                }
                let mut running = vec![seen.own];
                running.extend(&seen.others);
                asked += 1;
                add(0, steady_slowdowns(&learned, &running)[0], seen.slowdown);
                add(1, steady_slowdowns(machine, &running)[0], seen.slowdown);
                for (place, rule) in Baseline::ALL.into_iter().enumerate() {
                    add(2 + place, rule_slowdowns(rule, machine, &running)[0], seen.slowdown);
                }
            }
        }
        let name = |rule: usize| match rule {
            0 => "learned from pairs",
            1 => "bandwidth and cache",
            other => Baseline::ALL[other - 2].name(),
        };
        let score = |(rule, (mut errors, above_one)): (usize, (Vec<f64>, usize))| {
            errors.sort_by(f64::total_cmp);
            let mape = errors.iter().sum::<f64>() / errors.len() as f64;
            let (median, p90) = (median_of(&errors), errors[errors.len() * 9 / 10]);
            Score { rule: name(rule), mape, median, p90, above_one }
        };
        let half = |one: &CoRunSlowdown| Some(100.0 * (one.high? - one.low?) / 2.0 / one.slowdown);
        let halves: Vec<f64> = self.beside.iter().filter_map(half).collect();
        let all: Vec<f64> = self.beside.iter().map(|one| one.slowdown).collect();
        Ok(Scores {
            rules: errors.into_iter().map(score).collect(),
            asked,
            operators: self.operators.len(),
            noise: if halves.is_empty() { f64::NAN } else { median_of(&halves) },
            middle: median_of(&all),
            has_memory_traffic: self.operators.iter().any(|one| one.demand.bytes > 0.0),
        })
    }
}
