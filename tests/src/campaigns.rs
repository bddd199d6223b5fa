//! Runs a whole campaign on given artifacts.

use bench::{Bench, Build};
use datasets::{Record, RowError};
use engine::campaign::collect::{CampaignCallbacks, claim_all};
use engine::campaign::graphs::LoadedModels;
use engine::campaign::{
    Attempt, Bases, Campaign, Config, Outcomes, Settings, Sweep, collect_attempts, plan_attempts, planned_tasks,
};
use job::BuildJob;
use job::revision::Revisions;
use measure::affinity;
use std::collections::BTreeSet;
use targets::Target;

pub fn given(builds: impl IntoIterator<Item = Build>) -> impl FnMut(&BuildJob) -> Option<Build> {
    let mut builds = builds.into_iter();
    move |_| Some(builds.next().expect("a build is given for each draw"))
}

pub fn config(task: &str, sampler: &str, schedules: usize, run_seconds: f64) -> Config {
    let text = format!(
        "models = [{{ source = 'simple', name = '''{task}''' }}]\n\
         threads = [1]\nsamplers = ['{sampler}']\nschedules = {schedules}\n\
         measure = {{ visits = 1, warm_up_time_ns = 0, samples_min = 1, samples_max = 2, sampling_time_min_ns = 0, \
         time_budget_ns = 0, time_limit_ns = 1 }}\n\
         counters = {{ backend = 'none' }}\nlimits = {{ run_seconds = {run_seconds:?}, build_batch = 3 }}"
    );
    let raw: Settings = toml::from_str(&text).expect("the configuration parses");
    raw.check(1).expect("the configuration makes sense")
}

/// Runs a campaign with real workers; returns the records in the order of the attempts.
pub fn run(config: &Config, target: &Target, bench: &mut dyn Bench) -> (Outcomes, Vec<Record>) {
    let tasks = planned_tasks(config, &LoadedModels::default()).expect("the model is known");
    let cpus = affinity::allowed_cpus().expect("the system tells the CPUs");
    let base = Record {
        run_id: "0123456789abcdef".to_owned(),
        host: "bench".to_owned(),
        host_class: "bench".to_owned(),
        program_version: "0".to_owned(),
        ..Record::default()
    };
    let revisions = Revisions::embedded_table().clone();
    let bases = Bases { library: base.clone(), compiled: base, revisions };
    let planned = plan_attempts(&tasks, &[], target, config, &bases, &cpus, 0).expect("the attempts can be described");
    let mut records = Vec::new();
    let mut keep = |record: &Record| -> Result<(), RowError> {
        record.check()?;
        records.push(record.clone());
        Ok(())
    };
    let mut callbacks =
        CampaignCallbacks { sink: &mut keep, listener: &mut |_| (), should_stop: &|| false, claim: &mut claim_all };
    let campaign = Campaign { tasks: &tasks, modules: &[], target, config };
    let outcomes = collect_attempts(&mut Sweep::new(planned.clone()), &campaign, bench, &mut callbacks)
        .expect("the records are sound");
    let place = |record: &Record| planned.iter().position(|attempt: &Attempt| attempt.key == record.key);
    records.sort_by_key(place);
    let places: BTreeSet<usize> = records.iter().map(|record| place(record).expect("it was planned")).collect();
    assert_eq!(places.len(), records.len(), "no attempt has two records");
    (outcomes, records)
}

pub fn format_outcomes(records: &[Record]) -> String {
    let line = |record: &Record| {
        let reason = record.reason.as_deref().unwrap_or("-").lines().next().unwrap_or_default();
        format!("{}: {reason}\n", record.outcome.name())
    };
    records.iter().map(line).collect()
}
