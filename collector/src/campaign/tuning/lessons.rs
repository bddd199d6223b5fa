//! What a store teaches before the first trial: records of tasks that are not searched now, of other hosts, of other code. None of
//! them tells a time that would be found here, but what schedules gain over the default one is alike.

use super::Search;
use super::of_task::Told;
use datasets::{CacheState, Outcome, Record, ScheduleSource, Source};
use job::space::Schedule;
use job::target::Target;
use models::Task;
use search::{Problem, features};
use std::collections::{BTreeMap, HashSet};

/// Lessons that one search hears at most, and those of one task among them: trees over more take longer than they are worth.
const MOST: usize = 256;
const MOST_OF_TASK: usize = 64;

/// Times of schedules of one task, measured alike.
#[derive(Default)]
struct Group {
    task: Option<Task>,
    default_ns: Option<f64>,
    /// By the hashes of schedules.
    times: BTreeMap<String, (Schedule, f64)>,
}

/// Records of others as they are read.
pub struct Lessons {
    kinds: HashSet<String>,
    target: String,
    /// What searches hear of as their own.
    own: HashSet<Told>,
    groups: BTreeMap<Told, Group>,
}

impl Lessons {
    /// For these searches, for this target.
    pub fn new(searches: &[Search], target: &Target) -> Lessons {
        let kinds = searches.iter().map(|search| search.kind().to_owned()).collect();
        let own = searches.iter().map(Search::told_by).collect();
        Lessons { kinds, target: target.kind.name().to_owned(), own, groups: BTreeMap::new() }
    }

    /// Takes a record, where it can teach anything.
    pub fn take(&mut self, record: &Record) {
        let is_told = record.outcome == Outcome::Ok
            && record.source == Source::Measured
            && record.is_alone()
            && record.symbolic_task.is_none()
            && self.kinds.contains(&record.op_kind)
            && record.target.name() == self.target;
        let known = (record.schedule.as_ref(), record.schedule_hash.as_ref(), record.upper_end_ns(), record.threads);
        let (Some(schedule), Some(hash), Some(ns), Some(threads)) = known else { return };
        let Ok(schedule @ Schedule::Template { .. }) = Schedule::from_json(schedule.text()) else { return };
        if !is_told || threads < 1 {
            return;
        }
        let is_cold = record.cache_state == Some(CacheState::Cold);
        let code = record.code_revision.clone().unwrap_or_default();
        let ground = (record.task_hash.clone(), threads, is_cold, record.host_class.clone(), code);
        if self.own.contains(&ground) {
            return;
        }
        let group = self.groups.entry(ground).or_default();
        if record.schedule_source == Some(ScheduleSource::Default) {
            group.default_ns = Some(ns);
        }
        if group.task.is_none() {
            group.task = record.task.as_ref().and_then(|task| task.to().ok());
        }
        group.times.insert(hash.clone(), (schedule, ns));
    }

    /// Teaches each search of its kind of operator, those of the most similar tasks first; says how many lessons there were.
    pub(super) fn teach(&self, searches: &mut [Search], target: &Target) -> usize {
        let problems: Vec<(&Told, &Group, Problem)> = self
            .groups
            .iter()
            .filter_map(|(ground, group)| {
                let threads = usize::try_from(ground.1).ok()?;
                Some((ground, group, Problem::elsewhere(group.task.as_ref()?, target, threads)?))
            })
            .collect();
        searches.iter_mut().map(|search| teach(search, &problems)).sum()
    }
}

fn teach(search: &mut Search, problems: &[(&Told, &Group, Problem)]) -> usize {
    let own = sizes(search.problem());
    let is_cold = search.cache_state() == CacheState::Cold;
    let distance = |problem: &Problem| {
        let other = sizes(problem);
        own.iter().map(|(name, size)| (size - other.get(name).unwrap_or(&0.0)).powi(2)).sum::<f64>()
    };
    let kind = search.kind().to_owned();
    let alike = problems.iter().filter(|(ground, group, _)| {
        ground.2 == is_cold && group.task.as_ref().is_some_and(|task| task.kind() == kind)
    });
    let mut alike: Vec<(f64, &(&Told, &Group, Problem))> = alike.map(|one| (distance(&one.2), one)).collect();
    alike.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut lessons = 0;
    for (_, (_, group, problem)) in alike {
        let Some(default_ns) = group.default_ns else { continue };
        for (schedule, ns) in group.times.values().take(MOST_OF_TASK.min(MOST - lessons)) {
            search.learn(problem, schedule, None, ns / default_ns);
            lessons += 1;
        }
        if lessons >= MOST {
            break;
        }
    }
    lessons
}

/// What tells how similar tasks are.
fn sizes(problem: &Problem) -> BTreeMap<String, f64> {
    features::of_problem(problem)
}
