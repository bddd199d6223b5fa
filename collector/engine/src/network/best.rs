//! The fastest correct schedule of each task according to records, and the reason why some tasks
//! have none.
//!
//! [`datasets::fastest`] ranks the attempts. Medians with wide intervals are ignored.
//!
//! The schedule that is fastest alone, with its constants in a near cache, may not be the fastest
//! when constants come from memory. So if schedules were timed interleaved in the network, the
//! fastest of those is the best, provided that the one that is fastest alone was among them.

use super::default_schedule;
use datasets::{CacheState, Json, Key, Likeness, Outcome, Record, Source, fastest, stands_for};
use job::revision::Revisions;
use job::space::{Schedule, space};
use models::{Plan, Task};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use targets::Target;

/// Reason why the default schedule of a task is used, ordered by how close the task came to having
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// No record of a correct time with warm caches exists for this target and number of threads.
    NotMeasured,
    /// The interval of the median is too wide.
    Disturbed,
    /// The task was measured only on hosts of other classes.
    OtherHost,
    /// The task was measured only with other versions or another clock policy.
    OtherVersions,
    /// The task was measured, but this program generates different code for the schedule.
    OtherCode,
    /// The space no longer contains the measured schedule.
    Gone,
}

impl Why {
    /// Returns the reason as text.
    pub fn words(self) -> &'static str {
        match self {
            Why::NotMeasured => "not measured for this target and number of threads",
            Why::Disturbed => "measured on a machine that was too noisy for a median",
            Why::OtherHost => "measured on other hosts only",
            Why::OtherVersions => "measured with other versions only",
            Why::OtherCode => "measured with other code only",
            Why::Gone => "measured with schedules that no longer exist",
        }
    }
}

/// Largest half-width of an interval, relative to the median, with which a median counts.
const WIDE: f64 = 0.25;

/// Schedules that are slower alone than the fastest by this factor are not timed in the network.
const HOPELESS: f64 = 1.6;

/// Name of the axis that selects the algorithm of an operator. Each algorithm has constants of its
/// own size.
const ALGORITHM: &str = "algorithm";

/// Records of a task.
#[derive(Clone, Debug)]
struct KnownSchedules {
    task: Task,
    /// Attempts that were measured alone.
    alone: Attempts,
    /// Reason why no attempt counts.
    why: Why,
    /// Attempts that were timed interleaved in the network.
    in_place: Attempts,
}

/// Records of attempts, with their schedules.
#[derive(Clone, Debug, Default)]
struct Attempts {
    records: Vec<Record>,
    schedules: HashMap<Key, Schedule>,
}

impl Attempts {
    fn push(&mut self, record: &Record, schedule: Schedule) {
        self.schedules.insert(record.key, schedule);
        self.records.push(record.clone().lean());
    }

    /// Returns the fastest schedule for which `is_one` holds, and its time.
    fn fastest(&self, is_one: impl Fn(&Schedule) -> bool) -> Option<(f64, &Schedule)> {
        let some = self.records.iter().filter(|record| self.schedules.get(&record.key).is_some_and(&is_one));
        let found = fastest(some)?;
        Some((found.known_ns, self.schedules.get(&found.record.key)?))
    }

    /// Returns the fastest schedule with its record.
    fn first(&self) -> Option<(&Record, &Schedule)> {
        let record = fastest(&self.records)?.record;
        Some((record, self.schedules.get(&record.key)?))
    }

    fn has(&self, schedule: &Schedule) -> bool {
        self.schedules.values().any(|one| one == schedule)
    }
}

impl KnownSchedules {
    /// Returns the schedule that is fastest alone.
    fn alone(&self) -> Option<&Schedule> {
        self.alone.first().map(|(_, schedule)| schedule)
    }

    /// Returns the fastest schedule in the network if the one that is fastest alone was timed there
    /// too, and otherwise the one that is fastest alone.
    fn best(&self) -> Option<(&Record, &Schedule)> {
        let alone = self.alone.first()?;
        if self.in_place.has(alone.1) { self.in_place.first() } else { Some(alone) }
    }
}

/// Best schedules of a model's tasks for a target and number of threads, collected from records.
#[derive(Clone, Debug)]
pub struct Best {
    tasks: Vec<KnownSchedules>,
    places: HashMap<String, usize>,
    target: Target,
    threads: usize,
    /// Record with the columns of this machine and its versions.
    now: Record,
    /// Whether times of other versions and code revisions count.
    all_versions: bool,
    /// Number of times that do not count because of other versions or code revisions.
    left_out: usize,
    network: String,
    contest: String,
}

impl Best {
    /// Creates an empty collection. `now` is a record with the columns of this machine and its versions, `network` the hash of the
    /// model, and `contest` the plan by which schedules are timed in the network.
    pub fn of(
        plan: &Plan,
        (target, threads): (&Target, usize),
        (now, all_versions): (Record, bool),
        (network, contest): (&str, &Json),
    ) -> Best {
        let unknown = |task: &Task| KnownSchedules {
            task: task.clone(),
            alone: Attempts::default(),
            why: Why::NotMeasured,
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
            contest: contest.text().to_owned(),
        }
    }

    /// Takes a record into account.
    pub fn hear(&mut self, record: &Record) {
        let is_like_it = record.outcome == Outcome::Ok
            && record.source == Source::Measured
            && (record.is_alone() || self.is_of_contest(record))
            && record.cache_state == Some(CacheState::Warm)
            // Symbolic code differs from the code for one size.
            && record.symbolic_task.is_none()
            && record.target_text.as_ref() == Some(&self.target.text)
            && record.threads == i64::try_from(self.threads).ok();
        let Some(&place) = self.places.get(&record.task_hash).filter(|_| is_like_it) else { return };
        let Some(text) = record.schedule.as_ref().filter(|_| record.median_ns.is_some()) else { return };
        let found = self.usable(record, &self.tasks[place].task, text.text());
        self.left_out += usize::from(matches!(found, Err(Why::OtherVersions | Why::OtherCode)));
        let known = &mut self.tasks[place];
        match found {
            Ok(schedule) if record.is_alone() => known.alone.push(record, schedule),
            Ok(schedule) => known.in_place.push(record, schedule),
            Err(nearer) if record.is_alone() => known.why = known.why.max(nearer),
            Err(_) => {}
        }
    }

    /// Returns whether a record is an operator of this model that was timed interleaved in the
    /// network.
    fn is_of_contest(&self, record: &Record) -> bool {
        record.network_hash.as_ref() == Some(&self.network)
            && record.co_run.is_none()
            && record.plan.as_ref().is_some_and(|plan| plan.text() == self.contest)
    }

    /// Parses the schedule of a record, if its time is valid for the code that this program
    /// generates on this machine.
    fn usable(&self, record: &Record, task: &Task, schedule: &str) -> Result<Schedule, Why> {
        if record.uncertainty_within_visit().is_some_and(|uncertainty| uncertainty > WIDE) {
            return Err(Why::Disturbed);
        }
        if record.host_class != self.now.host_class {
            return Err(Why::OtherHost);
        }
        if !self.all_versions && !stands_for(record, &self.now, Likeness::Conditions) {
            return Err(Why::OtherVersions);
        }
        let schedule = Schedule::from_json(schedule).map_err(|_| Why::Gone)?;
        if !self.has(task, &schedule) {
            return Err(Why::Gone);
        }
        if self.all_versions || self.is_of_code(record, task, &schedule) { Ok(schedule) } else { Err(Why::OtherCode) }
    }

    /// Returns whether this program generates the code of a record.
    fn is_of_code(&self, record: &Record, task: &Task, schedule: &Schedule) -> bool {
        record.code_revision.as_deref() == Some(&*Revisions::own().of(task, self.target.kind, schedule))
    }

    /// Returns whether the space of a task contains a schedule.
    fn has(&self, task: &Task, schedule: &Schedule) -> bool {
        let Schedule::Template { knobs } = schedule else { return true };
        let space = space(task, &self.target.machine);
        let has =
            |name: &str, setting| space.axes.iter().any(|axis| axis.name == name && axis.settings.contains(setting));
        knobs.0.iter().all(|(name, setting)| has(name, setting)) && space.allows(knobs)
    }

    /// Returns the best schedule of a task, if there is one.
    pub fn find(&self, task: &Task) -> Option<&Schedule> {
        self.tasks[*self.places.get(&task.hash())?].best().map(|(_, schedule)| schedule)
    }

    /// Returns the schedule of a task that is fastest alone, if there is one.
    pub fn alone(&self, task: &Task) -> Option<&Schedule> {
        self.tasks[*self.places.get(&task.hash())?].alone()
    }

    /// Returns whether all candidates of a task were timed interleaved in the network.
    pub fn is_decided(&self, task: &Task, candidates: &[Schedule]) -> bool {
        let known = self.places.get(&task.hash()).map(|place| &self.tasks[*place].in_place);
        known.is_some_and(|timed| candidates.iter().all(|one| timed.has(one)))
    }

    /// Returns the candidates for the fastest schedule of a task in the network: the default
    /// schedule, the one that a search found, and the one that is fastest alone for each algorithm.
    ///
    /// A search knows only its own trials, a store also those of others, so the two may disagree about
    /// schedules that are nearly equally fast. Only the default schedule is returned if the search
    /// found nothing faster and the only other candidate has the same algorithm.
    pub fn candidates(&self, task: &Task, found: Option<&Schedule>) -> Vec<Schedule> {
        let mut candidates = vec![default_schedule(task, &self.target)];
        let known = self.places.get(&task.hash()).map(|place| &self.tasks[*place]);
        if let Some((known, (least_ns, alone))) = known.and_then(|known| Some((known, known.alone.fastest(|_| true)?)))
        {
            let algorithms: BTreeSet<String> = known.alone.schedules.values().map(algorithm).collect();
            let of_each = algorithms.iter().filter_map(|own| known.alone.fastest(|one| algorithm(one) == *own));
            let mut others: Vec<(f64, &Schedule)> = of_each.filter(|(ns, _)| *ns <= HOPELESS * least_ns).collect();
            others.sort_by(|one, other| one.0.total_cmp(&other.0));
            for schedule in [alone].into_iter().chain(others.into_iter().map(|(_, schedule)| schedule)) {
                if !candidates.contains(schedule) {
                    candidates.push(schedule.clone());
                }
            }
        }
        match (&candidates[..], found) {
            ([default, other], Some(found)) if found == default && algorithm(other) == algorithm(default) => {
                candidates.truncate(1);
            }
            (_, Some(found)) if !candidates.contains(found) => candidates.push(found.clone()),
            _ => {}
        }
        candidates
    }

    /// Returns the best schedule of a task, or the default one.
    pub fn choose(&self, task: &Task) -> Schedule {
        self.find(task).cloned().unwrap_or_else(|| default_schedule(task, &self.target))
    }

    /// Returns the number of tasks with a best schedule.
    pub fn found(&self) -> usize {
        self.tasks.iter().filter(|known| known.alone().is_some()).count()
    }

    /// Returns the number of times that do not count because of their versions or code revision.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Describes the versions of the best schedules that were not measured under current conditions, if there are any.
    pub fn foreign(&self) -> Option<String> {
        let mut versions: BTreeMap<String, usize> = BTreeMap::new();
        for known in &self.tasks {
            let Some((record, schedule)) = known.best() else { continue };
            let is_of_now = stands_for(record, &self.now, Likeness::Conditions);
            if !is_of_now || !self.is_of_code(record, &known.task, schedule) {
                *versions.entry(record.versions_and_code()).or_default() += 1;
            }
        }
        let count: usize = versions.values().sum();
        let named: Vec<String> =
            versions.into_iter().map(|(versions, count)| format!("{count} with {versions}")).collect();
        (count > 0)
            .then(|| format!("{count} of the best schedules were measured with other versions: {}", named.join("; ")))
    }

    /// Describes in one sentence which tasks keep the default schedule, and why. Returns None if
    /// there are none.
    pub fn lacking(&self) -> Option<String> {
        let mut whys: BTreeMap<Why, BTreeMap<String, usize>> = BTreeMap::new();
        for known in &self.tasks {
            if known.alone().is_none() {
                *whys.entry(known.why).or_default().entry(known.task.name()).or_default() += 1;
            }
        }
        let named = |names: &BTreeMap<String, usize>| {
            let times = |count: &usize| if *count > 1 { format!("{count} × ") } else { String::new() };
            names.iter().map(|(name, count)| format!("{}{name}", times(count))).collect::<Vec<_>>().join(", ")
        };
        let parts: Vec<String> = whys.iter().map(|(why, names)| format!("{} {}", named(names), why.words())).collect();
        let (lacking, all) = (self.tasks.len() - self.found(), self.tasks.len());
        (lacking > 0).then(|| format!("{lacking} of {all} tasks keep the default schedule: {}", parts.join("; ")))
    }
}

/// Returns the algorithm of a schedule; empty if the operator has only one.
fn algorithm(schedule: &Schedule) -> String {
    match schedule {
        Schedule::Template { knobs } => knobs.0.get(ALGORITHM).map(ToString::to_string).unwrap_or_default(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use job::space::sample;
    use targets::llvm;

    /// Returns a record with this half-width of its interval over visits.
    fn known_to(half_ns: f64, record: Record) -> Record {
        Record { median_interval_ns: Some(half_ns), interval_covers: Some(datasets::Covers::Visits), ..record }
    }

    // The test fills one store in steps, and each step depends on the previous ones.
    #[allow(clippy::too_many_lines)]
    #[test]
    fn the_fastest_of_what_was_measured_alike_is_chosen() {
        let graph = zoo::simple::build("dense:m=8,n=64,k=32").expect("an operator");
        let plan = models::plan(&graph, models::Fuse::Epilogue).expect("tasks");
        let task = &plan.tasks[0].task;
        let target = llvm("generic", &[], 2);
        let schedules: Vec<Schedule> =
            sample(&space(task, &target.machine), 1, 5).into_iter().map(|knobs| Schedule::Template { knobs }).collect();
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
            code_revision: Some(Revisions::own().of(task, target.kind, schedule).to_string()),
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
        let on = |all_versions: bool| Best::of(&plan, (&target, 2), (now.clone(), all_versions), ("network", &contest));
        let mut best = on(false);
        let lacks = |best: &Best, why: Why| {
            assert_eq!((best.find(task), best.found()), (None, 0));
            assert_eq!(best.choose(task), default_schedule(task, &target));
            let wanted = format!("1 of 1 tasks keep the default schedule: {} {}", task.name(), why.words());
            assert_eq!(best.lacking(), Some(wanted));
        };
        lacks(&best, Why::NotMeasured);
        let others = [
            Record { outcome: Outcome::WrongResult, ..right(1.0, &schedules[0]) },
            Record { threads: Some(1), ..right(1.0, &schedules[0]) },
            Record { cache_state: Some(CacheState::Cold), ..right(1.0, &schedules[0]) },
            Record { target_text: Some("{}".to_owned()), ..right(1.0, &schedules[0]) },
            Record { task_hash: "another".to_owned(), ..right(1.0, &schedules[0]) },
            Record { source: Source::Simulated, ..right(1.0, &schedules[0]) },
            Record { symbolic_task: Some("dense".to_owned()), ..right(1.0, &schedules[0]) },
        ];
        others.iter().for_each(|record| best.hear(record));
        lacks(&best, Why::NotMeasured);
        best.hear(&Record { median_interval_ns: Some(2.09), ..right(1.0, &schedules[0]) });
        lacks(&best, Why::Disturbed);
        best.hear(&Record { host_class: "there".to_owned(), ..right(1.0, &schedules[0]) });
        lacks(&best, Why::OtherHost);
        best.hear(&Record { tvm_version: Some("0.26".to_owned()), ..right(1.0, &schedules[0]) });
        best.hear(&Record { clock_policy: Some("powersave".to_owned()), ..right(1.0, &schedules[0]) });
        lacks(&best, Why::OtherVersions);
        assert_eq!(best.left_out(), 2);
        best.hear(&Record { code_revision: Some("0123456789abcdef".to_owned()), ..right(1.0, &schedules[0]) });
        lacks(&best, Why::OtherCode);
        best.hear(&Record { code_revision: None, ..right(1.0, &schedules[0]) });
        best.hear(&Record { host_class: "there".to_owned(), ..right(1.0, &schedules[0]) });
        lacks(&best, Why::OtherCode);
        let gone = Schedule::from_json(r#"{"from": "template", "knobs": {"no_such_axis": 3}}"#).expect("a schedule");
        best.hear(&right(5.0, &gone));
        lacks(&best, Why::Gone);
        for (median_ns, schedule) in [(30.0, &schedules[1]), (10.0, &schedules[2]), (20.0, &schedules[3])] {
            best.hear(&known_to(0.1, right(median_ns, schedule)));
        }
        best.hear(&Record { host_class: "there".to_owned(), ..right(1.0, &schedules[0]) });
        best.hear(&right(5.0, &gone));
        // This schedule has a lower median, but a wider interval.
        best.hear(&known_to(2.0, right(9.5, &schedules[4])));
        best.hear(&known_to(3.0, right(1.0, &schedules[4])));
        assert_eq!((best.find(task), best.found(), best.lacking()), (Some(&schedules[2]), 1, None));
        let default = default_schedule(task, &target);
        assert_eq!(best.candidates(task, None), [default.clone(), schedules[2].clone()]);
        assert_eq!(best.candidates(task, Some(&schedules[2])), [default.clone(), schedules[2].clone()]);
        assert_eq!(best.candidates(task, Some(&default)), std::slice::from_ref(&default));
        assert_eq!(best.candidates(task, Some(&schedules[3])), [default, schedules[2].clone(), schedules[3].clone()]);

        // In the network: other plans and other models do not count, and neither do contests
        // without the schedule that is fastest alone.
        let in_place = |median_ns: f64, schedule: &Schedule| Record {
            network_hash: Some("network".to_owned()),
            plan: Some(contest.clone()),
            ..right(median_ns, schedule)
        };
        best.hear(&Record { plan: None, ..in_place(40.0, &schedules[2]) });
        best.hear(&Record { network_hash: Some("another".to_owned()), ..in_place(40.0, &schedules[2]) });
        best.hear(&in_place(25.0, &schedules[3]));
        assert_eq!(best.find(task), Some(&schedules[2]));
        let two = [schedules[2].clone(), schedules[3].clone()];
        assert!(!best.is_decided(task, &two));
        best.hear(&in_place(26.0, &schedules[2]));
        assert_eq!(best.find(task), Some(&schedules[3]));
        assert!(best.is_decided(task, &two));

        // Other versions and code revisions count on request and are reported; other hosts never count.
        let mut all = on(true);
        all.hear(&right(10.0, &schedules[2]));
        assert_eq!((all.find(task), all.foreign()), (Some(&schedules[2]), None));
        all.hear(&Record { host_class: "there".to_owned(), ..right(1.0, &schedules[0]) });
        all.hear(&Record { code_revision: Some("0123".to_owned()), ..right(8.0, &schedules[3]) });
        assert_eq!(all.find(task), Some(&schedules[3]));
        all.hear(&Record { tvm_version: Some("0.26".to_owned()), code_revision: None, ..right(5.0, &schedules[1]) });
        assert_eq!((all.find(task), all.left_out()), (Some(&schedules[1]), 0));
        let told = "1 of the best schedules were measured with other versions: 1 with TVM 0.26";
        assert_eq!(all.foreign().as_deref(), Some(told));
    }
}
