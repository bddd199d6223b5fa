//! Prior knowledge for a search before its first trial: records of other tasks, hosts, versions and plans. Their
//! absolute times do not apply to this machine, but the gain of a schedule over the default one is similar. Times are
//! compared only between records that differ in nothing but the schedule.

use super::{Search, TuningError};
use datasets::{CacheState, Key, Outcome, Record, ScheduleSource, Source};
use job::space::Schedule;
use models::Task;
use search::{Problem, features};
use std::collections::{BTreeMap, HashSet};
use targets::Target;

/// Largest number of recorded measurements (lessons) that one search learns from; more cost more time than they save.
const MAX_LESSONS: usize = 256;
const MAX_LESSONS_OF_TASK: usize = 64;

/// Times of schedules of one task whose experiments differ in nothing but the schedule.
struct LessonGroup {
    task: Option<Task>,
    threads: usize,
    cache_state: CacheState,
    default_ns: Option<f64>,
    /// Schedules and their times, by the hashes of schedules.
    times: BTreeMap<String, (Schedule, f64)>,
}

/// Records from which searches learn, grouped as they are read.
pub struct Lessons {
    kinds: HashSet<String>,
    target: String,
    /// Experiment keys without the schedule, one per search; their records are trials, not lessons.
    own: HashSet<Key>,
    groups: BTreeMap<Key, LessonGroup>,
}

impl Lessons {
    /// Creates an empty collection of lessons for these searches and their target.
    pub fn new(searches: &[Search], target: &Target) -> Result<Lessons, TuningError> {
        let kinds = searches.iter().map(|search| search.operator_kind().to_owned()).collect();
        let own = searches.iter().map(Search::shared_key).collect::<Result<HashSet<Key>, TuningError>>()?;
        Ok(Lessons { kinds, target: target.kind.code_name().to_owned(), own, groups: BTreeMap::new() })
    }

    /// Adds a record if it is suitable as a lesson.
    pub fn add_record(&mut self, record: &Record) {
        let is_told = record.outcome == Outcome::Ok
            && record.source == Source::Measured
            && record.is_alone()
            && record.symbolic_task.is_none()
            && self.kinds.contains(&record.op_kind)
            && record.target.name() == self.target;
        let threads = record.threads.and_then(|threads| usize::try_from(threads).ok()).filter(|threads| *threads > 0);
        let known = (record.schedule.as_ref(), record.schedule_hash.as_ref(), record.upper_end_ns(), threads);
        let (true, (Some(schedule), Some(hash), Some(ns), Some(threads))) = (is_told, known) else { return };
        let Ok(schedule @ Schedule::Template { .. }) = Schedule::from_json(schedule.as_text()) else { return };
        let ground = record.ground_key();
        if self.own.contains(&ground) {
            return;
        }
        let cache_state = record.cache_state.unwrap_or_default();
        let empty = || LessonGroup { task: None, threads, cache_state, default_ns: None, times: BTreeMap::new() };
        let group = self.groups.entry(ground).or_insert_with(empty);
        if record.schedule_source == Some(ScheduleSource::Default) {
            group.default_ns = Some(ns);
        }
        if group.task.is_none() {
            group.task = record.task.as_ref().and_then(|task| task.parse_as().ok());
        }
        group.times.insert(hash.clone(), (schedule, ns));
    }

    /// Passes lessons to searches of the same operator kind, most similar tasks first. Returns the number of lessons.
    pub(super) fn teach_searches(&self, searches: &mut [Search], target: &Target) -> usize {
        let problems: Vec<(&LessonGroup, Problem)> = self
            .groups
            .values()
            .filter_map(|group| Some((group, Problem::for_observations(group.task.as_ref()?, target, group.threads)?)))
            .collect();
        searches.iter_mut().map(|search| teach_search(search, &problems)).sum()
    }
}

fn teach_search(search: &mut Search, problems: &[(&LessonGroup, Problem)]) -> usize {
    let own = size_features(search.problem());
    let distance = |problem: &Problem| {
        let other = size_features(problem);
        own.iter().map(|(name, size)| (size - other.get(name).unwrap_or(&0.0)).powi(2)).sum::<f64>()
    };
    let kind = search.operator_kind().to_owned();
    let alike = problems.iter().filter(|(group, _)| {
        group.cache_state == search.cache_state() && group.task.as_ref().is_some_and(|task| task.anchor_kind() == kind)
    });
    let mut alike: Vec<(f64, &(&LessonGroup, Problem))> = alike.map(|one| (distance(&one.1), one)).collect();
    alike.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut lessons = 0;
    for (_, (group, problem)) in alike {
        let Some(default_ns) = group.default_ns else { continue };
        for (schedule, ns) in group.times.values().take(MAX_LESSONS_OF_TASK.min(MAX_LESSONS - lessons)) {
            search.learn_from_other(problem, schedule, None, ns / default_ns);
            lessons += 1;
        }
        if lessons >= MAX_LESSONS {
            break;
        }
    }
    lessons
}

/// Returns the size features of a task, whose squared distance measures the similarity of tasks.
fn size_features(problem: &Problem) -> BTreeMap<String, f64> {
    features::problem_features(problem)
}
