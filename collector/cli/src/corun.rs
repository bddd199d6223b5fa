//! `corun`: operators beside each other and beside partners that ask for one thing alone, as records.

use super::progress::terminal;
use super::signals::watch_signals;
use super::{DONE, DONE_WITH_LOSSES, Result, paper, print, print_json, settings, tell};
use crate::options::{Measuring, Models, Sweep};
use bench::Versions;
use clap::Args;
use datasets::{Choose, Key, Outcome, Record, Store};
use engine::bases::bases;
use engine::boards::Standing;
use engine::campaign::collect::{Outcomes, Outside};
use engine::campaign::corun::{CoRuns, Combination, combinations, operators, run as make};
use engine::campaign::settings::Resolved;
use engine::campaign::{CoRun, planned_tasks};
use engine::failure::{Failure, chain};
use engine::ledger::Ledger;
use engine::losses::{Loss, describe as describe_losses, losses};
use engine::machine;
use engine::repeat::Repeat;
use engine::stores::{failed, open_store};
use job::target::is_llvm;
use measure::host::cache_shares::{RESCTRL, can_be_parted};
use report::{Table, duration, figures, or_unknown, words};
use serde::Serialize;
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Examples of `corun`.
pub const CORUN_EXAMPLES: &str = "\
Examples:
  opcollect corun --config configs/corun.toml --store runs/corun
  opcollect corun --config configs/corun.toml --modelsource local --modelname squeezenet-1.1 --modelname mlp
  oppredict interference --data runs/corun --html slowdowns.html";

/// Operators beside each other.
#[derive(Debug, Args)]
pub struct CoRunRun {
    #[command(flatten)]
    pub models: Models,
    #[command(flatten)]
    pub sweep: Sweep,
    #[command(flatten)]
    pub measuring: Measuring,
    /// Write records to this store, a folder that is made if needed [default: opcollect-data]
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Print one JSON document as the last line of stdout
    #[arg(long)]
    pub json: bool,
}

/// Everything `--json` prints.
#[derive(Serialize)]
struct Report {
    store: String,
    operators: usize,
    combinations: usize,
    known_before: usize,
    outcomes: Outcomes,
    losses: Vec<Loss>,
    members: Vec<Beside>,
}

/// One member beside others.
#[derive(Clone, Serialize)]
struct Beside {
    operator: String,
    beside: Vec<String>,
    parallel: Option<String>,
    median_ns: f64,
    alone_ns: f64,
    slowdown: f64,
    slowdown_low: Option<f64>,
    slowdown_high: Option<f64>,
}

/// Makes the co-runs that a store lacks, and reports.
pub fn run(arguments: &CoRunRun) -> Result<u8> {
    let (Resolved { config, loaded }, corun) = settled(arguments)?;
    let tasks = planned_tasks(&config, &loaded).map_err(|error| Failure::usage(chain(&error)))?;
    let observer = terminal(arguments.measuring.progress);
    let repeat = Repeat::new(&arguments.measuring.repeat())?;
    let mut workers = machine::workers(&config.limits)?;
    let target = machine::target(&config.target, &mut workers)?;
    let versions = machine::prepare(&target, Versions::new(), &mut workers)?;
    let Standing { facts, cpus, .. } = Standing::here()?;
    let bases = bases(&config, &target, &facts, &versions)?;
    let wrong = |error: &dyn std::error::Error| Failure::usage(chain(error));
    let operators = operators(&tasks, &corun, config.seed, &target, &bases).map_err(|error| wrong(&error))?;
    if operators.is_empty() {
        return Err(Failure::usage("no operator of these models is compiled, so none runs beside another"));
    }
    let can_part = can_be_parted(Path::new(RESCTRL));
    if let (Some(_), Err(why)) = (corun.cache_share, &can_part) {
        tell(&[format!("shares of the cache are not controlled: {why}")]);
    }
    let (planned, left_out) = combinations(&operators, &corun, config.seed, &bases, &cpus, can_part.is_ok())
        .map_err(|error| wrong(&error))?;
    if left_out > 0 {
        tell(&[format!(
            "{left_out} combinations are left out: their members need more cores than the {} there are",
            cpus.len()
        )]);
    }
    if planned.is_empty() {
        return Err(Failure::usage("no combination fits the cores of this machine")
            .with_hint("give smaller `sizes`, fewer `threads`, or `parallel = [\"full\"]`"));
    }
    let _exclusive = machine::exclusive(arguments.measuring.wait, observer.as_ref())?;
    let store = open_store(arguments.store.as_deref())?;
    store.keep_config(&config.kept_text()).map_err(failed)?;
    let wanted: HashSet<Key> = planned.iter().flat_map(Combination::keys).collect();
    let mut ledger = Ledger::open(&store, &repeat, observer.as_ref()).map_err(failed)?;
    let times = i64::try_from(corun.passes).unwrap_or(i64::MAX);
    let tries = |one: &Combination| {
        let keys = one.keys().into_iter().filter(|key| repeat.is_wanted(*key));
        keys.map(|key| ledger.left(key, times)).max().unwrap_or(0)
    };
    let left: Vec<i64> = planned.iter().map(tries).collect();
    // One pass after the other: what disturbs the machine for a second does not meet all tries of one combination.
    let pass = |number: i64| {
        let wanted = planned.iter().zip(&left).filter(move |(_, left)| **left > number);
        wanted.map(|(one, _)| one.clone())
    };
    let todo: Vec<Combination> = (0..times).flat_map(pass).collect();
    let known_before = left.iter().filter(|left| **left == 0).count();
    let runs = CoRuns {
        tasks: &tasks,
        operators: &operators,
        corun: &corun,
        config: &config,
        target: &target,
        cache_bytes: facts.last_level_cache_bytes().unwrap_or(0),
    };
    let signal = watch_signals()?;
    let outcomes = {
        let records = todo.iter().map(|one| one.members.len()).sum();
        let mut progress = observer.begin(records, None);
        let shared = RefCell::new(&mut ledger);
        let mut outside = Outside {
            sink: &mut |record: &Record| shared.borrow_mut().keep(record),
            listener: &mut |event| progress.hear(&event),
            should_stop: &|| signal.load(Ordering::Relaxed) != 0,
            claim: &mut |wanted| shared.borrow_mut().claim_until(wanted, times),
        };
        let outcomes = make(&runs, &todo, &mut workers, &mut outside);
        progress.finish();
        outcomes
    };
    ledger.seal().map_err(failed)?;
    let outcomes = outcomes.map_err(failed)?;
    if let Some(why) = &outcomes.broken {
        return Err(Failure::environment(format!("cannot start a worker: {why}")).with_hint(machine::SETUP_HINT));
    }
    let records = records_of(&store, &wanted)?;
    let members: Vec<Beside> = beside(&records);
    let losses = losses(&records);
    let is_lossy = !losses.is_empty();
    if arguments.json {
        let store = store.root().display().to_string();
        let (operators, combinations) = (operators.len(), planned.len());
        print_json(&Report { store, operators, combinations, known_before, outcomes, losses, members })?;
    } else {
        print(&table(&members))?;
        print(&describe_losses(&losses, repeat.retry_faults))?;
        print(&footer(planned.len(), known_before, &outcomes, &store))?;
    }
    Ok(match signal.load(Ordering::Relaxed) {
        0 if is_lossy => DONE_WITH_LOSSES,
        0 => DONE,
        signal => 128 + u8::try_from(signal).unwrap_or(0),
    })
}

fn settled(arguments: &CoRunRun) -> Result<(Resolved, CoRun)> {
    let (settled, corun) = settings::config_of_coruns(&arguments.models, &arguments.sweep)?;
    let config = &settled.config;
    let corun = corun.ok_or_else(|| {
        Failure::usage("the configuration has no table `[corun]`")
            .with_hint("give `--config configs/corun.toml`, or add `[corun]` with `sizes = [2]`")
    })?;
    if !is_llvm(&config.target) {
        return Err(Failure::usage("only operators on CPUs run beside each other").with_hint("leave out `target`"));
    }
    Ok((settled, corun))
}

fn records_of(store: &Store, wanted: &HashSet<Key>) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for record in store.records(Choose::Middle).map_err(failed)? {
        let record = record.map_err(failed)?;
        if wanted.contains(&record.key) {
            records.push(record);
        }
    }
    Ok(records)
}

/// What the records say of slowdowns.
fn beside(records: &[Record]) -> Vec<Beside> {
    let names: BTreeMap<&str, &str> =
        records.iter().map(|record| (record.task_hash.as_str(), record.op_text.as_str())).collect();
    let of = |record: &Record| {
        let counted: BTreeMap<String, Value> = record.counters.as_ref()?.to().ok()?;
        let number = |name: &str| counted.get(name).and_then(Value::as_f64);
        let hashes: Vec<String> = record.co_run.as_ref()?.to().ok()?;
        Some(Beside {
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
    records.iter().filter(|record| record.outcome == Outcome::Ok).filter_map(of).collect()
}

/// One line for each operator: what it loses beside synthetic partners and others, and what it costs those partners.
fn table(members: &[Beside]) -> String {
    let is_synthetic = |name: &str| name.starts_with("synthetic ");
    let mut partners: Vec<&str> =
        members.iter().map(|one| one.operator.as_str()).filter(|name| is_synthetic(name)).collect();
    partners.sort_unstable();
    partners.dedup();
    let mut columns = vec![words("operator"), figures("alone")];
    let short = |name: &str| name.trim_start_matches("synthetic ").to_owned();
    columns.extend(partners.iter().map(|name| figures(format!("beside {}", short(name)))));
    columns.extend(partners.iter().map(|name| figures(format!("slows {}", short(name)))));
    columns.extend([figures("beside others"), figures("at worst")]);
    let mut table = Table::new(columns);
    let mut seen: Vec<&str> = Vec::new();
    for member in members.iter().filter(|member| !is_synthetic(&member.operator)) {
        if seen.contains(&member.operator.as_str()) {
            continue;
        }
        seen.push(&member.operator);
        let own = members.iter().filter(|other| other.operator == member.operator);
        let slowdowns = |is_wanted: &dyn Fn(&Beside) -> bool| {
            let mut found: Vec<f64> = own.clone().filter(|one| is_wanted(one)).map(|one| one.slowdown).collect();
            found.sort_by(f64::total_cmp);
            found
        };
        let middle = |sorted: &[f64]| (!sorted.is_empty()).then(|| measure::statistics::median(sorted));
        let times = |value: Option<f64>| or_unknown(value, |value| format!("{value:.2}×"));
        let mut alone: Vec<f64> = own.clone().map(|one| one.alone_ns).collect();
        alone.sort_by(f64::total_cmp);
        let mut row = vec![member.operator.clone(), or_unknown(middle(&alone), duration)];
        row.extend(partners.iter().map(|partner| times(middle(&slowdowns(&|one| one.beside == [*partner])))));
        row.extend(partners.iter().map(|partner| {
            let pressed = |one: &&Beside| one.operator == *partner && one.beside == [member.operator.as_str()];
            times(members.iter().find(pressed).map(|one| one.slowdown))
        }));
        let others = slowdowns(&|one| one.beside.iter().all(|name| !is_synthetic(name)));
        row.extend([times(middle(&others)), times(others.last().copied())]);
        table.row(row);
    }
    table.on(&paper())
}

fn footer(planned: usize, known: usize, outcomes: &Outcomes, store: &Store) -> String {
    let counts: Vec<String> = outcomes.counts.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
    let made = if counts.is_empty() { "nothing new".to_owned() } else { counts.join(", ") };
    let known = if known > 0 { format!(", {known} combinations known before") } else { String::new() };
    let left = if outcomes.left > 0 { format!(", {} records left", outcomes.left) } else { String::new() };
    format!("{planned} combinations; records: {made}{known}{left} · in `{}`", store.root().display())
}
