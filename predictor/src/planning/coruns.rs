//! What records of operators beside each other say: slowdowns, what follows from them, and how far off that is for operators
//! that were held out.

use super::demand::{Time, cache_bytes, demand};
use super::versions::of_versions;
use crate::error::{Error, Result};
use datasets::{Json, Outcome, Record, Source, Store};
use learn::split;
use models::Task;
use planners::interference::{Baseline, Demand, Learned, Machine, Profile, Seen, baseline, slowdowns};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// The `op_kind` of partners that are no operators.
const SYNTHETIC: &str = "synthetic";
/// Pairs fewer than these teach nothing that bandwidth and cache do not.
const LEAST_PAIRS: usize = 20;
/// A slowdown whose interval is wider on either side, as a share of it, is not known: something else ran meanwhile.
const KNOWN: f64 = 0.05;
/// Parts into which operators are put, each held out once.
const FOLDS: usize = 5;

/// An operator that ran beside others.
#[derive(Clone, Debug, Serialize)]
pub struct Operator {
    /// The hash of its task.
    pub task_hash: String,
    /// The task in words.
    pub text: String,
    /// Its time alone.
    pub alone_ns: f64,
    /// What it asks of the machine.
    #[serde(skip)]
    pub demand: Demand,
}

/// One operator beside others.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
    /// Whose slowdown it is, by its place.
    pub operator: usize,
    /// Beside whom.
    pub others: Vec<usize>,
    /// Cores of each.
    pub cores: usize,
    /// How many times longer it takes.
    pub slowdown: f64,
    /// From here …
    pub low: Option<f64>,
    /// … to here.
    pub high: Option<f64>,
}

/// Everything that ran together on one class of hosts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CoRuns {
    /// The operators.
    pub operators: Vec<Operator>,
    /// Their slowdowns.
    pub beside: Vec<Beside>,
    /// The partners that are no operators, in the order of profiles.
    pub partners: Vec<String>,
    /// Slowdowns that are not known, because something else ran meanwhile.
    pub left_out: usize,
}

/// How far off a rule is.
#[derive(Clone, Debug, Serialize)]
pub struct Score {
    /// The rule.
    pub rule: &'static str,
    /// Mean absolute error over the slowdown, in percent.
    pub mape: f64,
    /// The middle of those errors.
    pub median: f64,
    /// Nine in ten are at most this.
    pub p90: f64,
}

/// What an evaluation on held-out operators found.
#[derive(Clone, Debug, Serialize)]
pub struct Scores {
    /// Ours first.
    pub rules: Vec<Score>,
    /// Slowdowns that were asked for.
    pub asked: usize,
    /// Operators, each held out once.
    pub operators: usize,
    /// Half the middle interval of slowdowns over the slowdown, in percent: what nobody can know better.
    pub noise: f64,
    /// The middle slowdown.
    pub middle: f64,
}

/// The middle of some numbers.
fn median(values: &[f64]) -> f64 {
    samples::statistics::median(&mut values.to_vec())
}

/// What a co-run record counted.
struct CoRunRow {
    slowdown: f64,
    alone_ns: f64,
    low: Option<f64>,
    high: Option<f64>,
    others: Vec<String>,
}

fn row(record: &Record) -> Option<CoRunRow> {
    let counted: BTreeMap<String, Value> = record.counters.as_ref()?.to().ok()?;
    let number = |name: &str| counted.get(name).and_then(Value::as_f64).filter(|value| *value > 0.0);
    Some(CoRunRow {
        slowdown: number("slowdown")?,
        alone_ns: number("alone_ns")?,
        low: number("slowdown_low"),
        high: number("slowdown_high"),
        others: record.co_run.as_ref().and_then(|json: &Json| json.to().ok())?,
    })
}

impl CoRuns {
    /// Whether a record is one of these.
    pub fn has(record: &Record) -> bool {
        record.co_run.is_some() && record.outcome == Outcome::Ok && record.source == Source::Measured
    }

    /// Reads the records of one class of hosts: the one named, or the only one. Also returns the number of records that were left
    /// out because of their versions.
    pub fn read(path: &Path, class: Option<&str>, all_versions: bool) -> Result<(CoRuns, Vec<Record>, usize)> {
        let mut by_class: BTreeMap<String, Vec<Record>> = BTreeMap::new();
        for record in Store::open(path)?.records(datasets::Choose::Middle)? {
            let record = record?;
            if CoRuns::has(&record) {
                by_class.entry(record.host_class.clone()).or_default().push(record);
            }
        }
        let known: Vec<String> = by_class.keys().cloned().collect();
        let class = match (class, known.as_slice()) {
            (Some(class), _) if by_class.contains_key(class) => class.to_owned(),
            (Some(class), _) => return Err(Error::unknown("hardware", class, known.iter().map(String::as_str))),
            (None, [only]) => only.clone(),
            (None, []) => {
                let problem = "has no records of operators that ran together; make some with `opcollect corun --config configs/corun.toml`";
                return Err(Error::Query(format!("`{}` {problem}", path.display())));
            }
            (None, several) => {
                return Err(Error::Query(format!("give --hardware; the store has {}", several.join(", "))));
            }
        };
        let (records, left_out) = of_versions(by_class.remove(&class).unwrap_or_default(), all_versions);
        Ok((CoRuns::of(&records), records, left_out))
    }

    /// What records of one class of hosts say.
    pub fn of(records: &[Record]) -> CoRuns {
        let rows: Vec<(&Record, CoRunRow)> = records
            .iter()
            .filter(|record| CoRuns::has(record))
            .filter_map(|record| Some((record, row(record)?)))
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
            let Some(task) = record.task.as_ref().and_then(|json| json.to::<Task>().ok()) else { continue };
            if places.contains_key(record.task_hash.as_str()) {
                continue;
            }
            let own = rows.iter().filter(|(other, _)| other.task_hash == record.task_hash);
            let alone: Vec<f64> = own.clone().map(|(_, row)| row.alone_ns).collect();
            let alone_ns = median(&alone);
            let time = Time { time_ns: alone_ns, low_ns: alone_ns, high_ns: alone_ns, is_measured: true };
            let machine =
                Machine { cores: 1, bytes_per_ns: 1.0, cache_bytes: cache_bytes(records), learned: Learned::default() };
            let pair = |own: &str, other: &str| {
                let of = |(record, row): &(&Record, CoRunRow)| {
                    (record.task_hash == own && row.others == [other]).then_some(row.slowdown - 1.0)
                };
                let losses: Vec<f64> = rows.iter().filter_map(of).collect();
                (!losses.is_empty()).then(|| median(&losses))
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
                demand: Demand { profile, ..demand(&task, &[time], &machine, &[1.0]) },
            });
        }
        for (record, row) in &rows {
            let others: Option<Vec<usize>> = row.others.iter().map(|hash| places.get(hash.as_str()).copied()).collect();
            let (Some(&operator), Some(others)) = (places.get(record.task_hash.as_str()), others) else { continue };
            let half = row.low.zip(row.high).map(|(low, high)| (high - low) / 2.0 / row.slowdown);
            // Too few rounds for an interval say nothing of how well a slowdown is known.
            if half.is_none_or(|half| half > KNOWN) {
                found.left_out += 1;
                continue;
            }
            let cores = record.threads.and_then(|threads| usize::try_from(threads).ok()).unwrap_or(1);
            found.beside.push(Beside { operator, others, cores, slowdown: row.slowdown, low: row.low, high: row.high });
        }
        found
    }

    /// The profiles of operators, by the hashes of their tasks.
    pub fn profiles(&self) -> HashMap<String, Profile> {
        let of = |one: &Operator| Some((one.task_hash.clone(), one.demand.profile.clone()?));
        self.operators.iter().filter_map(of).collect()
    }

    fn seen<'a>(&'a self, of: &[usize]) -> Vec<Seen<'a>> {
        let one = |&place: &usize| {
            let Beside { operator, others, cores, slowdown, .. } = &self.beside[place];
            Seen {
                own: (*cores, &self.operators[*operator].demand),
                others: others.iter().map(|&other| (*cores, &self.operators[other].demand)).collect(),
                slowdown: *slowdown,
            }
        };
        of.iter().map(one).collect()
    }

    /// What all of them teach; bandwidth and cache alone where there are too few.
    pub fn learned(&self, machine: &Machine) -> Learned {
        let all: Vec<usize> = (0..self.beside.len()).collect();
        if all.len() < LEAST_PAIRS { Learned::default() } else { Learned::fit(machine, &self.seen(&all)) }
    }

    /// How far off rules are for operators that were held out: what is learned saw none of their slowdowns beside other operators.
    pub fn scores(&self, machine: &Machine, seed: u64) -> Result<Scores> {
        if self.beside.len() < LEAST_PAIRS || self.operators.len() < FOLDS {
            return Err(Error::Query(format!(
                "{} slowdowns of {} operators; an evaluation needs at least {LEAST_PAIRS} slowdowns of {FOLDS} operators",
                self.beside.len(),
                self.operators.len()
            )));
        }
        let groups: Vec<u64> = (0..self.operators.len() as u64).collect();
        let mut errors: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        let mut add = |rule: usize, said: f64, measured: f64| {
            errors.entry(rule).or_default().push(100.0 * (said / measured - 1.0).abs())
        };
        let mut asked = 0;
        for fold in split::by_group(&groups, FOLDS, seed) {
            let held: BTreeSet<usize> = fold.test.iter().copied().collect();
            let is_held =
                |one: &Beside| held.contains(&one.operator) || one.others.iter().any(|other| held.contains(other));
            let (test, train): (Vec<usize>, Vec<usize>) =
                (0..self.beside.len()).partition(|&place| is_held(&self.beside[place]));
            let learned = Machine { learned: Learned::fit(machine, &self.seen(&train)), ..machine.clone() };
            for (seen, &place) in self.seen(&test).iter().zip(&test) {
                // A pair of two folds is asked once, where its first is held out.
                if !held.contains(&self.beside[place].operator) {
                    continue;
                }
                let mut running = vec![seen.own];
                running.extend(&seen.others);
                asked += 1;
                add(0, slowdowns(&learned, &running)[0], seen.slowdown);
                add(1, slowdowns(machine, &running)[0], seen.slowdown);
                for (place, rule) in Baseline::ALL.into_iter().enumerate() {
                    add(2 + place, baseline(rule, machine, &running)[0], seen.slowdown);
                }
            }
        }
        let name = |rule: usize| match rule {
            0 => "learned from pairs",
            1 => "bandwidth and cache",
            other => Baseline::ALL[other - 2].name(),
        };
        let score = |(rule, mut errors): (usize, Vec<f64>)| {
            errors.sort_by(f64::total_cmp);
            let mape = errors.iter().sum::<f64>() / errors.len() as f64;
            Score { rule: name(rule), mape, median: median(&errors), p90: errors[errors.len() * 9 / 10] }
        };
        let half = |one: &Beside| Some(100.0 * (one.high? - one.low?) / 2.0 / one.slowdown);
        let halves: Vec<f64> = self.beside.iter().filter_map(half).collect();
        let all: Vec<f64> = self.beside.iter().map(|one| one.slowdown).collect();
        Ok(Scores {
            rules: errors.into_iter().map(score).collect(),
            asked,
            operators: self.operators.len(),
            noise: if halves.is_empty() { f64::NAN } else { median(&halves) },
            middle: median(&all),
        })
    }
}
