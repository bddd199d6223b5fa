//! Measures the results of a search in the network, that is, while the whole model runs. The winners of the search and
//! the schedules that are fastest alone are interleaved with the default schedules and with the fastest schedules of
//! other algorithms. The resulting records determine the best schedules of the models from then on.

use crate::Result;
use crate::campaign::graphs::LoadedModels;
use crate::campaign::{Config, ModelRequest};
use crate::input_files::InputFiles;
use crate::network::{self, Best, BuiltModel};
use crate::observer::Observer;
use crate::prepared::{PreparedModel, build_failure, for_each_thread_count, refuse_sweeps};
use crate::record_keeping::RecordKeeper;
use crate::report::learning::Learning;
use crate::runs::{PrecedingCampaign, Runs};
use datasets::{CacheState, Outcome, Peaks, Record, ScheduleSource};
use job::space::Schedule;
use job::{NetworkJob, RunReply};
use measure::Method;
use models::Task;
use profile::Profile;
use report::{format_count, format_duration};
use serde::Serialize;
use std::path::Path;
use std::rc::Rc;

const ROUNDS: usize = 5;
/// Largest number of listed tasks whose fastest schedule alone is not the fastest in the network.
const MAX_LISTED: usize = 5;

/// Times of one model with the default schedules and with the best ones.
#[derive(Serialize)]
pub struct NetworkTimes {
    model: String,
    batch: Option<i64>,
    threads: usize,
    tasks: usize,
    /// Sum of the operators' times in the network with the default schedules.
    default_ns: f64,
    /// Sum of the operators' times in the network with the schedules that are fastest alone.
    alone_ns: f64,
    /// Sum of the operators' times in the network with the schedules that are fastest in the network.
    best_ns: f64,
    /// Tasks whose fastest schedule alone differs from that in the network, sorted by influence.
    changed: Vec<ChangedSchedule>,
}

#[derive(Serialize)]
struct ChangedSchedule {
    task: String,
    count: usize,
    alone_ns: f64,
    best_ns: f64,
    is_default: bool,
}

/// Returns whether a campaign searches whole models that run on this machine, so that they can be timed here.
pub fn is_requested(config: &Config, is_shard: bool, is_elsewhere: bool) -> bool {
    config.tune.as_ref().is_some_and(|tune| tune.in_place)
        && config.target_kind().runs_on_cpus()
        && !is_shard
        && !is_elsewhere
        && refuse_sweeps(config, "").is_ok()
}

/// Times every model on every number of threads. A failure is reported and does not fail the campaign.
pub fn time_all(
    config: &Config,
    loaded: &LoadedModels,
    store: &Path,
    preceding: &PrecedingCampaign,
    searches: &[Learning],
    observer: &Rc<dyn Observer>,
) -> Vec<NetworkTimes> {
    let models = config.models.iter().filter(|model| model.source != "simple");
    models.flat_map(|model| time_model((model, loaded), (config, preceding), store, searches, observer)).collect()
}

fn time_model(
    (model, loaded): (&ModelRequest, &LoadedModels),
    (config, preceding): (&Config, &PrecedingCampaign),
    store: &Path,
    searches: &[Learning],
    observer: &Rc<dyn Observer>,
) -> Vec<NetworkTimes> {
    let seen = for_each_thread_count(model, loaded, (config, preceding), false, observer, |prepared, _| {
        time_schedules(prepared, store, searches)
    });
    let report_failure = |(threads, seen): (usize, Result<Option<NetworkTimes>>)| match seen {
        Ok(seen) => seen,
        Err(failure) => {
            let (on_threads, why) = (format_count(threads, "thread"), failure.message());
            observer.note(format!("{} on {on_threads} was not timed in the network: {why}", model.label()));
            None
        }
    };
    seen.into_iter().filter_map(report_failure).collect()
}

struct NetworkVariant {
    schedules: Vec<Schedule>,
    keeper: RecordKeeper,
    job: NetworkJob,
    made: BuiltModel,
    /// Profile merged over all rounds so far, and peak memory in bytes.
    seen: Option<(Profile, u64)>,
}

fn found_schedule<'a>(searches: &'a [Learning], task: &Task, threads: usize) -> Option<&'a Schedule> {
    let (hash, warm) = (task.hash(), CacheState::Warm);
    let own = |one: &&Learning| one.task_hash == hash && one.threads == threads && one.cache_state == warm;
    searches.iter().find(own)?.schedule.as_ref()
}

/// Times candidate schedules in the network; None if there is only one task, or if all alternatives were timed before.
fn time_schedules(prepared: &mut PreparedModel, store: &Path, searches: &[Learning]) -> Result<Option<NetworkTimes>> {
    let known = prepared.known_schedules(store)?;
    let threads = prepared.runs.cpus.len();
    let of_task = |task: &Task| known.candidates(task, found_schedule(searches, task, threads));
    let candidates: Vec<Vec<Schedule>> = prepared.tasks().iter().map(|one| of_task(&one.task)).collect();
    let ways = candidates.iter().map(Vec::len).max().unwrap_or(0);
    let mut several = prepared.tasks().iter().zip(&candidates).filter(|(_, own)| own.len() > 1);
    if prepared.tasks().len() < 2 || several.all(|(one, own)| known.is_decided(&one.task, own)) {
        return Ok(None);
    }
    let way = |number: usize| {
        let of_task = |own: &Vec<Schedule>| own.get(number).unwrap_or(&own[0]).clone();
        build_variant(number, candidates.iter().map(of_task).collect(), prepared, store)
    };
    let mut ways = (0..ways).map(way).collect::<Result<Vec<NetworkVariant>>>()?;
    for round in 0..ROUNDS {
        for place in 0..ways.len() {
            prepared.runs.check_signal()?;
            let turn = (round + place) % ways.len();
            ways[turn].profile_round(prepared)?;
        }
    }
    let mut times: Vec<Vec<(f64, Schedule)>> = vec![Vec::new(); candidates.len()];
    for (number, way) in ways.into_iter().enumerate() {
        way.store_records(|task| number == 0 || candidates[task].len() > number, &mut times)?;
    }
    let now = prepared.known_schedules(store)?;
    Ok(Some(summarise_times(prepared, &times, &now)))
}

fn build_variant(
    number: usize,
    schedules: Vec<Schedule>,
    prepared: &mut PreparedModel,
    store: &Path,
) -> Result<NetworkVariant> {
    prepared.runs.check_signal()?;
    let name = format!("way-{}-{number}", prepared.runs.cpus.len());
    let folder = prepared.new_folder(&name)?;
    let config = &prepared.runs.config;
    let method = Method::Sample(config.measure.clone());
    let job = prepared.runs.create_job(prepared.engine(), folder.clone(), &name, method, config.counters.clone());
    let job = NetworkJob { profile: Some(network::in_network::round_plan()), ..job };
    let source = if number == 0 { ScheduleSource::Default } else { ScheduleSource::Template };
    let keeper = RecordKeeper::begin_operators(store, prepared, (&schedules, source), &job, &InputFiles::default())?;
    let hashes: Vec<String> = prepared.tasks().iter().map(|one| one.task.hash()).collect();
    let choose = |task: &Task| {
        let place = hashes.iter().position(|hash| *hash == task.hash()).expect("the task belongs to the model");
        schedules[place].clone()
    };
    let made = prepared.build_into(&folder, &choose).map_err(build_failure)?;
    Ok(NetworkVariant { schedules, keeper, job, made, seen: None })
}

impl NetworkVariant {
    fn profile_round(&mut self, prepared: &mut PreparedModel) -> Result<()> {
        let reply = prepared.runs.run_visits(&self.job);
        let profiled = match reply {
            Ok(RunReply::Profiled(profiled)) => *profiled,
            other => return Runs::reply_times(other).map(drop),
        };
        let profile = prepared.complete_profile(profiled.profile, &self.made, &Peaks::default())?;
        match &mut self.seen {
            // Only the spans of later rounds are added, because the operators do not change.
            Some((seen, _)) => seen.spans.extend(profile.spans),
            None => self.seen = Some((profile, profiled.peak_memory_bytes)),
        }
        Ok(())
    }

    /// Stores the records of the tasks selected by `is_wanted`, and appends their times to `times`.
    fn store_records(self, is_wanted: impl Fn(usize) -> bool, times: &mut [Vec<(f64, Schedule)>]) -> Result<()> {
        let NetworkVariant { schedules, keeper, made, seen, .. } = self;
        let Some((profile, peak_memory_bytes)) = seen else { return Ok(()) };
        let places = (0..schedules.len()).filter(|task| is_wanted(*task));
        keeper.store_some(places, |task, record: &mut Record| {
            network::in_network::fill_record(
                record,
                &profile,
                (&schedules[task], &made.artifacts[task]),
                peak_memory_bytes,
            )?;
            if let (Outcome::Ok, Some(ns)) = (record.outcome, record.median_ns) {
                times[task].push((ns, schedules[task].clone()));
            }
            Ok(())
        })?;
        Ok(())
    }
}

fn summarise_times(prepared: &PreparedModel, times: &[Vec<(f64, Schedule)>], best: &Best) -> NetworkTimes {
    let mut sums = [0.0; 3];
    let mut changed = Vec::new();
    for (one, times) in prepared.tasks().iter().zip(times) {
        // A task that is never called has no time.
        let Some((default_ns, default)) = times.first() else { continue };
        let of = |schedule: Option<&Schedule>| {
            let wanted = schedule.unwrap_or(default);
            times.iter().find(|(_, schedule)| schedule == wanted).map_or(*default_ns, |(ns, _)| *ns)
        };
        let count = one.places.len();
        let (alone, chosen) = (best.fastest_alone(&one.task), best.best_schedule(&one.task));
        let alone_ns = of(alone);
        let best_ns = of(chosen);
        for (sum, ns) in sums.iter_mut().zip([*default_ns, alone_ns, best_ns]) {
            *sum += ns * count as f64;
        }
        if alone != chosen {
            let (task, is_default) = (one.task.describe(), chosen == Some(default));
            changed.push(ChangedSchedule { task, count, alone_ns, best_ns, is_default });
        }
    }
    let gain = |one: &ChangedSchedule| (one.alone_ns - one.best_ns) * one.count as f64;
    changed.sort_by(|one, other| gain(other).total_cmp(&gain(one)));
    let [default_ns, alone_ns, best_ns] = sums;
    NetworkTimes {
        model: prepared.request.label(),
        batch: prepared.request.batch,
        threads: prepared.runs.cpus.len(),
        tasks: prepared.tasks().len(),
        default_ns,
        alone_ns,
        best_ns,
        changed,
    }
}

impl NetworkTimes {
    /// Formats the results as text.
    pub fn describe(&self) -> String {
        let NetworkTimes { model, threads, tasks, default_ns, alone_ns, best_ns, changed, .. } = self;
        let [by_default, alone, best] = [default_ns, alone_ns, best_ns].map(|ns| format_duration(*ns));
        let mut text = format!(
            "{model}, {}, in the network: {by_default} with default schedules, {alone} with those fastest in \
             isolation, {best} with those fastest in the network",
            format_count(*threads, "thread")
        );
        if !changed.is_empty() {
            text.push_str(&format!(
                "; for {} of {tasks} tasks, the fastest schedule in the network is not the fastest in isolation",
                changed.len()
            ));
        }
        for one in changed.iter().take(MAX_LISTED) {
            let ChangedSchedule { task, count, alone_ns, best_ns, is_default } = one;
            let by = if *is_default { "the default schedule" } else { "another schedule" };
            let [alone, best] = [alone_ns, best_ns].map(|ns| format_duration(*ns));
            text.push_str(&format!("\n  {count} × {task}: {alone}, with {by} {best}"));
        }
        text
    }
}
