//! Executes combinations: builds the operators, runs them concurrently, and writes a record of each member.

use super::plan::{Combination, Operator, Part};
use crate::campaign::collect::{CampaignCallbacks, CampaignEvent, ClaimResult, Outcomes, Visit};
use crate::campaign::config::Config;
use crate::campaign::corun_settings::CoRun;
use crate::campaign::planned::PlannedTask;
use crate::campaign::record::{self, describe_check, describe_measurement, fault_outcome, mark_failed};
use bench::{Bench, Build, Ran};
use datasets::{Json, Outcome, Record, RowError};
use job::{Artifact, BuildJob, CoRunJob, Member, MemberReply, MemberWork, RunReply, TogetherJob, TogetherReply};
use measure::Shared;
use measure::host::cache_shares::{CacheShares, RESCTRL};
use models::Parallel;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};
use targets::Target;
use worker::Fault;

/// The tasks and settings of co-runs.
pub struct CoRuns<'a> {
    /// Tasks of the models.
    pub tasks: &'a [PlannedTask],
    /// Operators sampled for co-runs, each with its schedule.
    pub operators: &'a [Operator],
    /// Settings of co-runs.
    pub corun: &'a CoRun,
    /// Configuration, of which the limits, the seed and the counters are used.
    pub config: &'a Config,
    /// Target of the compiled code.
    pub target: &'a Target,
    /// Size of the largest cache in bytes.
    pub cache_bytes: u64,
}

/// Runs all combinations that no other process has run or claimed.
pub fn run_combinations<E: From<RowError>>(
    runs: &CoRuns<'_>,
    combinations: &[Combination],
    bench: &mut dyn Bench,
    callbacks: &mut CampaignCallbacks<'_, E>,
) -> Result<Outcomes, E> {
    let start = Instant::now();
    let mut outcomes = Outcomes::default();
    let built = build_operators(runs, combinations, bench, callbacks);
    outcomes.build_ms = elapsed_ms(start);
    let begin = Instant::now();
    for (place, combination) in combinations.iter().enumerate() {
        let is_over = runs.config.budget_seconds.is_some_and(|budget| start.elapsed().as_secs_f64() > budget);
        if is_over || (callbacks.should_stop)() {
            outcomes.left += combinations[place..].iter().map(|left| left.members.len()).sum::<usize>();
            break;
        }
        let wanted = combination.record_keys().into_iter().map(|key| Visit { key, number: 0 });
        let claims = (callbacks.claim)(&wanted.collect::<Vec<Visit>>())?;
        if claims.iter().all(|claim| claim.try_number().is_none()) {
            let held = claims.iter().filter(|claim| **claim == ClaimResult::Held).count();
            outcomes.left += held;
            outcomes.held += held;
            outcomes.elsewhere += claims.len() - held;
            continue;
        }
        let ended = run_combination(runs, combination, &built, bench);
        if let Err(why) = &ended {
            outcomes.broken = Some(why.clone());
            outcomes.left += combinations[place..].iter().map(|left| left.members.len()).sum::<usize>();
            break;
        }
        for (record, claim) in ended.unwrap_or_default().into_iter().zip(claims) {
            // If a process was killed between two records of a combination, the store already has
            // the first one.
            let Some(attempt) = claim.try_number() else { continue };
            let record = Record { attempt, ..record };
            (callbacks.sink)(&record)?;
            *outcomes.counts.entry(record.outcome.name().to_owned()).or_default() += 1;
            (callbacks.listener)(CampaignEvent::Recorded(&record));
        }
    }
    outcomes.run_ms = elapsed_ms(begin);
    Ok(outcomes)
}

fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn build_operators<E>(
    runs: &CoRuns<'_>,
    combinations: &[Combination],
    bench: &mut dyn Bench,
    callbacks: &mut CampaignCallbacks<'_, E>,
) -> BTreeMap<usize, Result<Box<Artifact>, Failed>> {
    let parts = combinations.iter().flat_map(|combination| &combination.members).map(|(part, _)| *part);
    let wanted: BTreeSet<usize> =
        parts.filter_map(|part| if let Part::Operator(one) = part { Some(one) } else { None }).collect();
    let job = |one: &usize| {
        let Operator { task, schedule, .. } = &runs.operators[*one];
        BuildJob::for_schedule(runs.tasks[*task].compiled_json(), runs.target, schedule)
    };
    let jobs: Vec<BuildJob> = wanted.iter().map(job).collect();
    let builds = bench.build_jobs(&jobs, &mut || (callbacks.listener)(CampaignEvent::Built));
    let of = |build: Build| match build {
        Build::Built(artifact) => Ok(artifact),
        Build::Failed(why) => Err(Failed(Outcome::BuildFailed, why)),
        Build::Rejected(why) => Err(Failed(Outcome::Skipped, why)),
        Build::Fault(fault) => Err(Failed(fault_outcome(&fault, Outcome::BuildFailed), format!("build: {fault}"))),
    };
    wanted.into_iter().zip(builds.into_iter().map(of)).collect()
}

struct Failed(Outcome, String);

/// Runs one combination and returns the records of its members. Fails if no worker can be started.
fn run_combination(
    runs: &CoRuns<'_>,
    combination: &Combination,
    built: &BTreeMap<usize, Result<Box<Artifact>, Failed>>,
    bench: &mut dyn Bench,
) -> Result<Vec<Record>, String> {
    let mut records = combination.records.clone();
    let failed = |mut records: Vec<Record>, outcome: Outcome, why: &str| {
        records.iter_mut().for_each(|record| mark_failed(record, outcome, why.to_owned()));
        Ok(records)
    };
    let (mut members, mut flops) = (Vec::new(), 0);
    for ((part, cpus), record) in combination.members.iter().zip(&mut records) {
        record.started_at_us = record::now_us();
        match part {
            Part::Synthetic(what) => members.push(Member { what: MemberWork::Synthetic(*what), cpus: cpus.clone() }),
            Part::Operator(one) => {
                let planned = &runs.tasks[runs.operators[*one].task];
                match &built[one] {
                    Ok(artifact) => {
                        record::describe_artifact(record, &runs.operators[*one].schedule, artifact)
                            .map_err(|error| error.to_string())?;
                        members
                            .push(Member { what: MemberWork::built_code(&planned.json, artifact), cpus: cpus.clone() });
                        flops += planned.task.work().map_or(0, |work| work.flops);
                    }
                    Err(Failed(outcome, why)) => {
                        let (outcome, why) = (*outcome, format!("{}: {why}", record.op_text));
                        return failed(records, outcome, &why);
                    }
                }
            }
        }
    }
    let cpus: Vec<&[usize]> = members.iter().map(|member| member.cpus.as_slice()).collect();
    let is_parted = records.iter().any(|record| record.cache_share.is_some());
    let share = runs.corun.cache_share.filter(|_| is_parted);
    let shares = share.map(|share| CacheShares::take_shares(Path::new(RESCTRL), &cpus, share)).transpose();
    let _shares = match shares {
        Ok(shares) => shares,
        Err(error) => return failed(records, Outcome::RunFailed, &error.to_string()),
    };
    let job = TogetherJob::CoRun(CoRunJob {
        members,
        seed: runs.config.seed,
        rule: runs.corun.measure.clone(),
        share_cores: combination.parallel == Parallel::Full,
        counters: runs.config.counters.clone(),
        cache_bytes: runs.cache_bytes,
    });
    let deadline = job.time_limit(flops, Duration::from_secs_f64(runs.config.limits.run_seconds));
    let Ran { began, reply } = bench.run_together(job, deadline);
    records.iter_mut().for_each(|record| record.started_at_us = record::unix_microseconds(began));
    let is_uncontrolled = runs.corun.cache_share.is_some() && !is_parted;
    let replies = match reply {
        Ok(RunReply::Together(TogetherReply::Members(replies))) => replies,
        Ok(RunReply::Failed(why)) => return failed(records, Outcome::RunFailed, &why),
        Ok(other) => return failed(records, Outcome::RunFailed, &format!("unexpected reply to a co-run: {other:?}")),
        Err(Fault::CannotStart { why }) => return Err(why),
        Err(fault) => return failed(records, fault_outcome(&fault, Outcome::RunFailed), &format!("run: {fault}")),
    };
    // Times next to a member that did not run are not those of this combination.
    let lost = replies.iter().zip(&records).find_map(|(reply, record)| match reply {
        MemberReply::Shared(..) => None,
        MemberReply::WrongResult(_) => Some(format!("the concurrent operator {} gave a wrong result", record.op_text)),
        MemberReply::Failed(why) => Some(format!("the concurrent operator {} failed: {why}", record.op_text)),
    });
    for (reply, record) in replies.iter().zip(&mut records) {
        fill_member(record, reply, lost.as_deref(), is_uncontrolled).map_err(|error| error.to_string())?;
    }
    Ok(records)
}

fn fill_member(
    record: &mut Record,
    reply: &MemberReply,
    lost: Option<&str>,
    is_uncontrolled: bool,
) -> Result<(), RowError> {
    match (reply, lost) {
        (MemberReply::WrongResult(check), _) => record::wrong_result(record, check),
        (MemberReply::Failed(why), _) => mark_failed(record, Outcome::RunFailed, why.clone()),
        (MemberReply::Shared(..), Some(why)) => mark_failed(record, Outcome::RunFailed, why.to_owned()),
        (MemberReply::Shared(shared, check), None) => {
            describe_measurement(record, &shared.beside)?;
            // The CPU time of a process is that of all its members. Only a member with a single
            // thread has a time of its own.
            let own = Some(shared.beside.thread_cpu_time_ns).filter(|time| record.threads == Some(1) && *time > 0.0);
            record.cpu_time_ns = own;
            describe_shared(record, shared)?;
            if let Some(check) = check {
                describe_check(record, check);
            }
            if is_uncontrolled {
                let mut warnings: Vec<String> =
                    record.warnings.as_ref().map(Json::parse_as).transpose()?.unwrap_or_default();
                warnings.push("the share of the last-level cache was not controlled".to_owned());
                record.warnings = Some(Json::new(&warnings)?);
            }
        }
    }
    Ok(())
}

fn describe_shared(record: &mut Record, shared: &Shared) -> Result<(), RowError> {
    let mut counters: BTreeMap<String, f64> =
        record.counters.as_ref().map(Json::parse_as).transpose()?.unwrap_or_default();
    let mut origins: serde_json::Map<String, serde_json::Value> =
        record.counter_origins.as_ref().map(Json::parse_as).transpose()?.unwrap_or_default();
    let mut add = |name: &str, unit: &str, value: f64| {
        counters.insert(name.to_owned(), value);
        let origin = json!({ "source": "rounds", "native": name, "unit": unit, "coverage": "thread",
            "runs": shared.alone_ns.len(), "running_share": 1.0 });
        origins.insert(name.to_owned(), origin);
    };
    if let Some(alone_ns) = measure::statistics::median(&shared.alone_ns) {
        add("alone_ns", "ns", alone_ns);
    }
    if let Some(slowdown) = shared.slowdown_ratio() {
        add("slowdown", "fraction", slowdown.median);
        if let Some((low, high)) = slowdown.interval {
            add("slowdown_low", "fraction", low);
            add("slowdown_high", "fraction", high);
        }
    }
    record.counters = Some(Json::new(&counters)?);
    record.counter_origins = Some(Json::new(&origins)?);
    Ok(())
}
