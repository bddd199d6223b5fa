//! The fastest correct schedule of each task according to records, and the reason why some tasks have none.
//!
//! [`datasets::fastest`] ranks the attempts. Medians with wide intervals are ignored.
//!
//! A schedule that is fastest alone, with its constants in a near cache, may not be the fastest when constants come
//! from memory. If schedules were timed interleaved in the network, the best schedule is the fastest of these,
//! provided that the schedule that is fastest alone was also timed there.

use super::default_schedule;
use datasets::{CacheState, Json, Key, Likeness, Outcome, Record, Source, find_fastest, stands_for};
use job::revision::Revisions;
use job::space::{Schedule, task_space};
use models::{Plan, Task};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use targets::Target;

/// Reason why a task has the default schedule. The variants are ordered: later ones are closer to a usable schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DefaultReason {
    /// No record of a correct time with warm caches exists for this target and number of threads.
    NotMeasured,
    /// The interval of the measured median is too wide.
    Disturbed,
    OtherHost,
    /// The task was measured only with other versions or another clock policy.
    OtherVersions,
    /// The task was measured, but this program generates different code for the schedule.
    OtherCode,
    /// The schedule space does not contain the measured schedule any more.
    Gone,
}

impl DefaultReason {
    pub fn reason_text(self) -> &'static str {
        match self {
            DefaultReason::NotMeasured => "not measured for this target and number of threads",
            DefaultReason::Disturbed => "measured with too much noise",
            DefaultReason::OtherHost => "measured on other hosts only",
            DefaultReason::OtherVersions => "measured with other versions only",
            DefaultReason::OtherCode => "measured with other code only",
            DefaultReason::Gone => "measured with schedules that this program no longer has",
        }
    }
}

/// Largest half-width of an interval, relative to its median; medians with wider intervals are ignored.
const MAX_HALF_WIDTH: f64 = 0.25;

/// A schedule that takes longer alone than the fastest one by more than this factor is not timed in the network.
const MAX_SLOWDOWN_ALONE: f64 = 1.6;

/// Axis that selects the algorithm of an operator. The algorithm determines the size of the operator's constants.
const ALGORITHM: &str = "algorithm";

#[derive(Clone, Debug)]
struct KnownSchedules {
    task: Task,
    alone: Attempts,
    why: DefaultReason,
    /// Attempts that were timed interleaved in the network.
    in_place: Attempts,
}

#[derive(Clone, Debug, Default)]
struct Attempts {
    records: Vec<Record>,
    schedules: HashMap<Key, Schedule>,
}

impl Attempts {
    fn push(&mut self, record: &Record, schedule: Schedule) {
        self.schedules.insert(record.key, schedule);
        self.records.push(record.clone().without_long_columns());
    }

    fn fastest_where(&self, is_one: impl Fn(&Schedule) -> bool) -> Option<(f64, &Schedule)> {
        let some = self.records.iter().filter(|record| self.schedules.get(&record.key).is_some_and(&is_one));
        let found = find_fastest(some)?;
        Some((found.known_ns, self.schedules.get(&found.record.key)?))
    }

    fn fastest_attempt(&self) -> Option<(&Record, &Schedule)> {
        let record = find_fastest(&self.records)?.record;
        Some((record, self.schedules.get(&record.key)?))
    }

    fn has_schedule(&self, schedule: &Schedule) -> bool {
        self.schedules.values().any(|one| one == schedule)
    }
}

impl KnownSchedules {
    fn fastest_alone(&self) -> Option<&Schedule> {
        self.alone.fastest_attempt().map(|(_, schedule)| schedule)
    }

    /// Returns the fastest schedule in the network, or the fastest alone if the latter was not timed in the network.
    fn best_schedule(&self) -> Option<(&Record, &Schedule)> {
        let alone = self.alone.fastest_attempt()?;
        if self.in_place.has_schedule(alone.1) { self.in_place.fastest_attempt() } else { Some(alone) }
    }
}

/// Best schedules of a model's tasks for a target and number of threads, collected from records.
#[derive(Clone, Debug)]
pub struct Best {
    tasks: Vec<KnownSchedules>,
    places: HashMap<String, usize>,
    target: Target,
    threads: usize,
    /// Record with the columns of this machine and of the current library versions.
    now: Record,
    /// Whether measurements with other library versions and code revisions are used.
    all_versions: bool,
    left_out: usize,
    network: String,
    contest: String,
}

impl Best {
    /// Creates an empty collection. `now` is a record with the columns of this machine and its versions, `network` the
    /// hash of the model, and `contest` the profiling plan of schedules that are timed in the network.
    pub fn for_plan(
        plan: &Plan,
        (target, threads): (&Target, usize),
        (now, all_versions): (Record, bool),
        (network, contest): (&str, &Json),
    ) -> Best {
        let unknown = |task: &Task| KnownSchedules {
            task: task.clone(),
            alone: Attempts::default(),
            why: DefaultReason::NotMeasured,
            in_place: Attempts::default(),
        };
        Best {
            tasks: plan.tasks.iter().map(|one| unknown(&one.task)).collect(),
            places: plan.tasks.iter().enumerate().map(|(place, one)| (one.task.hash(), place)).collect(),
            target: target.clone(),
            threads,
            now,
            all_versions,
            left_out: 0,
            network: network.to_owned(),
            contest: contest.as_text().to_owned(),
        }
    }

    /// Adds a record, if it is a usable measurement of one of the model's tasks.
    pub fn add_record(&mut self, record: &Record) {
        let is_like_it = record.outcome == Outcome::Ok
            && record.source == Source::Measured
            && (record.is_alone() || self.is_contest_record(record))
            && record.cache_state == Some(CacheState::Warm)
            // Symbolic code differs from the code for one size.
            && record.symbolic_task.is_none()
            && record.target_text.as_ref() == Some(&self.target.text)
            && record.threads == i64::try_from(self.threads).ok();
        let Some(&place) = self.places.get(&record.task_hash).filter(|_| is_like_it) else { return };
        let Some(text) = record.schedule.as_ref().filter(|_| record.median_ns.is_some()) else { return };
        let found = self.usable_schedule(record, &self.tasks[place].task, text.as_text());
        self.left_out += usize::from(matches!(found, Err(DefaultReason::OtherVersions | DefaultReason::OtherCode)));
        let known = &mut self.tasks[place];
        match found {
            Ok(schedule) if record.is_alone() => known.alone.push(record, schedule),
            Ok(schedule) => known.in_place.push(record, schedule),
            Err(nearer) if record.is_alone() => known.why = known.why.max(nearer),
            Err(_) => {}
        }
    }

    /// Returns whether a record is an operator of this model, timed in the network interleaved with other variants.
    fn is_contest_record(&self, record: &Record) -> bool {
        record.network_hash.as_ref() == Some(&self.network)
            && record.co_run.is_none()
            && record.plan.as_ref().is_some_and(|plan| plan.as_text() == self.contest)
    }

    /// Returns a record's schedule if its time is valid for this program's code on this machine, else why it is not.
    fn usable_schedule(&self, record: &Record, task: &Task, schedule: &str) -> Result<Schedule, DefaultReason> {
        if record.uncertainty_within_visit().is_some_and(|uncertainty| uncertainty > MAX_HALF_WIDTH) {
            return Err(DefaultReason::Disturbed);
        }
        if record.host_class != self.now.host_class {
            return Err(DefaultReason::OtherHost);
        }
        if !self.all_versions && !stands_for(record, &self.now, Likeness::Conditions) {
            return Err(DefaultReason::OtherVersions);
        }
        let schedule = Schedule::from_json(schedule).map_err(|_| DefaultReason::Gone)?;
        if !self.space_contains(task, &schedule) {
            return Err(DefaultReason::Gone);
        }
        if self.all_versions || self.has_current_code(record, task, &schedule) {
            Ok(schedule)
        } else {
            Err(DefaultReason::OtherCode)
        }
    }

    fn has_current_code(&self, record: &Record, task: &Task, schedule: &Schedule) -> bool {
        record.code_revision.as_deref()
            == Some(&*Revisions::embedded_table().revision_of(task, self.target.kind, schedule))
    }

    fn space_contains(&self, task: &Task, schedule: &Schedule) -> bool {
        let Schedule::Template { knobs } = schedule else { return true };
        let space = task_space(task, &self.target.machine);
        space.foreign_knob(knobs).is_none() && space.allows_point(knobs)
    }

    /// Returns the best schedule of a task, if there is one.
    pub fn best_schedule(&self, task: &Task) -> Option<&Schedule> {
        self.tasks[*self.places.get(&task.hash())?].best_schedule().map(|(_, schedule)| schedule)
    }

    /// Returns the schedule of a task that is fastest alone, if there is one.
    pub fn fastest_alone(&self, task: &Task) -> Option<&Schedule> {
        self.tasks[*self.places.get(&task.hash())?].fastest_alone()
    }

    /// Returns whether all candidates of a task were timed interleaved in the network.
    pub fn is_decided(&self, task: &Task, candidates: &[Schedule]) -> bool {
        let known = self.places.get(&task.hash()).map(|place| &self.tasks[*place].in_place);
        known.is_some_and(|timed| candidates.iter().all(|one| timed.has_schedule(one)))
    }

    /// Returns the schedules to be timed in the network: the default one, the one that the search found (`found`), and
    /// for each algorithm the one that is fastest alone, which may come from other searches. Returns only the default
    /// if the search found nothing faster and the only alternative uses the same algorithm.
    pub fn candidates(&self, task: &Task, found: Option<&Schedule>) -> Vec<Schedule> {
        let mut candidates = vec![default_schedule(task, &self.target)];
        let known = self.places.get(&task.hash()).map(|place| &self.tasks[*place]);
        if let Some((known, (least_ns, alone))) =
            known.and_then(|known| Some((known, known.alone.fastest_where(|_| true)?)))
        {
            let algorithms: BTreeSet<String> = known.alone.schedules.values().map(algorithm_name).collect();
            let of_each =
                algorithms.iter().filter_map(|own| known.alone.fastest_where(|one| algorithm_name(one) == *own));
            let mut others: Vec<(f64, &Schedule)> =
                of_each.filter(|(ns, _)| *ns <= MAX_SLOWDOWN_ALONE * least_ns).collect();
            others.sort_by(|one, other| one.0.total_cmp(&other.0));
            for schedule in [alone].into_iter().chain(others.into_iter().map(|(_, schedule)| schedule)) {
                if !candidates.contains(schedule) {
                    candidates.push(schedule.clone());
                }
            }
        }
        match (&candidates[..], found) {
            ([default, other], Some(found)) if found == default && algorithm_name(other) == algorithm_name(default) => {
                candidates.truncate(1);
            }
            (_, Some(found)) if !candidates.contains(found) => candidates.push(found.clone()),
            _ => {}
        }
        candidates
    }

    /// Returns the best schedule of a task, or the default schedule if there is none.
    pub fn choose_schedule(&self, task: &Task) -> Schedule {
        self.best_schedule(task).cloned().unwrap_or_else(|| default_schedule(task, &self.target))
    }

    /// Returns the number of tasks with a measured best schedule.
    pub fn found_count(&self) -> usize {
        self.tasks.iter().filter(|known| known.fastest_alone().is_some()).count()
    }

    /// Returns the number of measurements ignored because of other library versions or code revisions.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Describes the versions of best schedules measured with other library versions or code; None if there are none.
    pub fn describe_other_versions(&self) -> Option<String> {
        let mut versions: BTreeMap<String, usize> = BTreeMap::new();
        for known in &self.tasks {
            let Some((record, schedule)) = known.best_schedule() else { continue };
            let is_of_now = stands_for(record, &self.now, Likeness::Conditions);
            if !is_of_now || !self.has_current_code(record, &known.task, schedule) {
                *versions.entry(record.versions_and_code()).or_default() += 1;
            }
        }
        let named: Vec<String> =
            versions.into_iter().map(|(versions, count)| format!("{count} with {versions}")).collect();
        (!named.is_empty())
            .then(|| format!("best schedules that were measured with other versions: {}", named.join("; ")))
    }

    /// Describes which tasks keep the default schedule, and why. Returns None if no task does.
    pub fn describe_lacking(&self) -> Option<String> {
        let mut whys: BTreeMap<DefaultReason, BTreeMap<String, usize>> = BTreeMap::new();
        for known in &self.tasks {
            if known.fastest_alone().is_none() {
                *whys.entry(known.why).or_default().entry(known.task.name()).or_default() += 1;
            }
        }
        let named = |names: &BTreeMap<String, usize>| {
            let times = |count: &usize| if *count > 1 { format!("{count} × ") } else { String::new() };
            names.iter().map(|(name, count)| format!("{}{name}", times(count))).collect::<Vec<_>>().join(", ")
        };
        let parts: Vec<String> =
            whys.iter().map(|(why, names)| format!("{} {}", named(names), why.reason_text())).collect();
        let (lacking, all) = (self.tasks.len() - self.found_count(), self.tasks.len());
        (lacking > 0).then(|| format!("{lacking} of {all} tasks keep the default schedule: {}", parts.join("; ")))
    }
}

/// Returns the algorithm of a schedule; empty if the operator has only one.
fn algorithm_name(schedule: &Schedule) -> String {
    match schedule {
        Schedule::Template { knobs } => knobs.0.get(ALGORITHM).map(ToString::to_string).unwrap_or_default(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use job::space::sample_points;
    use targets::llvm_target;

    fn known_to(half_ns: f64, record: Record) -> Record {
        Record { median_interval_ns: Some(half_ns), interval_covers: Some(datasets::Covers::Visits), ..record }
    }

    // The test fills one store in steps, and each step depends on the previous ones.
    #[allow(clippy::too_many_lines)]
    #[test]
    fn the_fastest_comparable_schedule_is_chosen() {
        let graph = zoo::simple::build_operator("dense:m=8,n=64,k=32").expect("an operator");
        let plan = models::plan_calls(&graph, models::Fuse::Epilogue).expect("tasks");
        let task = &plan.tasks[0].task;
        let target = llvm_target("generic", &[], 2);
        let schedules: Vec<Schedule> = sample_points(&task_space(task, &target.machine), 1, 5)
            .into_iter()
            .map(|knobs| Schedule::Template { knobs })
            .collect();
        let right = |median_ns: f64, schedule: &Schedule| Record {
            outcome: Outcome::Ok,
            source: Source::Measured,
            cache_state: Some(CacheState::Warm),
            target_text: Some(target.text.clone()),
            threads: Some(2),
            host_class: "here".to_owned(),
            tvm_version: Some("0.27".to_owned()),
            task_hash: task.hash(),
            key: Key::of_bytes(format!("{median_ns} {schedule:?}").as_bytes()),
            median_ns: Some(median_ns),
            code_revision: Some(Revisions::embedded_table().revision_of(task, target.kind, schedule).to_string()),
            schedule: Some(Json::parse(&schedule.to_json()).expect("JSON")),
            ..Record::default()
        };
        let contest = Json::parse(r#"{"turns": 5}"#).expect("JSON");
        let now = Record {
            host_class: "here".to_owned(),
            tvm_version: Some("0.27".to_owned()),
            source: Source::Measured,
            ..Record::default()
        };
        let on = |all_versions: bool| {
            Best::for_plan(&plan, (&target, 2), (now.clone(), all_versions), ("network", &contest))
        };
        let mut best = on(false);
        let lacks = |best: &Best, why: DefaultReason| {
            assert_eq!((best.best_schedule(task), best.found_count()), (None, 0));
            assert_eq!(best.choose_schedule(task), default_schedule(task, &target));
            let wanted = format!("1 of 1 tasks keep the default schedule: {} {}", task.name(), why.reason_text());
            assert_eq!(best.describe_lacking(), Some(wanted));
        };
        lacks(&best, DefaultReason::NotMeasured);
        let others = [
            Record { outcome: Outcome::WrongResult, ..right(1.0, &schedules[0]) },
            Record { threads: Some(1), ..right(1.0, &schedules[0]) },
            Record { cache_state: Some(CacheState::Cold), ..right(1.0, &schedules[0]) },
            Record { target_text: Some("{}".to_owned()), ..right(1.0, &schedules[0]) },
            Record { task_hash: "another".to_owned(), ..right(1.0, &schedules[0]) },
            Record { source: Source::Simulated, ..right(1.0, &schedules[0]) },
            Record { symbolic_task: Some("dense".to_owned()), ..right(1.0, &schedules[0]) },
        ];
        others.iter().for_each(|record| best.add_record(record));
        lacks(&best, DefaultReason::NotMeasured);
        best.add_record(&Record { median_interval_ns: Some(2.09), ..right(1.0, &schedules[0]) });
        lacks(&best, DefaultReason::Disturbed);
        best.add_record(&Record { host_class: "there".to_owned(), ..right(1.0, &schedules[0]) });
        lacks(&best, DefaultReason::OtherHost);
        best.add_record(&Record { tvm_version: Some("0.26".to_owned()), ..right(1.0, &schedules[0]) });
        best.add_record(&Record { clock_policy: Some("powersave".to_owned()), ..right(1.0, &schedules[0]) });
        lacks(&best, DefaultReason::OtherVersions);
        assert_eq!(best.left_out(), 2);
        best.add_record(&Record { code_revision: Some("0123456789abcdef".to_owned()), ..right(1.0, &schedules[0]) });
        lacks(&best, DefaultReason::OtherCode);
        best.add_record(&Record { code_revision: None, ..right(1.0, &schedules[0]) });
        best.add_record(&Record { host_class: "there".to_owned(), ..right(1.0, &schedules[0]) });
        lacks(&best, DefaultReason::OtherCode);
        let gone = Schedule::from_json(r#"{"from": "template", "knobs": {"no_such_axis": 3}}"#).expect("a schedule");
        best.add_record(&right(5.0, &gone));
        lacks(&best, DefaultReason::Gone);
        for (median_ns, schedule) in [(30.0, &schedules[1]), (10.0, &schedules[2]), (20.0, &schedules[3])] {
            best.add_record(&known_to(0.1, right(median_ns, schedule)));
        }
        best.add_record(&Record { host_class: "there".to_owned(), ..right(1.0, &schedules[0]) });
        best.add_record(&right(5.0, &gone));
        // This schedule has a lower median, but a wider interval.
        best.add_record(&known_to(2.0, right(9.5, &schedules[4])));
        best.add_record(&known_to(3.0, right(1.0, &schedules[4])));
        assert_eq!(
            (best.best_schedule(task), best.found_count(), best.describe_lacking()),
            (Some(&schedules[2]), 1, None)
        );
        let default = default_schedule(task, &target);
        assert_eq!(best.candidates(task, None), [default.clone(), schedules[2].clone()]);
        assert_eq!(best.candidates(task, Some(&schedules[2])), [default.clone(), schedules[2].clone()]);
        assert_eq!(best.candidates(task, Some(&default)), std::slice::from_ref(&default));
        assert_eq!(best.candidates(task, Some(&schedules[3])), [default, schedules[2].clone(), schedules[3].clone()]);

        // In the network: records of other plans and other models do not count, and contests count only
        // if they include the schedule that is fastest alone.
        let in_place = |median_ns: f64, schedule: &Schedule| Record {
            network_hash: Some("network".to_owned()),
            plan: Some(contest.clone()),
            ..right(median_ns, schedule)
        };
        best.add_record(&Record { plan: None, ..in_place(40.0, &schedules[2]) });
        best.add_record(&Record { network_hash: Some("another".to_owned()), ..in_place(40.0, &schedules[2]) });
        best.add_record(&in_place(25.0, &schedules[3]));
        assert_eq!(best.best_schedule(task), Some(&schedules[2]));
        let two = [schedules[2].clone(), schedules[3].clone()];
        assert!(!best.is_decided(task, &two));
        best.add_record(&in_place(26.0, &schedules[2]));
        assert_eq!(best.best_schedule(task), Some(&schedules[3]));
        assert!(best.is_decided(task, &two));

        // Other versions and code revisions count on request and are reported; other hosts never count.
        let mut all = on(true);
        all.add_record(&right(10.0, &schedules[2]));
        assert_eq!((all.best_schedule(task), all.describe_other_versions()), (Some(&schedules[2]), None));
        all.add_record(&Record { host_class: "there".to_owned(), ..right(1.0, &schedules[0]) });
        all.add_record(&Record { code_revision: Some("0123".to_owned()), ..right(8.0, &schedules[3]) });
        assert_eq!(all.best_schedule(task), Some(&schedules[3]));
        all.add_record(&Record {
            tvm_version: Some("0.26".to_owned()),
            code_revision: None,
            ..right(5.0, &schedules[1])
        });
        assert_eq!((all.best_schedule(task), all.left_out()), (Some(&schedules[1]), 0));
        let note = "best schedules that were measured with other versions: 1 with TVM 0.26";
        assert_eq!(all.describe_other_versions().as_deref(), Some(note));
    }
}
