//! The fastest right schedule of each task that records know of.

use super::default_schedule;
use datasets::{CacheState, Outcome, Record, Source};
use job::space::{Schedule, space};
use job::target::Target;
use models::Task;
use std::collections::HashMap;

/// Schedules by the hashes of their tasks, with the medians that were measured.
#[derive(Debug, Default)]
pub struct Best(HashMap<String, (f64, Schedule)>);

impl Best {
    /// Hears of a record. What was not measured right, with warm caches, for this target and on so many threads is none.
    pub fn hear(&mut self, record: &Record, target: &Target, threads: usize) {
        let is_like_it = record.outcome == Outcome::Ok
            && record.source == Source::Measured
            && record.cache_state == Some(CacheState::Warm)
            && record.target_text.as_ref() == Some(&target.text)
            && record.threads == i64::try_from(threads).ok();
        let Some((median_ns, text)) = record.median_ns.zip(record.schedule.as_ref()).filter(|_| is_like_it) else {
            return;
        };
        let Ok(schedule) = Schedule::from_json(text.text()) else { return };
        match self.0.get(&record.task_hash) {
            Some((least_ns, _)) if *least_ns <= median_ns => {}
            _ => drop(self.0.insert(record.task_hash.clone(), (median_ns, schedule))),
        }
    }

    /// The best schedule of a task, if there is one that its space still has.
    pub fn find(&self, task: &Task, target: &Target) -> Option<&Schedule> {
        let (_, schedule) = self.0.get(&task.hash())?;
        let is_possible = match schedule {
            Schedule::Template { knobs } => {
                let space = space(task, &target.machine);
                let has = |name: &str, setting| {
                    space.axes.iter().any(|axis| axis.name == name && axis.settings.contains(setting))
                };
                knobs.0.iter().all(|(name, setting)| has(name, setting)) && space.allows(knobs)
            }
            Schedule::MetaSchedule { .. } | Schedule::Trace { .. } => true,
        };
        is_possible.then_some(schedule)
    }

    /// The best schedule of a task, or the default one.
    pub fn choose(&self, task: &Task, target: &Target) -> Schedule {
        self.find(task, target).cloned().unwrap_or_else(|| default_schedule(task, target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datasets::Json;
    use job::space::sample;
    use job::target::llvm;

    #[test]
    fn the_fastest_of_what_was_measured_alike_is_chosen() {
        let graph = zoo::simple::build("dense:m=8,n=64,k=32").expect("an operator");
        let task = &models::tasks(&graph, models::Fuse::Epilogue).expect("tasks")[0].task;
        let target = llvm("generic", &[], 2);
        let schedules: Vec<Schedule> =
            sample(&space(task, &target.machine), 1, 5).into_iter().map(|knobs| Schedule::Template { knobs }).collect();
        let right = |median_ns: f64, schedule: &Schedule| Record {
            outcome: Outcome::Ok,
            source: Source::Measured,
            cache_state: Some(CacheState::Warm),
            target_text: Some(target.text.clone()),
            threads: Some(2),
            task_hash: task.hash(),
            median_ns: Some(median_ns),
            schedule: Some(Json::parse(&schedule.to_json()).expect("JSON")),
            ..Record::default()
        };
        let mut best = Best::default();
        assert_eq!(best.find(task, &target), None);
        assert_eq!(best.choose(task, &target), default_schedule(task, &target));
        let others = [
            Record { outcome: Outcome::WrongResult, ..right(1.0, &schedules[0]) },
            Record { threads: Some(1), ..right(1.0, &schedules[0]) },
            Record { cache_state: Some(CacheState::Cold), ..right(1.0, &schedules[0]) },
            Record { target_text: Some("{}".to_owned()), ..right(1.0, &schedules[0]) },
            Record { task_hash: "another".to_owned(), ..right(1.0, &schedules[0]) },
            Record { source: Source::Simulated, ..right(1.0, &schedules[0]) },
        ];
        others.iter().for_each(|record| best.hear(record, &target, 2));
        assert_eq!(best.find(task, &target), None);
        for (median_ns, schedule) in [(30.0, &schedules[1]), (10.0, &schedules[2]), (20.0, &schedules[3])] {
            best.hear(&right(median_ns, schedule), &target, 2);
        }
        assert_eq!(best.find(task, &target), Some(&schedules[2]));
        let gone = Schedule::from_json(r#"{"from": "template", "knobs": {"no_such_axis": 3}}"#).expect("a schedule");
        best.hear(&right(5.0, &gone), &target, 2);
        assert_eq!(best.find(task, &target), None, "this version has no such schedule");
    }
}
