//! Records of a model's operators, timed in the network: one row per task, apart from rows of tasks measured alone.

use super::record::Attempt;
use crate::campaign::PlannedTask;
use crate::campaign::record::{self, CounterOrigin};
use datasets::{CacheState, Json, Outcome, Record, ScheduleSource};
use job::Artifact;
use job::revision::Revisions;
use job::space::Schedule;
use models::TaskUse;
use profile::Profile;
use profile::data::{Counter, Kind, MemoryEvent, Pool, Span};
use std::collections::BTreeMap;

/// Largest number of samples that one record stores; of more samples, an evenly spaced subset is kept.
const SAMPLES_MAX: usize = 256;

/// Profiling time of one variant per round, when several variants are interleaved.
const ROUND_TIME_NS: u64 = 300_000_000;

/// Returns the profiling plan for one round of one variant.
pub fn round_plan() -> profile::Plan {
    profile::Plan::new(profile::ProfileSchedule::default(), ROUND_TIME_NS)
}

type CallTimes<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Returns one record per task, with the columns known before the run. `network` is the model's record.
pub fn task_records(
    attempt: &Attempt<'_>,
    network: &Record,
    plan: &profile::Plan,
    base: &Record,
) -> CallTimes<Vec<Record>> {
    let tasks = attempt.plan.tasks.iter().zip(attempt.schedules);
    tasks.map(|(one, schedule)| task_record(attempt, (one, schedule), network, plan, base)).collect()
}

fn task_record(
    attempt: &Attempt<'_>,
    (one, schedule): (&TaskUse, &Schedule),
    network: &Record,
    plan: &profile::Plan,
    base: &Record,
) -> CallTimes<Record> {
    let planned = PlannedTask {
        task: one.task.clone(),
        json: serde_json::to_string(&one.task)?,
        model: attempt.model.clone(),
        places: one.places.clone(),
        counts: Vec::new(),
        partner: None,
        symbolic: None,
        bound_because: None,
    };
    let source: ScheduleSource = attempt.source;
    let mut record = Record {
        network_hash: Some(network.task_hash.clone()),
        code_revision: Some(
            Revisions::embedded_table().revision_of(&one.task, attempt.target.kind, schedule).to_string(),
        ),
        schedule_hash: Some(schedule.stable_hash()),
        schedule_source: Some(source),
        schedule: Some(Json::parse(&schedule.to_json())?),
        cache_state: Some(CacheState::Warm),
        plan: Some(Json::new(plan)?),
        started_at_us: record::now_us(),
        ..record::task_record(&planned, base)?
    };
    record::describe_cpus(&mut record, attempt.cpus)?;
    record.key = record.experiment_key();
    Ok(record)
}

/// Fills a record with a task's times over all calls. `schedule` and `artifact` describe its code.
pub fn fill_record(
    record: &mut Record,
    profile: &Profile,
    (schedule, artifact): (&Schedule, &Artifact),
    peak_memory_bytes: u64,
) -> CallTimes<()> {
    record::describe_artifact(record, schedule, artifact)?;
    let is_own: Vec<bool> =
        profile.operators.iter().map(|operator| operator.task.as_ref() == Some(&record.task_hash)).collect();
    let is_call = |span: &&Span| span.kind == Kind::Operator && is_own[span.operator as usize];
    let spans = || profile.spans.iter().filter(is_call);
    let samples: Vec<f64> = spans().map(|span| span.duration_ns as f64).collect();
    if !capture::times::fill_times(record, &samples, SAMPLES_MAX) {
        record::mark_failed(
            record,
            Outcome::Skipped,
            "the operator is never called, because its result is computed when the model is built".to_owned(),
        );
        return Ok(());
    }
    record.outcome = Outcome::Ok;
    record.batch_size = Some(1);
    record.peak_memory_bytes = i64::try_from(peak_memory_bytes).ok();
    let is_of_it = |event: &&MemoryEvent| {
        let span = event.span.and_then(|span| profile.spans.get(span as usize));
        event.pool == Pool::Workspace && span.is_some_and(|span| is_own[span.operator as usize])
    };
    let workspace = profile.memory.iter().filter(is_of_it).map(|event| event.live_bytes).max();
    record.workspace_bytes = workspace.and_then(|bytes| i64::try_from(bytes).ok());
    describe_counters(record, profile, &is_own)
}

fn describe_counters(record: &mut Record, profile: &Profile, is_own: &[bool]) -> CallTimes<()> {
    let mut sums: BTreeMap<u32, (f64, f64, u64)> = BTreeMap::new();
    let is_own = |span: u32| {
        let span = &profile.spans[span as usize];
        span.kind == Kind::Operator && is_own[span.operator as usize]
    };
    for count in profile.counts.iter().filter(|count| is_own(count.span)) {
        let sum = sums.entry(count.counter).or_default();
        *sum = (sum.0 + count.value as f64, sum.1 + count.running_ratio, sum.2 + 1);
    }
    let named = |(counter, (sum, ratios, runs)): (&u32, &(f64, f64, u64))| {
        let counter = &profile.counters[*counter as usize];
        let running_share = ratios / *runs as f64;
        (counter.name.clone(), (sum / *runs as f64, counter_origin(counter, *runs, running_share)))
    };
    let counted: BTreeMap<String, (f64, CounterOrigin<'_>)> = sums.iter().map(named).collect();
    let refused: BTreeMap<&str, &str> = profile
        .refusals
        .iter()
        .filter(|refusal| !counted.contains_key(&refusal.counter))
        .map(|refusal| (refusal.counter.as_str(), refusal.why.as_str()))
        .collect();
    record.counters_refused = (!refused.is_empty()).then(|| Json::new(&refused)).transpose()?;
    if !counted.is_empty() {
        let values: BTreeMap<&String, f64> = counted.iter().map(|(name, (value, _))| (name, *value)).collect();
        let origins: BTreeMap<&String, &CounterOrigin<'_>> =
            counted.iter().map(|(name, (_, origin))| (name, origin)).collect();
        record.counters = Some(Json::new(&values)?);
        record.counter_origins = Some(Json::new(&origins)?);
        let sources: std::collections::BTreeSet<&str> = counted.values().map(|(_, origin)| origin.source).collect();
        record.counter_source = Some(sources.into_iter().collect::<Vec<_>>().join("+"));
    }
    Ok(())
}

fn counter_origin(counter: &Counter, runs: u64, running_share: f64) -> CounterOrigin<'_> {
    let Counter { source, native, unit, coverage, .. } = counter;
    CounterOrigin { source, native, unit, coverage, runs, running_share }
}
