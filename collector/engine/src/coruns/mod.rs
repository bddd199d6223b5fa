//! Runs the co-runs of a configuration that the store lacks, and reports the slowdowns of all co-runs.

mod report;

pub use report::{CoRunMember, CoRunReport};

use crate::bases::base_records;
use crate::boards::MeasuredMachine;
use crate::campaign::collect::{CampaignCallbacks, Outcomes};
use crate::campaign::corun::plan::{LeftOut, Operator};
use crate::campaign::corun::{CoRuns, Combination, plan_combinations, run_combinations, sample_operators};
use crate::campaign::graphs::LoadedModels;
use crate::campaign::{CoRun, Config, PlannedTask, planned_tasks};
use crate::failure::{Failure, format_chain};
use crate::ledger::Ledger;
use crate::losses::group_losses;
use crate::observer::{Observer, StoreStatus};
use crate::repeat::{Repeat, WantedCounters};
use crate::stores::store_failure;
use crate::{Result, machine};
use bench::{Versions, Workers};
use datasets::{Choose, Key, Record, Store};
use measure::host::cache_shares::{RESCTRL, check_partitioning};
use std::cell::RefCell;
use std::collections::HashSet;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use targets::Target;

/// Planned co-runs, and the workers that build and run them.
pub struct CoRunCampaign {
    config: Config,
    corun: CoRun,
    repeat: Repeat,
    tasks: Vec<PlannedTask>,
    operators: Vec<Operator>,
    planned: Vec<Combination>,
    left_out: LeftOut,
    target: Target,
    host: String,
    cache_bytes: u64,
    workers: Workers,
    observer: Rc<dyn Observer>,
}

impl CoRunCampaign {
    /// Plans the co-runs that the table `[corun]` of a configuration describes.
    pub fn plan(
        (config, corun): (Config, Option<CoRun>),
        loaded: &LoadedModels,
        repeat: Repeat,
        observer: Rc<dyn Observer>,
    ) -> Result<CoRunCampaign> {
        let corun = corun.map(CoRun::without_duplicates).ok_or_else(|| {
            Failure::usage("the configuration has no table `[corun]`")
                .with_hint("give `--config configs/corun.toml`, or add `[corun]` with `sizes = [2]`")
        })?;
        if !config.compiled_kind().runs_on_cpus() {
            return Err(Failure::usage("co-runs are supported only on CPUs").with_hint("leave out `target`"));
        }
        let wrong = |error: &dyn std::error::Error| Failure::usage(format_chain(error));
        let tasks = planned_tasks(&config, loaded).map_err(|error| wrong(&error))?;
        let mut workers = machine::create_workers(&config.limits)?;
        let target = machine::resolve_target(&config.target, &mut workers)?;
        let versions = machine::collect_versions(&target, Versions::new(), &mut workers)?;
        let MeasuredMachine { facts, cpus, .. } = MeasuredMachine::this_machine()?;
        let bases = base_records(&config, &target, &facts, &versions)?;
        let operators =
            sample_operators(&tasks, &corun, config.seed, &target, &bases).map_err(|error| wrong(&error))?;
        if operators.is_empty() {
            return Err(Failure::usage("these models have no compiled operators, so there is nothing to co-run"));
        }
        let repeat = Repeat { counters: WantedCounters::from_config(&config), ..repeat };
        let can_part = check_partitioning(Path::new(RESCTRL));
        if let (Some(_), Err(why)) = (corun.cache_share, &can_part) {
            observer.note(format!("shares of the last-level cache cannot be enforced: {why}"));
        }
        let (planned, left_out) = plan_combinations(&operators, &corun, config.seed, &bases, &cpus, can_part.is_ok())
            .map_err(|error| wrong(&error))?;
        let compiled = tasks.iter().filter(|planned| planned.partner.is_none()).count();
        let left_out = LeftOut { operators: compiled - operators.len(), ..left_out };
        for line in left_out.describe(&corun, cpus.len()) {
            observer.note(line);
        }
        if planned.is_empty() {
            return Err(Failure::usage("no combination fits the cores of this machine")
                .with_hint("give smaller `sizes`, fewer `threads`, or `parallel = [\"full\"]`"));
        }
        let cache_bytes = facts.last_level_cache_bytes().unwrap_or(0);
        Ok(CoRunCampaign {
            config,
            corun,
            repeat,
            tasks,
            operators,
            planned,
            left_out,
            target,
            host: bases.compiled.host,
            cache_bytes,
            workers,
            observer,
        })
    }

    /// Runs the combinations that the store lacks, and reports all slowdowns. A signal ends the work early.
    pub fn run(mut self, store: &Store, signal: &AtomicUsize) -> Result<CoRunReport> {
        store.keep_config(&self.config.json_without_budget()).map_err(store_failure)?;
        let (outcomes, known_before) = self.run_missing(store, signal)?;
        if let Some(why) = &outcomes.broken {
            let failure = Failure::environment(format!("cannot start a worker: {why}"));
            return Err(failure.with_hint(machine::worker_hint()));
        }
        let records = self.read_records(store)?;
        Ok(CoRunReport {
            store: store.root().display().to_string(),
            operators: self.operators.len(),
            combinations: self.planned.len(),
            left_out: self.left_out,
            known_before,
            outcomes,
            losses: group_losses(&records),
            members: report::collect_members(&records),
            retry_faults: self.repeat.retry_faults,
        })
    }

    /// Runs the combinations that a store lacks. Returns their outcomes, and the number of combinations already stored.
    fn run_missing(&mut self, store: &Store, signal: &AtomicUsize) -> Result<(Outcomes, usize)> {
        let mut ledger = Ledger::open(store, &self.repeat, self.observer.as_ref()).map_err(store_failure)?;
        let passes = i64::try_from(self.corun.passes).unwrap_or(i64::MAX);
        let tries_left = |combination: &Combination| {
            let keys = combination.record_keys().into_iter().filter(|key| self.repeat.is_wanted(*key));
            keys.map(|key| ledger.tries_left(key, passes)).max().unwrap_or(0)
        };
        let left: Vec<i64> = self.planned.iter().map(tries_left).collect();
        let todo: Vec<Combination> =
            order_tries(&left, passes).into_iter().map(|place| self.planned[place].clone()).collect();
        let runs = CoRuns {
            tasks: &self.tasks,
            operators: &self.operators,
            corun: &self.corun,
            config: &self.config,
            target: &self.target,
            cache_bytes: self.cache_bytes,
        };
        let records = todo.iter().map(|combination| combination.members.len()).sum();
        let mut progress = self.observer.begin_progress(records, StoreStatus::create(store, &self.host));
        let shared = RefCell::new(&mut ledger);
        let mut callbacks = CampaignCallbacks {
            sink: &mut |record: &Record| shared.borrow_mut().append_record(record),
            listener: &mut |event| progress.observe_event(&event),
            should_stop: &|| signal.load(Ordering::Relaxed) != 0,
            claim: &mut |wanted| shared.borrow_mut().claim_until(wanted, passes),
        };
        let outcomes = run_combinations(&runs, &todo, &mut self.workers, &mut callbacks);
        progress.finish();
        ledger.seal().map_err(store_failure)?;
        Ok((outcomes.map_err(store_failure)?, left.iter().filter(|left| **left == 0).count()))
    }

    fn read_records(&self, store: &Store) -> Result<Vec<Record>> {
        let wanted: HashSet<Key> = self.planned.iter().flat_map(Combination::record_keys).collect();
        let mut records = Vec::new();
        for record in store.select_records(Choose::Middle).map_err(store_failure)? {
            records.extend(Some(record.map_err(store_failure)?).filter(|record| wanted.contains(&record.key)));
        }
        Ok(records)
    }
}

/// Returns the places of the combinations in the order of their tries, given how many tries each has left.
///
/// Each pass covers all combinations, so that a short disturbance does not affect all tries of one combination. A
/// combination that has tries takes part in later passes only.
fn order_tries(left: &[i64], passes: i64) -> Vec<usize> {
    let most = left.iter().copied().max().unwrap_or(0).min(passes);
    let pass = |number: i64| (0..left.len()).filter(move |place| left[*place] >= number);
    (1..=most).rev().flat_map(pass).collect()
}

#[cfg(test)]
mod tests {
    use super::order_tries;

    #[test]
    fn an_interrupted_pass_is_continued() {
        assert_eq!(order_tries(&[2, 2, 2], 2), [0, 1, 2, 0, 1, 2]);
        // The first combination has one try of three, the second all.
        assert_eq!(order_tries(&[2, 0, 3, 3], 3), [2, 3, 0, 2, 3, 0, 2, 3]);
        assert!(order_tries(&[0, 0], i64::MAX).is_empty());
    }
}
